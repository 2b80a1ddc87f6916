import SalvorModel

/// Reads JSON text in place: the payload of rows, bound straight to a statement without a tree or a copy.
///
/// The buffer must outlive the reader. Everything wrong throws `malformed` with the byte's offset; nesting is limited
/// by the shape that the caller asks for, and by `depthMax` in `skipValue`.
public struct PayloadReader: ~Copyable {
  /// One value of a row. Text and blob buffers are valid until the next read: they point into the payload, or into the
  /// reader's scratch space where escapes or base64 had to be undone.
  public enum Item {
    case null
    case integer(Int64)
    case real(Double)
    case text(UnsafeBufferPointer<UInt8>)
    case blob(UnsafeBufferPointer<UInt8>)

    /// The value, with a copy of its bytes: the copy stays valid after the next read.
    public var value: Value {
      switch self {
      case .null: .null
      case .integer(let x): .integer(x)
      case .real(let x): .real(x)
      case .text(let x): .text(Array(x))
      case .blob(let x): .blob(Array(x))
      }
    }
  }

  private let base: UnsafePointer<UInt8>
  private let end: Int
  /// The number of bytes that were read so far.
  public private(set) var offset = 0
  private var scratch: UnsafeMutablePointer<UInt8>
  private var scratchCapacity: Int
  private let blobs: (any BlobResolver)?
  /// What the last item stood for, where it was written as a reference; nil: it stood in the text.
  public private(set) var lastReference: BlobReference?

  /// - Parameter blobs: gives the content of what is written as a reference, which then is a blob like any other; nil: a
  ///   reference is malformed.
  public init(_ buffer: UnsafeBufferPointer<UInt8>, blobs: (any BlobResolver)? = nil) {
    self.blobs = blobs
    scratchCapacity = 256
    scratch = .allocate(capacity: scratchCapacity)
    base = buffer.baseAddress ?? UnsafePointer(scratch)
    end = buffer.count
  }

  deinit { scratch.deallocate() }

  /// The error `malformed`, which names the current offset. `what` says what is wrong there.
  public func malformed(_ what: String) -> SalvorError {
    SalvorError(.malformed, "The payload is malformed at byte \(offset): \(what). Send it again as the protocol says.")
  }

  private mutating func skipSpace() {
    while offset < end, base[offset] == 0x20 || base[offset] == 0x0A || base[offset] == 0x0D || base[offset] == 0x09 {
      offset += 1
    }
  }

  /// Whether nothing but white space follows. The white space is skipped.
  public mutating func atEnd() -> Bool {
    skipSpace()
    return offset >= end
  }

  private mutating func peek() throws(SalvorError) -> UInt8 {
    skipSpace()
    guard offset < end else { throw malformed("it ends here") }
    return base[offset]
  }

  /// The first byte of what comes next.
  public mutating func peekByte() throws(SalvorError) -> UInt8 { try peek() }

  /// Skips white space and consumes `byte`. Throws `malformed` where another byte, or nothing, is next.
  public mutating func expect(_ byte: UInt8) throws(SalvorError) {
    guard try peek() == byte else { throw malformed("expected \(Character(UnicodeScalar(byte)))") }
    offset += 1
  }

  /// Consumes `byte` where it is next.
  public mutating func take(_ byte: UInt8) throws(SalvorError) -> Bool {
    guard try peek() == byte else { return false }
    offset += 1
    return true
  }

  /// Consumes the opening bracket of an array. Throws `malformed` where something else is next.
  public mutating func beginArray() throws(SalvorError) { try expect(0x5B) }
  /// Consumes the opening brace of an object. Throws `malformed` where something else is next.
  public mutating func beginObject() throws(SalvorError) { try expect(0x7B) }

  /// Whether another element follows: call it before each one. Consumes the comma, or the closing bracket.
  public mutating func nextElement(_ isFirst: inout Bool) throws(SalvorError) -> Bool {
    if try take(0x5D) { return false }
    if !isFirst {
      try expect(0x2C)
      if try peek() == 0x5D { throw malformed("a value must follow the comma") }
    }
    isFirst = false
    return true
  }

