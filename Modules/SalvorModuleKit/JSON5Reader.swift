import SalvorModel

/// Reads JSON5 (json5.org, version 1.0.0) into a `ConfigurationValue` that knows the line of everything in it.
///
/// Why not Foundation's decoder, which takes JSON5 too: it drops duplicate keys silently, gives no position of what is
/// wrong, and reads numbers as doubles. Here duplicates are kept (the `OptionReader` reports them), the first thing that
/// is not JSON5 is reported with line, column and what was expected, and whole numbers are exact 64-bit integers.
///
/// Decisions where JSON5 leaves room: a whole number outside of Int64, a number too large for a double, and half of a
/// surrogate pair are refused instead of changed. `Infinity` and `NaN` are numbers, as JSON5 says; whoever reads a
/// setting says whether it may be one.
public struct JSON5Reader {
  /// The size of one file.
  public static let fileBytesMax = JSON5Scanner.fileBytesMax

  /// - Parameters:
  ///   - bytes: UTF-8, with or without a byte order mark.
  ///   - file: as named in diagnostics.
  ///   - depthMax: nesting of objects and lists.
  /// - Throws: the first thing that is not JSON5. No value of the file is in its message.
  public static func read(
    _ bytes: [UInt8], file: String, depthMax: Int = Limits().depthMax
  ) throws(Diagnostic) -> ConfigurationValue {
    var scanner = try JSON5Scanner(bytes, file: file)
    var reader = JSON5Reader(depthMax: depthMax)
    try scanner.skipSpace()
    guard scanner.current != nil else {
      throw scanner.unexpected("an object { … }", at: scanner.position)
    }
    let value = try reader.value(&scanner, depth: 0)
    try scanner.skipSpace()
    guard scanner.current == nil else { throw scanner.unexpected("the end of the file", at: scanner.position) }
    return value
  }

  private let depthMax: Int

  private mutating func value(_ scanner: inout JSON5Scanner, depth: Int) throws(Diagnostic) -> ConfigurationValue {
    let start = scanner.position
    switch scanner.current {
    case "{", "[":
      guard depth < depthMax else {
        throw scanner.diagnostic("is nested deeper than \(depthMax) levels", at: start)
      }
      let content: ConfigurationValue.Content =
        scanner.current == "{" ? try object(&scanner, depth: depth + 1) : try array(&scanner, depth: depth + 1)
      return ConfigurationValue(content, line: start.line)
    case "\"", "'":
      return ConfigurationValue(.string(try scanner.string()), line: start.line)
    case .some(let c) where JSON5Scanner.startsNumber(c):
      return ConfigurationValue(try number(&scanner), line: start.line)
    case .some(let c) where JSON5Scanner.startsIdentifier(c) || c == "\\":
      return ConfigurationValue(try word(&scanner), line: start.line)
    default:
      throw scanner.unexpected("a value", at: start)
    }
  }

  private mutating func object(
    _ scanner: inout JSON5Scanner, depth: Int
  ) throws(Diagnostic) -> ConfigurationValue.Content {
    let opened = scanner.position
    scanner.advance()
    var members: [ConfigurationValue.Member] = []
    while true {
      try scanner.skipSpace()
      if scanner.current == "}" {
        scanner.advance()
        return .object(members)
      }
      let keyPosition = scanner.position
      let key: String
      switch scanner.current {
      case "\"", "'": key = try scanner.string()
      case .some(let c) where JSON5Scanner.startsIdentifier(c) || c == "\\": key = try scanner.identifier()
      case nil: throw scanner.diagnostic("the { of line \(opened.line) is never closed", at: keyPosition)
      default: throw scanner.unexpected("a key or }", at: keyPosition)
      }
      try scanner.skipSpace()
      guard scanner.current == ":" else { throw scanner.unexpected("a : after the key", at: scanner.position) }
      scanner.advance()
      try scanner.skipSpace()
      members.append(.init(key: key, keyLine: keyPosition.line, value: try value(&scanner, depth: depth)))
      try separator(&scanner, close: "}", opened: opened)
    }
  }

  private mutating func array(
    _ scanner: inout JSON5Scanner, depth: Int
  ) throws(Diagnostic) -> ConfigurationValue.Content {
    let opened = scanner.position
    scanner.advance()
    var items: [ConfigurationValue] = []
    while true {
      try scanner.skipSpace()
      if scanner.current == "]" {
        scanner.advance()
        return .array(items)
      }
      if scanner.current == nil {
        throw scanner.diagnostic("the [ of line \(opened.line) is never closed", at: scanner.position)
      }
      items.append(try value(&scanner, depth: depth))
      try separator(&scanner, close: "]", opened: opened)
    }
  }

