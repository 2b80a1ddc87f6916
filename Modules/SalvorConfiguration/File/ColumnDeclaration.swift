import SalvorModel
import SalvorModuleKit

/// A column as `schema.json5` writes it: `TYPE`, `TYPE?` for a nullable one, and `= DEFAULT`.
///
/// Defaults: `integer = 1`, `real = 0.5`, `boolean = 0` (or 1, true, false), `blob = x'00ff'`, and for the text types
/// `text = 'it''s'` (SQL's quotes) or, where it does not begin with a quote, bare: `text = open`. The bare form ends
/// with the string, without the spaces around it.
struct ColumnDeclaration: Hashable {
  var type: ColumnType
  var nullable: Bool
  var defaultValue: Value?

  struct Failure: Error, Hashable {
    /// What was found and what is allowed. No default is shown: it is a value of the user's.
    var message: String
    init(_ message: String) { self.message = message }
  }

  init(_ text: String) throws(Failure) {
    let equals = text.firstIndex(of: "=")
    var type = Substring(trimmed(text[..<(equals ?? text.endIndex)]))
    nullable = type.last == "?"
    if nullable { type = Substring(trimmed(type.dropLast())) }
    self.type = try ColumnDeclaration.type(String(type))
    if let equals {
      defaultValue = try ColumnDeclaration.value(String(trimmed(text[text.index(after: equals)...])), self.type)
    }
  }

  /// A type without `?` and default, as parameters have.
  static func type(_ name: String) throws(Failure) -> ColumnType {
    if let type = ColumnType(rawValue: name) { return type }
    let allowed = ColumnType.allCases.map(\.rawValue)
    let near =
      elsewhere[name.lowercased()].map { "; did you mean \"\($0)\"?" }
      ?? suggestion(name, among: allowed)
    throw Failure("is the type \"\(name)\"; allowed: \(allowed.joined(separator: ", "))\(near)")
  }

  /// What other systems call the types.
  private static let elsewhere: [String: String] = [
    "string": "text", "varchar": "text", "char": "text", "uuid": "text", "guid": "text",
    "int": "integer", "bigint": "integer", "long": "integer", "number": "real", "float": "real", "double": "real",
    "decimal": "real", "bool": "boolean", "date": "timestamp", "datetime": "timestamp", "bytes": "blob",
    "data": "blob", "binary": "blob", "object": "json",
  ]

  private static func value(_ text: String, _ type: ColumnType) throws(Failure) -> Value {
    if text.isEmpty {
      throw Failure(
        type.sqliteName == "TEXT"
          ? "has no default after =; the empty text is written ''" : "has no default after =")
    }
    if text.lowercased() == "null" {
      throw Failure(
        "has the default NULL; a nullable column starts as NULL without a default"
          + (type.sqliteName == "TEXT" ? ", and the text itself is written '\(text)'" : ""))
    }
    switch type {
    case .text, .timestamp, .json:
      return .text(try unquoted(text))
    case .integer:
      guard let integer = Int64(text) else { throw Failure("has a default that is no 64-bit whole number") }
      return .integer(integer)
    case .boolean:
      switch text {
      case "0", "false": return .integer(0)
      case "1", "true": return .integer(1)
      default: throw Failure("has a default that is none of 0, 1, false, true")
      }
    case .real:
      guard let real = Double(text), real.isFinite else { throw Failure("has a default that is no finite number") }
      return .real(real)
    case .blob:
      guard let bytes = blob(text) else {
        throw Failure("has a default that is no blob; write x'' with two hexadecimal digits for each byte")
      }
      return .blob(bytes)
    }
  }

  private static func unquoted(_ text: String) throws(Failure) -> String {
    let scalars = Array(text.unicodeScalars)
    guard scalars.first == "'" else { return text }
    var out = String.UnicodeScalarView()
    var index = 1
    while index < scalars.count {
      if scalars[index] == "'" {
        if index + 1 < scalars.count, scalars[index + 1] == "'" {
          index += 1
        } else if index == scalars.count - 1 {
          return String(out)
        } else {
          throw Failure("has a default that goes on after its closing quote; a quote inside is doubled: 'it''s'")
        }
      }
      out.append(scalars[index])
      index += 1
    }
    throw Failure("has a default whose quote is not closed")
  }

  private static func blob(_ text: String) -> [UInt8]? {
    let bytes = Array(text.utf8)
    guard bytes.count >= 3, bytes[0] | 0x20 == UInt8(ascii: "x"), bytes[1] == UInt8(ascii: "'"),
      bytes.last == UInt8(ascii: "'"), bytes.count.isMultiple(of: 2) == false
    else { return nil }
    var out: [UInt8] = []
    for place in stride(from: 2, to: bytes.count - 1, by: 2) {
      guard let high = digit(bytes[place]), let low = digit(bytes[place + 1]) else { return nil }
      out.append(high << 4 | low)
    }
    return out
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    Character(Unicode.Scalar(byte)).hexDigitValue.map(UInt8.init)
  }
}

private func trimmed(_ text: some StringProtocol) -> String {
  var scalars = text.unicodeScalars[...]
  while scalars.first == " " || scalars.first == "\t" { scalars.removeFirst() }
  while scalars.last == " " || scalars.last == "\t" { scalars.removeLast() }
  return String(String.UnicodeScalarView(scalars))
}
