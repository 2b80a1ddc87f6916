import SalvorModel

/// The lexical half of the JSON5 reader: characters, lines and columns, spaces, comments, strings and names.
struct JSON5Scanner {
  struct Position {
    /// 1-based.
    var line: Int
    /// 1-based, in characters (Unicode scalars).
    var column: Int
  }

  static let fileBytesMax = 8 << 20

  private let scalars: [Unicode.Scalar]
  private let file: String
  private var index = 0
  private var line = 1
  private var lineStart = 0

  init(_ bytes: [UInt8], file: String) throws(Diagnostic) {
    self.file = file
    guard bytes.count <= Self.fileBytesMax else {
      throw Diagnostic(
        file: file, line: 0, path: "",
        message: "is larger than \(Self.fileBytesMax) bytes, the most that a configuration may have")
    }
    var scalars: [Unicode.Scalar] = []
    scalars.reserveCapacity(bytes.count)
    var decoder = UTF8()
    var iterator = bytes.makeIterator()
    decoding: while true {
      switch decoder.decode(&iterator) {
      case .scalarValue(let scalar): scalars.append(scalar)
      case .emptyInput: break decoding
      case .error:
        let newlines = scalars.count { $0 == "\n" }
        throw Diagnostic(
          file: file, line: newlines + 1, path: "", message: "is not valid UTF-8 here; save the file as UTF-8")
      }
    }
    self.scalars = scalars
    if scalars.first == "\u{FEFF}" {
      index = 1
      lineStart = 1
    }
  }

  var position: Position { Position(line: line, column: index - lineStart + 1) }
  var current: Unicode.Scalar? { index < scalars.count ? scalars[index] : nil }
  var next: Unicode.Scalar? { index + 1 < scalars.count ? scalars[index + 1] : nil }

  /// Goes on by one character; CR LF counts as one line end.
  mutating func advance() {
    let scalar = scalars[index]
    index += 1
    if Self.isLineEnd(scalar), !(scalar == "\r" && current == "\n") {
      line += 1
      lineStart = index
    }
  }

  mutating func take(_ isWanted: (Unicode.Scalar) -> Bool) -> String {
    var text = String.UnicodeScalarView()
    while let c = current, isWanted(c) {
      text.append(c)
      advance()
    }
    return String(text)
  }

  func diagnostic(_ message: String, at position: Position) -> Diagnostic {
    Diagnostic(file: file, line: position.line, column: position.column, path: "", message: message)
  }

  /// What was expected, and what stands at the current place. One character of the file is shown, no more: what
  /// follows may be a secret.
  func unexpected(_ expected: String, at position: Position) -> Diagnostic {
    let found: String
    switch current {
    case nil: found = "the end of the file"
    case .some(let c) where Self.isLineEnd(c): found = "the end of the line"
    case .some(let c) where c.value < 0x20 || c.value == 0x7F:
      found = "the control character U+" + String(c.value, radix: 16, uppercase: true)
    case .some(let c): found = "\u{201C}\(c)\u{201D}"
    }
    return diagnostic("expected \(expected), found \(found)", at: position)
  }

  // MARK: Spaces and comments

  mutating func skipSpace() throws(Diagnostic) {
    while let c = current {
      if Self.isSpace(c) {
        advance()
      } else if c == "/" {
        try skipComment()
      } else {
        return
      }
    }
  }

  private mutating func skipComment() throws(Diagnostic) {
    let start = position
    switch next {
    case "/":
      while let c = current, !Self.isLineEnd(c) { advance() }
    case "*":
      advance()
      advance()
      while current != nil, !(current == "*" && next == "/") { advance() }
      guard current != nil else { throw diagnostic("this comment is never closed with */", at: start) }
      advance()
      advance()
    default: throw diagnostic("expected a comment, // … or /* … */", at: start)
    }
  }

  // MARK: Names

  /// An IdentifierName of ECMAScript 5.1, reserved words included.
  mutating func identifier() throws(Diagnostic) -> String {
    var text = String.UnicodeScalarView()
    while let c = current {
      let start = position
      if c == "\\" {
        advance()
        guard current == "u" else { throw unexpected("u and four hexadecimal digits after \\", at: start) }
        advance()
        let unit = try hexadecimal(4, start)
        guard let scalar = Unicode.Scalar(unit), text.isEmpty ? Self.startsIdentifier(scalar) : Self.isName(scalar)
        else { throw diagnostic("this escape cannot stand in a key without quotes", at: start) }
        text.append(scalar)
      } else if text.isEmpty ? Self.startsIdentifier(c) : Self.isName(c) {
        text.append(c)
        advance()
      } else {
        break
      }
    }
    return String(text)
  }