  /// After a member: a comma, or the end, which is left standing.
  private func separator(
    _ scanner: inout JSON5Scanner, close: Unicode.Scalar, opened: JSON5Scanner.Position
  ) throws(Diagnostic) {
    try scanner.skipSpace()
    switch scanner.current {
    case ",": scanner.advance()
    case close: break
    case nil:
      let open = close == "}" ? "{" : "["
      throw scanner.diagnostic("the \(open) of line \(opened.line) is never closed", at: scanner.position)
    default: throw scanner.unexpected("a comma or \(close)", at: scanner.position)
    }
  }

  private func word(_ scanner: inout JSON5Scanner) throws(Diagnostic) -> ConfigurationValue.Content {
    let start = scanner.position
    switch try scanner.identifier() {
    case "null": return .null
    case "true": return .bool(true)
    case "false": return .bool(false)
    case "Infinity": return .number(.infinity)
    case "NaN": return .number(.nan)
    default:
      throw scanner.diagnostic(
        "expected a value, found a word without quotes; a text stands in \"quotes\", the words are true, false and null",
        at: start)
    }
  }

  private func number(_ scanner: inout JSON5Scanner) throws(Diagnostic) -> ConfigurationValue.Content {
    let start = scanner.position
    var sign = ""
    if scanner.current == "+" || scanner.current == "-" {
      if scanner.current == "-" { sign = "-" }
      scanner.advance()
    }
    if let c = scanner.current, JSON5Scanner.startsIdentifier(c) {
      switch try scanner.identifier() {
      case "Infinity": return .number(sign.isEmpty ? .infinity : -.infinity)
      case "NaN": return .number(.nan)
      default: throw scanner.diagnostic("expected a number after the sign", at: start)
      }
    }
    if scanner.current == "0", scanner.next == "x" || scanner.next == "X" {
      scanner.advance()
      scanner.advance()
      let digits = scanner.take { $0.properties.isASCIIHexDigit }
      guard !digits.isEmpty else { throw scanner.unexpected("hexadecimal digits after 0x", at: scanner.position) }
      try endOfNumber(&scanner)
      return try whole(sign + digits, radix: 16, scanner, start)
    }
    let integer = scanner.take(JSON5Scanner.isDigit)
    if integer.count > 1, integer.first == "0" {
      throw scanner.diagnostic("a number does not begin with 0, but for 0 itself, 0.5 and 0x1F", at: start)
    }
    var text = sign + (integer.isEmpty ? "0" : integer)
    var isWhole = true
    var fraction = ""
    if scanner.current == "." {
      scanner.advance()
      isWhole = false
      fraction = scanner.take(JSON5Scanner.isDigit)
      if !fraction.isEmpty { text += "." + fraction }
    }
    guard !integer.isEmpty || !fraction.isEmpty else { throw scanner.unexpected("digits", at: scanner.position) }
    if scanner.current == "e" || scanner.current == "E" {
      scanner.advance()
      isWhole = false
      text += "e"
      if let c = scanner.current, c == "+" || c == "-" {
        text.unicodeScalars.append(c)
        scanner.advance()
      }
      let exponent = scanner.take(JSON5Scanner.isDigit)
      guard !exponent.isEmpty else { throw scanner.unexpected("digits of the exponent", at: scanner.position) }
      text += exponent
    }
    try endOfNumber(&scanner)
    if isWhole { return try whole(text, radix: 10, scanner, start) }
    guard let number = Double(text), number.isFinite else {
      throw scanner.diagnostic("is a number too large for 64 bits", at: start)
    }
    return .number(number)
  }

  private func whole(
    _ text: String, radix: Int, _ scanner: JSON5Scanner, _ start: JSON5Scanner.Position
  ) throws(Diagnostic) -> ConfigurationValue.Content {
    guard let integer = Int64(text, radix: radix) else {
      throw scanner.diagnostic(
        "is a whole number outside of 64 bits (\(Int64.min) to \(Int64.max))", at: start)
    }
    return .integer(integer)
  }

  private func endOfNumber(_ scanner: inout JSON5Scanner) throws(Diagnostic) {
    if let c = scanner.current, JSON5Scanner.startsIdentifier(c) || JSON5Scanner.isDigit(c) || c == "." || c == "\\" {
      throw scanner.unexpected("the end of the number", at: scanner.position)
    }
  }
}
