import SalvorModel
import SalvorWire

/// Names a row, or a unique value, by 64 bits: a table and the storage classes and bytes of some values. Two different
/// ones alike would make a request be looked at more carefully, or blocked; nothing would be written wrongly.
struct RowHash {
  private(set) var value: UInt64

  init(table: String) {
    value = 0xCBF2_9CE4_8422_2325
    var table = table
    table.withUTF8 { add(bytes: UnsafeRawBufferPointer($0)) }
  }

  private mutating func mix(_ word: UInt64) {
    value = (value ^ word) &* 0x9E37_79B9_7F4A_7C15
    value ^= value >> 29
  }

  private mutating func add(bytes: UnsafeRawBufferPointer) {
    var index = 0
    while index + 8 <= bytes.count {
      mix(bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self))
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

  mutating func add(_ value: Value) {
    switch value {
    case .null: mix(0)
    case .integer(let x): mix(1); mix(UInt64(bitPattern: x))
    case .real(let x): mix(2); mix(x.bitPattern)
    case .text(let x): mix(3); x.withUnsafeBytes { add(bytes: $0) }
    case .blob(let x): mix(4); x.withUnsafeBytes { add(bytes: $0) }
    }
  }

  mutating func add(_ item: PayloadReader.Item) {
    switch item {
    case .null: mix(0)
    case .integer(let x): mix(1); mix(UInt64(bitPattern: x))
    case .real(let x): mix(2); mix(x.bitPattern)
    case .text(let x): mix(3); add(bytes: UnsafeRawBufferPointer(x))
    case .blob(let x): mix(4); add(bytes: UnsafeRawBufferPointer(x))
    }
  }

  mutating func add(_ values: some Sequence<Value>) { for value in values { add(value) } }

  func adding(_ values: some Sequence<Value>) -> UInt64 {
    var hash = self
    hash.add(values)
    return hash.value
  }
}
