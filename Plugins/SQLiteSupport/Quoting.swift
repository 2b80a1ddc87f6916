import SalvorModel

/// An identifier as SQL takes it, whatever it holds: `a"b` becomes `"a""b"`.
public func quoted(_ identifier: String) -> String {
  "\"" + doubling(identifier, UInt8(ascii: "\"")) + "\""
}

/// A text as an SQL literal: `it's` becomes `'it''s'`. For names in PRAGMAs and for DDL; values are bound, never quoted.
public func quotedText(_ text: String) -> String {
  "'" + doubling(text, UInt8(ascii: "'")) + "'"
}

/// A value as an SQL literal, for a DEFAULT clause. A text that a literal cannot hold (NUL, invalid UTF-8) becomes a
/// cast of its bytes, which `ALTER TABLE ADD COLUMN` does not take.
public func literal(_ value: Value) -> String {
  switch value {
  case .null: return "NULL"
  case .integer(let integer): return String(integer)
  case .real(let real):
    if real == .infinity { return "9e999" }
    if real == -.infinity { return "-9e999" }
    return real.isNaN ? "NULL" : "\(real)"
  case .text(let bytes):
    if let text = String(validating: bytes, as: UTF8.self), !bytes.contains(0) { return quotedText(text) }
    return "(CAST(x'\(hexadecimal(bytes))' AS TEXT))"
  case .blob(let bytes): return "x'\(hexadecimal(bytes))'"
  }
}

/// `names`, quoted and joined by `, `.
public func quotedList(_ names: some Sequence<String>) -> String {
  names.map(quoted).joined(separator: ", ")
}

private func doubling(_ text: String, _ mark: UInt8) -> String {
  var bytes: [UInt8] = []
  bytes.reserveCapacity(text.utf8.count + 2)
  for byte in text.utf8 {
    bytes.append(byte)
    if byte == mark { bytes.append(mark) }
  }
  return String(decoding: bytes, as: UTF8.self)
}