  // MARK: Strings

  mutating func string() throws(Diagnostic) -> String {
    let start = position
    let quote = current
    advance()
    var text = String.UnicodeScalarView()
    while let c = current {
      switch c {
      case quote:
        advance()
        return String(text)
      case "\n", "\r":
        throw diagnostic(
          "this text is not closed on its line; end it with a quote, or the line with \\ to go on", at: start)
      case "\\": try escape(into: &text)
      default:
        text.append(c)
        advance()
      }
    }
    throw diagnostic("this text is never closed with a quote", at: start)
  }

  private mutating func escape(into text: inout String.UnicodeScalarView) throws(Diagnostic) {
    let start = position
    advance()
    guard let c = current else { throw unexpected("a character after \\", at: position) }
    if Self.isLineEnd(c) {
      advance()
      if c == "\r", current == "\n" { advance() }
      return
    }
    if Self.isDigit(c), c != "0" || next.map(Self.isDigit) == true {
      throw diagnostic("JSON5 has no escape \\1 to \\9 and no octal ones; write \\u and four digits", at: start)
    }
    advance()
    switch c {
    case "0": text.append("\0")
    case "b": text.append("\u{8}")
    case "f": text.append("\u{C}")
    case "n": text.append("\n")
    case "r": text.append("\r")
    case "t": text.append("\t")
    case "v": text.append("\u{B}")
    case "x": text.append(Unicode.Scalar(UInt8(truncatingIfNeeded: try hexadecimal(2, start))))
    case "u": text.append(try unicodeEscape(start))
    default: text.append(c)
    }
  }

  /// After `\u`; joins a surrogate pair.
  private mutating func unicodeEscape(_ start: Position) throws(Diagnostic) -> Unicode.Scalar {
    let unit = try hexadecimal(4, start)
    if let scalar = Unicode.Scalar(unit) { return scalar }
    if unit < 0xDC00, current == "\\", next == "u" {
      advance()
      advance()
      let low = try hexadecimal(4, start)
      if (0xDC00...0xDFFF).contains(low),
        let scalar = Unicode.Scalar(0x10000 + (unit - 0xD800) << 10 + (low - 0xDC00))
      {
        return scalar
      }
    }
    throw diagnostic("this \\u escape is half of a surrogate pair; give both halves", at: start)
  }

  private mutating func hexadecimal(_ count: Int, _ start: Position) throws(Diagnostic) -> UInt32 {
    var value: UInt32 = 0
    for _ in 0..<count {
      guard let c = current, c.properties.isASCIIHexDigit, let digit = Character(c).hexDigitValue else {
        throw diagnostic("expected \(count) hexadecimal digits in this escape", at: start)
      }
      value = value << 4 + UInt32(digit)
      advance()
    }
    return value
  }

  // MARK: Classes of characters

  static func isLineEnd(_ c: Unicode.Scalar) -> Bool {
    c == "\n" || c == "\r" || c == "\u{2028}" || c == "\u{2029}"
  }

  static func isSpace(_ c: Unicode.Scalar) -> Bool {
    switch c {
    case " ", "\t", "\n", "\r", "\u{B}", "\u{C}", "\u{A0}", "\u{FEFF}", "\u{2028}", "\u{2029}": true
    default: c.value > 0x7F && c.properties.generalCategory == .spaceSeparator
    }
  }

  static func isDigit(_ c: Unicode.Scalar) -> Bool { ("0"..."9").contains(c) }

  static func startsNumber(_ c: Unicode.Scalar) -> Bool { isDigit(c) || c == "+" || c == "-" || c == "." }

  static func startsIdentifier(_ c: Unicode.Scalar) -> Bool {
    if c.isASCII { return ("a"..."z").contains(c) || ("A"..."Z").contains(c) || c == "$" || c == "_" }
    switch c.properties.generalCategory {
    case .uppercaseLetter, .lowercaseLetter, .titlecaseLetter, .modifierLetter, .otherLetter, .letterNumber: return true
    default: return false
    }
  }

  static func isName(_ c: Unicode.Scalar) -> Bool {
    if startsIdentifier(c) || isDigit(c) || c == "\u{200C}" || c == "\u{200D}" { return true }
    switch c.properties.generalCategory {
    case .nonspacingMark, .spacingMark, .decimalNumber, .connectorPunctuation: return true
    default: return false
    }
  }
}
