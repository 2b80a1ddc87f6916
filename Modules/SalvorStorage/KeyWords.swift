import SalvorModel

extension Table {
  /// A row's key from what a person writes, a text for each column: as the lists of requests and conflicts show it, too.
  ///
  /// A blob is `x'00ff'`, or its digits alone; an infinite real `inf` or `-inf`. `\u{0}` in a text is the character U+0000, which no
  /// command line takes, and so with every other code; `\u{5C}` is a backslash where the key really has `\u{`.
  public func key(ofTexts texts: [String]) throws(SalvorError) -> Key {
    let columns = primaryKey.compactMap { name in self.columns.first { $0.name == name } }
    func refuse(_ what: String) -> SalvorError {
      let wanted = columns.map { "\($0.name) (\($0.type.rawValue))" }.joined(separator: ", ")
      let isBlob = columns.contains { $0.type == .blob }
      return SalvorError(
        .usage,
        "\(what) The key of \(name) is \(wanted), a word for each\(isBlob ? "; a blob is written x'00ff', or 00ff" : "")."
      )
    }
    guard texts.count == columns.count else {
      throw refuse("\(texts.count == 1 ? "One value was" : "\(texts.count) values were") given.")
    }
    var key: Key = []
    for (column, text) in zip(columns, texts) {
      guard let value = column.type.keyValue(ofText: text) else { throw refuse("\(column.name) cannot be that.") }
      key.append(value)
    }
    return key
  }
}

extension ColumnType {
  fileprivate func keyValue(ofText text: String) -> Value? {
    switch self {
    case .text, .timestamp, .json: return .text(withoutCodes(text))
    case .real: return Double(text).flatMap { $0.isNaN ? nil : .real($0) }
    case .blob where text.hasSuffix("'") && ["x'", "X'"].contains(text.prefix(2)):
      return value(ofText: String(text.dropFirst(2).dropLast()))
    default: return value(ofText: text)
    }
  }
}

/// With the characters that `\u{…}` stands for.
private func withoutCodes(_ text: String) -> String {
  var out = ""
  var rest = text[...]
  while let start = rest.firstRange(of: "\\u{") {
    out += rest[..<start.lowerBound]
    let digits = rest[start.upperBound...].prefix { $0.isHexDigit }
    let isClosed = rest[digits.endIndex...].hasPrefix("}")
    if isClosed, let code = UInt32(digits, radix: 16), let scalar = Unicode.Scalar(code) {
      out.unicodeScalars.append(scalar)
      rest = rest[digits.endIndex...].dropFirst()
    } else {
      out += rest[start]
      rest = rest[start.upperBound...]
    }
  }
  return out + rest
}