  /// The next member's key, its colon consumed; nil after the last. Keys are short; a key is copied.
  public mutating func nextKey(_ isFirst: inout Bool) throws(SalvorError) -> String? {
    if try take(0x7D) { return nil }
    if !isFirst { try expect(0x2C) }
    isFirst = false
    let key = String(decoding: try string(), as: UTF8.self)
    try expect(0x3A)
    return key
  }

  /// A row's value (see `PayloadWriter`).
  public mutating func item() throws(SalvorError) -> Item {
    lastReference = nil
    switch try peek() {
    case 0x22: return .text(try string())
    case 0x6E:
      try literal("null")
      return .null
    case 0x7B: return try wrapped()
    case 0x2D, 0x30...0x39: return try number()
    default: throw malformed("expected a value of a row")
    }
  }

  /// A whole number.
  public mutating func integer() throws(SalvorError) -> Int64 {
    if case .integer(let value) = try item() { return value }
    throw malformed("expected a whole number")
  }

  /// A string, copied.
  public mutating func text() throws(SalvorError) -> String {
    String(decoding: try string(), as: UTF8.self)
  }

  /// Consumes `true` or `false`. Throws `malformed` where something else is next.
  public mutating func boolean() throws(SalvorError) -> Bool {
    if try peek() == 0x74 {
      try literal("true")
      return true
    }
    try literal("false")
    return false
  }

  /// Consumes `null` where it is next; false where something else is. Throws `malformed` at the end of the
  /// payload, and where a literal that is not `null` begins with `n`.
  public mutating func takeNull() throws(SalvorError) -> Bool {
    guard try peek() == 0x6E else { return false }
    try literal("null")
    return true
  }

  private mutating func literal(_ text: StaticString) throws(SalvorError) {
    let count = text.utf8CodeUnitCount
    guard offset + count <= end else { throw malformed("expected \(text)") }
    for index in 0..<count where base[offset + index] != text.utf8Start[index] { throw malformed("expected \(text)") }
    offset += count
  }

  private mutating func number() throws(SalvorError) -> Item {
    let start = offset
    let negative = base[offset] == 0x2D
    if negative { offset += 1 }
    var magnitude: UInt64 = 0
    var digits = 0
    var exact = true
    while offset < end, base[offset] >= 0x30, base[offset] <= 0x39 {
      let (product, overflow) = magnitude.multipliedReportingOverflow(by: 10)
      let (sum, carry) = product.addingReportingOverflow(UInt64(base[offset] - 0x30))
      if overflow || carry { exact = false }
      magnitude = sum
      digits += 1
      offset += 1
    }
    guard digits > 0, digits == 1 || base[start + (negative ? 1 : 0)] != 0x30 else { throw malformed("not a number") }
    if offset < end, base[offset] == 0x2E || base[offset] == 0x65 || base[offset] == 0x45 {
      return .real(try real(from: start))
    }
    guard exact, magnitude <= (negative ? 1 << 63 : (1 << 63) - 1) else {
      throw malformed("the integer needs more than 64 bits")
    }
    return .integer(negative ? Int64(truncatingIfNeeded: 0 &- magnitude) : Int64(magnitude))
  }

  private mutating func real(from start: Int) throws(SalvorError) -> Double {
    func digit(_ offset: Int) -> Bool { offset < end && base[offset] >= 0x30 && base[offset] <= 0x39 }
    if base[offset] == 0x2E {
      offset += 1
      guard digit(offset) else { throw malformed("a digit must follow the point") }
      while digit(offset) { offset += 1 }
    }
    if offset < end, base[offset] == 0x65 || base[offset] == 0x45 {
      offset += 1
      if offset < end, base[offset] == 0x2B || base[offset] == 0x2D { offset += 1 }
      guard digit(offset) else { throw malformed("a digit must follow the exponent") }
      while digit(offset) { offset += 1 }
    }
    // The standard library's own conversion: exact, and independent of the locale.
    let text = String(decoding: UnsafeBufferPointer(start: base + start, count: offset - start), as: UTF8.self)
    guard let value = Double(text), value.isFinite else { throw malformed("the number is out of range") }
    return value
  }

