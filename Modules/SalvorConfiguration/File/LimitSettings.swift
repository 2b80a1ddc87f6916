import SalvorModel
import SalvorModuleKit

/// One limit as a configuration sets it: under `limits:` of `server` and of `client`, by the field's own name.
public struct LimitSetting: Sendable {
  /// The field of `Limits`, with its unit.
  public let name: String
  /// The values that a configuration may give; others are mistakes.
  public let range: ClosedRange<Int64>
  /// What is limited, as the reference has it.
  public let summary: String
  let read: @Sendable (Limits) -> Int64
  let write: @Sendable (inout Limits, Int64) -> Void

  /// What holds where the configuration says nothing.
  public var defaultValue: Int64 { read(Limits()) }

  /// Every limit, in the order of the reference. A test compares the names with the fields of `Limits`.
  public static let all: [LimitSetting] = [
    setting("bodyBytesMax", \.bodyBytesMax, 1 << 10...1 << 40, "one request's body on the wire, as sent (compressed)"),
    setting("chunkBytesMax", \.chunkBytesMax, 1 << 10...1 << 31, "one upload chunk, after decompression"),
    setting(
      "downloadBytesMax", \.downloadBytesMax, 1 << 10...1 << 50, "one download in all, as sent and after decompression"),
    setting("uploadBytesMax", \.uploadBytesMax, 1 << 10...1 << 50, "one upload in all, after decompression"),
    setting("rowBytesMax", \.rowBytesMax, 1 << 10...1 << 31, "one row's payload text"),
    setting(
      "beginBytesMax", \.beginBytesMax, 1 << 10...1 << 30,
      "the first line of a sync, less a history that the server asks for"),
    setting(
      "bodiesBytesMax", \.bodiesBytesMax, 1 << 20...1 << 40,
      "the bodies of all requests in memory at one time; larger ones wait"),
    setting("valuesMax", \.valuesMax, 1000...1 << 30, "the values of one message that is read whole"),
    setting(
      "blobReferenceBytesMin", \.blobReferenceBytesMin, 1 << 10...1 << 31,
      "a blob from this size on travels outside the payload"),
    setting(
      "blobBytesMax", \.blobBytesMax, 1 << 10...900_000_000,
      "one blob that travels outside the payload; `rowBytesMax` and `uploadBytesMax` do not count it"),
    setting(
      "blobStagingBytesMax", \.blobStagingBytesMax, 1 << 10...1 << 50,
      "the blobs that one principal has sent and no upload has used yet; a queue with more goes up in several uploads"),
    setting(
      "chunkBytesTarget", \.chunkBytesTarget, 1 << 10...1 << 31,
      "where the payload of a chunk is cut; a longer single row makes a longer chunk. Where this is not below its default, a device makes the chunks of a large upload four times as long as the one before, up to `chunkBytesMax`, as long as they arrive within a second"
    ),
    setting(
      "singleRoundTripBytesMax", \.singleRoundTripBytesMax, 0...1 << 31,
      "an upload up to this size goes with its begin, in one round trip"),
    setting("depthMax", \.depthMax, 8...256, "nesting of JSON"),
    setting("columnsMax", \.columnsMax, 1...2000, "the columns of one table that travels"),
    setting(
      "connectTimeoutMilliseconds", \.connectTimeoutMilliseconds, 1...3_600_000, "making a connection"),
    setting(
      "idleTimeoutMilliseconds", \.idleTimeoutMilliseconds, 1...3_600_000,
      "no byte in either direction for this long ends an exchange"),
    setting(
      "sessionIdleMilliseconds", \.sessionIdleMilliseconds, 1...3_600_000,
      "a session that nobody continues is given up after this"),
    setting("principalSessionsMax", \.principalSessionsMax, 1...1_000_000, "sessions of one principal at one time"),
    setting(
      "principalRemotesMax", \.principalRemotesMax, 1...100_000_000,
      "remote databases of one principal; deleted ones do not count"),
    setting(
      "principalStagedBytesMax", \.principalStagedBytesMax, 1 << 10...1 << 50,
      "what the remote databases of one principal have in staging together, blobs aside"),
    setting("uploadChunksMax", \.uploadChunksMax, 1...100_000_000, "chunks of one upload"),
    setting(
      "connectionsMax", \.connectionsMax, 1...1_000_000,
      "connections at one time; fewer where the limit of files (`ulimit -n`) does not allow as many"),
    setting(
      "connectionsPerAddressMax", \.connectionsPerAddressMax, 1...1_000_000,
      "connections of one address at one time, never more than half of all (64 at least)"),
    setting(
      "headTimeoutMilliseconds", \.headTimeoutMilliseconds, 100...3_600_000, "until the head of a request is there"),
    setting(
      "bodyBytesPerSecondMin", \.bodyBytesPerSecondMin, 0...1 << 30,
      "a body that moves slower, in either direction, ends its exchange; 0: any pace will do"),
    setting("attemptsMax", \.attemptsMax, 1...1000, "tries of one exchange"),
    setting(
      "recoveriesMax", \.recoveriesMax, 1...100_000, "devices that recover at one time; others are told to come back"),
    setting(
      "eventListenersMax", \.eventListenersMax, 0...1_000_000,
      "devices that listen for changes at one time, at most half of `connectionsMax`; others poll"),
    setting(
      "eventKeepAliveMilliseconds", \.eventKeepAliveMilliseconds, 100...3_600_000,
      "how often a stream of events says that nothing has changed; shorter than every idle timeout on the way"),
    setting(
      "eventLookMilliseconds", \.eventLookMilliseconds, 10...3_600_000,
      "how often the tables are looked at for what other programs write, while anybody listens; sooner where the system tells of a write"
    ),
    setting(
      "eventStreamMilliseconds", \.eventStreamMilliseconds, 1000...86_400_000,
      "a stream of events ends after this; the device begins another, and shows its credentials again"),
  ]

