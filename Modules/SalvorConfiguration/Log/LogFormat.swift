import SalvorModel
import SalvorWire

/// How a line of the log is written.
public enum LogFormat: String, Sendable, CaseIterable {
  /// `time=… level=… msg="…" name=value …`, for people and for tools that know logfmt.
  case logfmt
  /// One JSON object a line.
  case json
  /// As `logfmt`, without the time and after the priority `<6>`: journald keeps both itself.
  case journald

  /// - Parameter time: milliseconds since 1970.
  func line(_ entry: LogRecord, time: Int64) -> String {
    switch self {
    case .logfmt: "time=\(isoTime(time)) " + Self.rest(entry)
    case .journald: "<\(entry.level.priority)>" + Self.rest(entry)
    case .json:
      JSONValue.object(
        [
          .init("time", .string(isoTime(time))), .init("level", .string(entry.level.rawValue)),
          .init("msg", .string(entry.message)),
        ] + entry.fields.map { .init($0.name, .string($0.value)) }
      ).text
    }
  }

  private static func rest(_ entry: LogRecord) -> String {
    var text = "level=\(entry.level.rawValue) msg=\(value(entry.message))"
    for field in entry.fields { text += " \(name(field.name))=\(value(field.value))" }
    return text
  }

  private static func name(_ text: String) -> String {
    String(text.map { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_" || $0 == "." || $0 == "-") ? $0 : "_" })
  }

  /// Bare where nothing in it could be taken for something else, in quotes otherwise; a line never breaks.
  private static func value(_ text: String) -> String {
    let isBare =
      !text.isEmpty
      && text.unicodeScalars.allSatisfy { $0.value > 0x20 && $0 != "\"" && $0 != "=" && $0 != "\\" && $0.value < 0x7F }
    if isBare { return text }
    var out = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": out += "\\\(scalar)"
      case "\n": out += "\\n"
      case "\t": out += "\\t"
      case _
      where scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value) || scalar.value == 0x2028
        || scalar.value == 0x2029:
        out +=
          "\\u" + String(repeating: "0", count: 4 - String(scalar.value, radix: 16).count)
          + String(scalar.value, radix: 16)
      default: out.unicodeScalars.append(scalar)
      }
    }
    return out + "\""
  }
}

/// Milliseconds since 1970 as `2026-11-21T04:05:06.789Z`.
func isoTime(_ milliseconds: Int64) -> String {
  let text = timestamp(milliseconds)
  let rest = String(milliseconds % 1000 + 1000).dropFirst()
  return text.replacing(" ", with: "T") + ".\(rest)Z"
}
