import SalvorModel
import SalvorStorage

/// A text as an SQL literal: `it's` becomes `'it''s'`. For names in PRAGMAs and for DDL; values are bound, never quoted.
public func quotedText(_ text: String) -> String {
  var bytes: [UInt8] = [0x27]
  bytes.reserveCapacity(text.utf8.count + 2)
  for byte in text.utf8 {
    bytes.append(byte)
    if byte == 0x27 { bytes.append(byte) }
  }
  bytes.append(0x27)
  return String(decoding: bytes, as: UTF8.self)
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
