import SalvorModel

/// A row's digest for comparing tables by ranges of keys (docs/architecture/recovery.md): 64 bits of the storage classes
/// and bytes of its values, in an order of columns that both sides know. A range's is the sum of its rows', so that it does
/// not depend on their order.
///
/// It finds differences; it does not protect from someone who looks for two rows with one digest.
public struct RowDigest: Sendable, Hashable {
  /// The digest of what was added so far. Without a value it is `cbf29ce484222325`, in hexadecimal digits.
  public private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325

  /// A digest to which no value was added yet.
  public init() {}

  /// The digest of a row. The values must come in the order of the columns that both sides compare.
  public init(_ row: some Sequence<Value>) {
    for value in row { add(value) }
  }

  /// As it is written: 16 hexadecimal digits.
  public var text: String { Self.text(value) }

  /// A digest, or a sum of digests, as a message has it: 16 hexadecimal digits in small letters, with leading zeros.
  public static func text(_ value: UInt64) -> String {
    let digits = String(value, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }

  /// Adds the next value of the row, by its storage class. The integer 1 and the real 1.0 give different digests.
  public mutating func add(_ value: Value) {
    switch value {
    case .null: addNull()
    case .integer(let x): add(x)
    case .real(let x): add(x)
    case .text(let x): x.withUnsafeBytes { addText($0) }
    case .blob(let x): x.withUnsafeBytes { addBlob($0) }
    }
  }

  /// Adds a NULL: the word 0.
  public mutating func addNull() { mix(0) }

  /// Adds an integer: the word 1, then the integer.
  public mutating func add(_ value: Int64) {
    mix(1)
    mix(UInt64(bitPattern: value))
  }

  /// Adds a real: the word 2, then the 64 bits of the number as IEEE 754 has them.
  public mutating func add(_ value: Double) {
    mix(2)
    mix(value.bitPattern)
  }

  /// Adds a text by its bytes: the word 3, the bytes in words of 8, a word of those left, and the number of bytes.
  public mutating func addText(_ bytes: UnsafeRawBufferPointer) {
    mix(3)
    add(bytes)
  }

  /// Adds a blob by its bytes: the word 4, the bytes in words of 8, a word of those left, and the number of bytes.
  public mutating func addBlob(_ bytes: UnsafeRawBufferPointer) {
    mix(4)
    add(bytes)
  }

  private mutating func add(_ bytes: UnsafeRawBufferPointer) {
    var offset = 0
    while offset + 8 <= bytes.count {
      mix(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
      offset += 8
    }
    var rest: UInt64 = 0
    while offset < bytes.count {
      rest = rest << 8 | UInt64(bytes[offset])
      offset += 1
    }
    mix(rest)
    mix(UInt64(bytes.count))
  }

  /// A multiplication and two shifts a word, each of which can be undone: no value is lost on the way.
  private mutating func mix(_ word: UInt64) {
    value = (value ^ word) &* 0x9E37_79B9_7F4A_7C15
    value ^= value >> 32
    value = value &* 0xD6E8_FEB8_6659_FD93
    value ^= value >> 29
  }
}
