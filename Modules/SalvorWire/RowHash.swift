import SalvorModel

/// Names a row, a unique value, or what a request changes, by 64 bits: a table and the storage classes and bytes of some values. Two
/// different ones alike would make a request be looked at more carefully, or blocked; nothing would be written wrongly.
public struct RowHash: Sendable, Hashable {
  /// The hash of what was added so far.
  @inlinable public var value: UInt64 { state }
  @usableFromInline var state: UInt64

  /// The table's name alone.
  @inlinable
  public init(table: String) {
    state = 0xCBF2_9CE4_8422_2325
    var table = table
    table.withUTF8 { add(bytes: UnsafeRawBufferPointer($0)) }
  }

  @inlinable
  mutating func mix(_ word: UInt64) {
    state = (state ^ word) &* 0x9E37_79B9_7F4A_7C15
    state ^= state >> 29
  }

  @inlinable
  mutating func add(bytes: UnsafeRawBufferPointer) {
    var index = 0
    while index + 8 <= bytes.count {
      mix(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)))
      index += 8
    }
    var rest: UInt64 = 0
    while index < bytes.count {
      rest = rest << 8 | UInt64(bytes[index])
      index += 1
    }
    mix(rest)
    mix(UInt64(bytes.count))
  }

  /// Adds the next value, by its storage class.
  @inlinable
  public mutating func add(_ value: Value) {
    switch value {
    case .null: mix(0)
    case .integer(let x): mix(1); mix(UInt64(bitPattern: x))
    case .real(let x): mix(2); mix(x.bitPattern)
    case .text(let x): mix(3); x.withUnsafeBytes { add(bytes: $0) }
    case .blob(let x): mix(4); x.withUnsafeBytes { add(bytes: $0) }
    }
  }

  /// The same of a value where it stands in a payload.
  @inlinable
  public mutating func add(_ item: PayloadReader.Item) {
    switch item {
    case .null: mix(0)
    case .integer(let x): mix(1); mix(UInt64(bitPattern: x))
    case .real(let x): mix(2); mix(x.bitPattern)
    case .text(let x): mix(3); add(bytes: UnsafeRawBufferPointer(x))
    case .blob(let x): mix(4); add(bytes: UnsafeRawBufferPointer(x))
    }
  }

  /// Adds values in their order.
  @inlinable
  public mutating func add(_ values: some Sequence<Value>) { for value in values { add(value) } }

  /// The hash with some more values.
  @inlinable
  public func adding(_ values: some Sequence<Value>) -> UInt64 {
    var hash = self
    hash.add(values)
    return hash.state
  }
}