  private static func setting<Integer: FixedWidthInteger & Sendable>(
    _ name: String, _ field: any WritableKeyPath<Limits, Integer> & Sendable, _ range: ClosedRange<Int64>,
    _ summary: String
  ) -> LimitSetting {
    LimitSetting(
      name: name, range: range, summary: summary, read: { Int64($0[keyPath: field]) },
      write: { $0[keyPath: field] = Integer($1) })
  }

  /// Reads `limits:` of a section.
  static func decode(_ section: inout OptionReader) -> Limits {
    var limits = Limits()
    guard var reader = section.object("limits") else { return limits }
    for setting in all {
      setting.write(&limits, reader.integer(setting.name, in: setting.range, default: setting.defaultValue))
    }
    for name in ["chunkBytesTarget", "singleRoundTripBytesMax"] {
      guard let setting = all.first(where: { $0.name == name }), setting.read(limits) > limits.chunkBytesMax else {
        continue
      }
      let culprit = reader.has(name) ? name : "chunkBytesMax"
      reader.report(
        culprit, "does not fit: \(name) (\(setting.read(limits))) is more than chunkBytesMax (\(limits.chunkBytesMax))")
    }
    if reader.has("bodyBytesMax"), limits.bodyBytesMax < limits.rowBytesMax {
      reader.warn(
        "bodyBytesMax",
        "is less than rowBytesMax (\(limits.rowBytesMax)): a row that is larger than bodyBytesMax as it is sent is refused (too-large)"
      )
    }
    section.finish(child: reader)
    return limits
  }
}

/// A length of time as a file writes it: a whole number and a unit, `90d`.
enum TimeSpan {
  /// Milliseconds of each unit.
  static let units: KeyValuePairs<String, Int64> = [
    "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
  ]

  /// Nil unless `text` is a number and a unit, and its milliseconds fit 64 bits.
  static func milliseconds(_ text: String) -> Int64? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let count = Int64(digits), let unit = units.first(where: { $0.key == text.dropFirst(digits.count) }) else {
      return nil
    }
    let (product, overflow) = count.multipliedReportingOverflow(by: unit.value)
    return overflow ? nil : product
  }

  static func decode(_ reader: inout OptionReader, _ key: String, default fallback: Int64) -> Int64 {
    guard let value = reader.value(key) else { return fallback }
    guard case .string(let text) = value.content, let milliseconds = milliseconds(text), milliseconds > 0 else {
      reader.report(key, "must be a length of time in quotes, like \"90d\" or \"12h\" (units: ms, s, m, h, d, w)")
      return fallback
    }
    return milliseconds
  }
}
