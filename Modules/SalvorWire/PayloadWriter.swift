import SalvorModel

/// Appends JSON text to one growing buffer: the payload of rows, written straight from a database's columns.
///
/// How a value is written (docs/reference/protocol.md, *Values*): NULL `null`; an integer as a number up to 2^53 and
/// beyond it `{"integer":"9007199254740993"}`; a real as a number that always has a point or an exponent, infinities
/// `{"real":"inf"}`; text as a string, text whose bytes are not UTF-8 `{"text":"BASE64"}`; a blob `{"blob":"BASE64"}`, or,
/// where there is a sink for large ones, `{"ref":"SHA256","size":N}`.
public struct PayloadWriter: Sendable {
  /// The JSON text that was written so far, in UTF-8.
  public var bytes: [UInt8] = []
  /// Makes references of large blobs; nil: each stands in the text.
  public let blobs: BlobSink?
  /// The blobs that were written as references, in order.
  public private(set) var references: [BlobReference] = []
  /// Their bytes in all.
  public private(set) var referredBytes: Int64 = 0

  /// Makes an empty writer. `capacity` is the number of bytes for which the writer reserves room at first.
  public init(capacity: Int = 0, blobs: BlobSink? = nil) {
    self.blobs = blobs
    bytes.reserveCapacity(capacity)
  }

  /// Where the writer stands.
  struct Mark {
    fileprivate var count: Int
    fileprivate var references: Int
    fileprivate var referredBytes: Int64
  }

  var mark: Mark { Mark(count: bytes.count, references: references.count, referredBytes: referredBytes) }

  func hasReference(above bytes: Int64, since mark: Mark) -> Bool {
    references.count > mark.references && references[mark.references...].contains { $0.size > bytes }
  }

  mutating func goBack(to mark: Mark) {
    bytes.removeLast(bytes.count - mark.count)
    references.removeLast(references.count - mark.references)
    referredBytes = mark.referredBytes
  }

  /// The number of bytes that were written so far, without the blobs that went into references.
  public var count: Int { bytes.count }

  /// Appends text as it is: punctuation, keys, whole literals. Nothing is escaped.
  public mutating func raw(_ text: StaticString) {
    bytes.append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  /// Appends one byte as it is.
  public mutating func raw(byte: UInt8) { bytes.append(byte) }

  /// Appends bytes as they are, such as JSON text that was written before.
  public mutating func raw(bytes more: [UInt8]) { bytes.append(contentsOf: more) }

  /// Appends the comma between two items or members.
  public mutating func comma() { bytes.append(0x2C) }

  /// Appends a NULL.
  public mutating func null() { raw("null") }

  /// A bare number, for what is no row's value: counters, numbers of commits.
  public mutating func number(_ value: Int64) {
    if value >= 0 && value < 10 {
      bytes.append(0x30 + UInt8(value))
      return
    }
    var magnitude = value.magnitude
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
      var start = 20
      repeat {
        start -= 1
        digits[start] = 0x30 + UInt8(magnitude % 10)
        magnitude /= 10
      } while magnitude != 0
      if value < 0 { bytes.append(0x2D) }
      bytes.append(contentsOf: UnsafeBufferPointer(rebasing: UnsafeBufferPointer(digits)[start...]))
    }
  }

  /// Appends a row's integer: a number where its magnitude is at most 2^53, else `{"integer":"…"}`.
  public mutating func integer(_ value: Int64) {
    if value.magnitude <= 1 << 53 {
      number(value)
    } else {
      raw("{\"integer\":\"")
      number(value)
      raw("\"}")
    }
  }

  /// Appends a row's real, with a point or an exponent. An infinity is `{"real":"inf"}` or `{"real":"-inf"}`; a NaN is
  /// `null`.
  public mutating func real(_ value: Double) {
    if value.isFinite {
      bytes.append(contentsOf: value.description.utf8)
    } else if value.isNaN {
      null()  // what SQLite stores for it
    } else {
      raw(value < 0 ? "{\"real\":\"-inf\"}" : "{\"real\":\"inf\"}")
    }
  }

  /// Appends a string, with quotation marks and escapes.
  public mutating func text(_ string: String) {
    var string = string
    string.withUTF8 { text($0) }
  }

