import SalvorModel
import SalvorModuleKit

/// `server.log` and `client.log`.
public struct LogSettings: Sendable, Hashable {
  /// What is below it is not written.
  public var level: LogLevel
  /// Nil: journald's where standard error leads there, else `logfmt`.
  public var format: LogFormat?
  /// A line for each request.
  public var access: Bool
  /// What takes longer is a warning.
  public var slowMilliseconds: Int64

  /// By default `info` and above, a line for each request, and a warning for what takes longer than a second.
  public init(
    level: LogLevel = .info, format: LogFormat? = nil, access: Bool = true, slowMilliseconds: Int64 = 1000
  ) {
    self.level = level
    self.format = format
    self.access = access
    self.slowMilliseconds = slowMilliseconds
  }

  /// Reads `log` of a section; what it does not say is `fallback`'s.
  static func decode(_ section: inout OptionReader, default fallback: LogSettings) -> LogSettings {
    var settings = fallback
    guard var reader = section.object("log") else { return settings }
    if let level = choice("level", LogLevel.allCases.map(\.rawValue), &reader) {
      settings.level = LogLevel(rawValue: level) ?? settings.level
    }
    if let format = choice("format", ["auto"] + LogFormat.allCases.map(\.rawValue), &reader) {
      settings.format = LogFormat(rawValue: format)
    }
    settings.access = reader.boolean("access", default: settings.access)
    settings.slowMilliseconds = reader.integer(
      "slowMilliseconds", in: 1...3_600_000, default: settings.slowMilliseconds)
    section.finish(child: reader)
    return settings
  }

  private static func choice(_ key: String, _ known: [String], _ reader: inout OptionReader) -> String? {
    guard let text = reader.optionalString(key) else { return nil }
    if known.contains(text) { return text }
    reader.report(key, "must be one of \(known.joined(separator: ", "))\(suggestion(text, among: known))")
    return nil
  }
}