  /// A string's bytes, checked to be UTF-8; valid until the next read.
  public mutating func string() throws(SalvorError) -> UnsafeBufferPointer<UInt8> {
    try expect(0x22)
    let start = offset
    while offset < end {
      let byte = base[offset]
      if byte == 0x22 {
        let text = UnsafeBufferPointer(start: base + start, count: offset - start)
        offset += 1
        guard isValidUTF8(text) else { throw malformed("the string is not UTF-8") }
        return text
      }
      if byte == 0x5C { return try escapedString(from: start) }
      if byte < 0x20 { throw malformed("a control character stands in a string") }
      offset += 1
    }
    throw malformed("the string does not end")
  }

  private mutating func escapedString(from start: Int) throws(SalvorError) -> UnsafeBufferPointer<UInt8> {
    var length = offset - start
    reserve(length + 16)
    scratch.update(from: base + start, count: length)
    while offset < end {
      let byte = base[offset]
      offset += 1
      reserve(length + 4)
      switch byte {
      case 0x22:
        let text = UnsafeBufferPointer(start: UnsafePointer(scratch), count: length)
        guard isValidUTF8(text) else { throw malformed("the string is not UTF-8") }
        return text
      case 0x5C: length = try unescape(at: length)
      case 0..<0x20: throw malformed("a control character stands in a string")
      default:
        scratch[length] = byte
        length += 1
      }
    }
    throw malformed("the string does not end")
  }

  private mutating func unescape(at length: Int) throws(SalvorError) -> Int {
    guard offset < end else { throw malformed("the string does not end") }
    let byte = base[offset]
    offset += 1
    switch byte {
    case 0x22, 0x5C, 0x2F: scratch[length] = byte
    case 0x62: scratch[length] = 0x08
    case 0x66: scratch[length] = 0x0C
    case 0x6E: scratch[length] = 0x0A
    case 0x72: scratch[length] = 0x0D
    case 0x74: scratch[length] = 0x09
    case 0x75:
      var code = try hexadecimalCode()
      if code & 0xFC00 == 0xD800 {
        guard offset + 1 < end, base[offset] == 0x5C, base[offset + 1] == 0x75 else {
          throw malformed("half a surrogate pair")
        }
        offset += 2
        let low = try hexadecimalCode()
        guard low & 0xFC00 == 0xDC00 else { throw malformed("half a surrogate pair") }
        code = 0x10000 + (code - 0xD800) << 10 + (low - 0xDC00)
      }
      guard let scalar = UnicodeScalar(code) else { throw malformed("half a surrogate pair") }
      var length = length
      for unit in UTF8.encode(scalar)! {
        scratch[length] = unit
        length += 1
      }
      return length
    default: throw malformed("an unknown escape")
    }
    return length + 1
  }

  private mutating func hexadecimalCode() throws(SalvorError) -> UInt32 {
    guard offset + 4 <= end else { throw malformed("the string does not end") }
    var code: UInt32 = 0
    for _ in 0..<4 {
      guard let digit = Character(UnicodeScalar(base[offset])).hexDigitValue else {
        throw malformed("not a hexadecimal digit")
      }
      code = code << 4 | UInt32(digit)
      offset += 1
    }
    return code
  }

  private mutating func wrapped() throws(SalvorError) -> Item {
    offset += 1
    let kind = try text()
    try expect(0x3A)
    let content = try string()
    let item: Item
    switch kind {
    case "integer":
      guard let value = Int64(String(decoding: content, as: UTF8.self)) else { throw malformed("not a 64-bit integer") }
      item = .integer(value)
    case "real":
      switch String(decoding: content, as: UTF8.self) {
      case "inf": item = .real(.infinity)
      case "-inf": item = .real(-.infinity)
      default: throw malformed("not an infinity")
      }
    case "text": item = .text(try base64(content))
    case "blob": item = .blob(try base64(content))
    case "ref": item = .blob(try referred(by: content))
    default: throw malformed("an unknown kind of value")
    }
    try expect(0x7D)
    return item
  }