  /// Appends a row's text: a string, or `{"text":"BASE64"}` where the bytes are not UTF-8.
  public mutating func text(_ text: UnsafeBufferPointer<UInt8>) {
    guard isValidUTF8(text) else {
      raw("{\"text\":\"")
      base64(text)
      raw("\"}")
      return
    }
    bytes.append(0x22)
    var start = 0
    for index in 0..<text.count {
      let byte = text[index]
      if byte >= 0x20 && byte != 0x22 && byte != 0x5C { continue }
      bytes.append(contentsOf: UnsafeBufferPointer(rebasing: text[start..<index]))
      escape(byte)
      start = index + 1
    }
    if start == 0 {
      bytes.append(contentsOf: text)
    } else {
      bytes.append(contentsOf: UnsafeBufferPointer(rebasing: text[start...]))
    }
    bytes.append(0x22)
  }

  /// - Parameter isKey: it is a part of a row's key, which always stands in the text.
  public mutating func blob(_ blob: UnsafeBufferPointer<UInt8>, isKey: Bool = false) {
    if let blobs, !isKey, blob.count >= blobs.bytesMin {
      reference(BlobReference(hash: blobs.hash(UnsafeRawBufferPointer(blob)), size: Int64(blob.count)))
      return
    }
    raw("{\"blob\":\"")
    base64(blob)
    raw("\"}")
  }

  /// A blob whose bytes go another way. Written without spaces: payloads are searched for it.
  public mutating func reference(_ reference: BlobReference) {
    references.append(reference)
    referredBytes += reference.size
    raw("{\"ref\":\"")
    bytes.append(contentsOf: reference.hash.text.utf8)
    raw("\",\"size\":")
    number(reference.size)
    raw("}")
  }

  /// - Parameter isKey: as in `blob`.
  public mutating func value(_ value: Value, isKey: Bool = false) {
    switch value {
    case .null: null()
    case .integer(let x): integer(x)
    case .real(let x): real(x)
    case .text(let x): x.withUnsafeBufferPointer { text($0) }
    case .blob(let x): x.withUnsafeBufferPointer { blob($0, isKey: isKey) }
    }
  }

  private mutating func escape(_ byte: UInt8) {
    bytes.append(0x5C)
    switch byte {
    case 0x22, 0x5C: bytes.append(byte)
    case 0x0A: bytes.append(0x6E)
    case 0x0D: bytes.append(0x72)
    case 0x09: bytes.append(0x74)
    default:
      let digits: StaticString = "0123456789abcdef"
      raw("u00")
      bytes.append(digits.utf8Start[Int(byte >> 4)])
      bytes.append(digits.utf8Start[Int(byte & 15)])
    }
  }

  private mutating func base64(_ data: UnsafeBufferPointer<UInt8>) {
    let alphabet = base64Alphabet.utf8Start
    bytes.reserveCapacity(bytes.count + (data.count + 2) / 3 * 4)
    var index = 0
    while index + 2 < data.count {
      let group = UInt32(data[index]) << 16 | UInt32(data[index + 1]) << 8 | UInt32(data[index + 2])
      bytes.append(alphabet[Int(group >> 18)])
      bytes.append(alphabet[Int(group >> 12 & 63)])
      bytes.append(alphabet[Int(group >> 6 & 63)])
      bytes.append(alphabet[Int(group & 63)])
      index += 3
    }
    let rest = data.count - index
    guard rest > 0 else { return }
    let group = UInt32(data[index]) << 16 | (rest == 2 ? UInt32(data[index + 1]) << 8 : 0)
    bytes.append(alphabet[Int(group >> 18)])
    bytes.append(alphabet[Int(group >> 12 & 63)])
    bytes.append(rest == 2 ? alphabet[Int(group >> 6 & 63)] : 0x3D)
    bytes.append(0x3D)
  }
}

let base64Alphabet: StaticString = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

/// ASCII is decided eight bytes at a time; anything else is checked by the standard library.
public func isValidUTF8(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
  guard let base = text.baseAddress else { return true }
  let raw = UnsafeRawPointer(base)
  var index = 0
  while index + 8 <= text.count {
    if raw.loadUnaligned(fromByteOffset: index, as: UInt64.self) & 0x8080_8080_8080_8080 != 0 {
      return String(validating: text, as: UTF8.self) != nil
    }
    index += 8
  }
  while index < text.count {
    if text[index] >= 0x80 { return String(validating: text, as: UTF8.self) != nil }
    index += 1
  }
  return true
}