  /// The content of a blob that the payload names by its hash.
  private mutating func referred(
    by digits: UnsafeBufferPointer<UInt8>
  ) throws(SalvorError) -> UnsafeBufferPointer<UInt8> {
    guard let hash = BlobHash(String(decoding: digits, as: UTF8.self)) else { throw malformed("not a blob's hash") }
    try expect(0x2C)
    guard try text() == "size" else { throw malformed("expected \"size\"") }
    try expect(0x3A)
    _ = try peek()
    guard case .integer(let size) = try number(), size >= 0 else { throw malformed("not a blob's size") }
    guard let blobs else { throw malformed("a blob cannot be referred to here") }
    let reference = BlobReference(hash: hash, size: size)
    var copy = UnsafeMutableBufferPointer<UInt8>(start: nil, count: 0)
    try blobs.withContent(of: reference) { content in
      copy = .allocate(capacity: max(256, content.count))
      _ = copy.initialize(from: content)
      copy = UnsafeMutableBufferPointer(start: copy.baseAddress, count: content.count)
    }
    guard let start = copy.baseAddress else { throw malformed("a blob has no content") }
    scratch.deallocate()
    scratch = start
    scratchCapacity = max(256, copy.count)
    lastReference = reference
    return UnsafeBufferPointer(copy)
  }

  private mutating func base64(_ text: UnsafeBufferPointer<UInt8>) throws(SalvorError) -> UnsafeBufferPointer<UInt8> {
    guard text.count % 4 == 0 else { throw malformed("not base64") }
    // The text may stand in the scratch space itself; writing never overtakes reading there.
    let inScratch = text.baseAddress == UnsafePointer(scratch)
    if !inScratch { reserve(text.count) }
    var length = 0
    var index = 0
    while index < text.count {
      var group: UInt32 = 0
      var padding = 0
      for place in 0..<4 {
        let byte = text[index + place]
        if byte == 0x3D, index + 4 == text.count, place >= 2 {
          padding += 1
          group <<= 6
        } else {
          guard padding == 0, let bits = base64Bits(byte) else { throw malformed("not base64") }
          group = group << 6 | bits
        }
      }
      scratch[length] = UInt8(truncatingIfNeeded: group >> 16)
      if padding < 2 { scratch[length + 1] = UInt8(truncatingIfNeeded: group >> 8) }
      if padding < 1 { scratch[length + 2] = UInt8(truncatingIfNeeded: group) }
      length += 3 - padding
      index += 4
    }
    return UnsafeBufferPointer(start: UnsafePointer(scratch), count: length)
  }

  private func base64Bits(_ byte: UInt8) -> UInt32? {
    switch byte {
    case 0x41...0x5A: UInt32(byte - 0x41)
    case 0x61...0x7A: UInt32(byte - 0x61) + 26
    case 0x30...0x39: UInt32(byte - 0x30) + 52
    case 0x2B: 62
    case 0x2F: 63
    default: nil
    }
  }

  private mutating func reserve(_ capacity: Int) {
    guard capacity > scratchCapacity else { return }
    let larger = max(capacity, scratchCapacity * 2)
    let new = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
    new.update(from: scratch, count: scratchCapacity)
    scratch.deallocate()
    scratch = new
    scratchCapacity = larger
  }

  /// Passes over any value.
  public mutating func skipValue(depth: Int = Limits().depthMax) throws(SalvorError) {
    guard depth > 0 else { throw malformed("nested too deeply") }
    switch try peek() {
    case 0x22: _ = try string()
    case 0x7B:
      offset += 1
      var isFirst = true
      while try nextKey(&isFirst) != nil { try skipValue(depth: depth - 1) }
    case 0x5B:
      offset += 1
      var isFirst = true
      while try nextElement(&isFirst) { try skipValue(depth: depth - 1) }
    case 0x74: try literal("true")
    case 0x66: try literal("false")
    case 0x6E: try literal("null")
    default: _ = try number()
    }
  }
}
