import SalvorModel
import SalvorWire

/// Tells requests with one ID apart by what they change: two copies of one device's file share a stamp and count on from
/// the same counter. 32 bits of each change's table, operation, key, changed columns and new values; never zero.
public struct RequestContent: Hashable, Sendable {
  /// The hash of the changes' hashes.
  public let bits: UInt32

  /// - Parameter changes: `UploadedChange.content(_:)` of each, in order.
  public init(_ changes: some Sequence<UInt64>) {
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325
    for change in changes {
      hash = (hash ^ change) &* 0x9E37_79B9_7F4A_7C15
      hash ^= hash >> 32
    }
    let bits = UInt32(truncatingIfNeeded: hash)
    self.bits = bits == 0 ? 1 : bits
  }
}

extension UploadedChange {
  /// What the change does, whatever it saw, under the oldest names that are known. What an insert does not set does not count: a
  /// device that sends it again may have got a column meanwhile.
  ///
  /// - Parameter definition: its table.
  public func content(_ definition: Table) -> UInt64 {
    func name(_ column: UploadedColumn) -> Value {
      .text(Array((definition.column(formerly: column.name)?.origin ?? column.name).utf8))
    }
    var hash = RowHash(table: definition.origin)
    if operation == .insert {
      hash.add(.text(Array("insert set".utf8)))
      for column in columns where definition.column(formerly: column.name)?.isSet(column.new) ?? true {
        hash.add(name(column))
        hash.add(column.new)
      }
      return hash.value
    }
    hash.add(.text(Array(operation.rawValue.utf8)))
    for column in columns { hash.add(name(column)) }
    hash.add(key)
    for column in columns { hash.add(column.new) }
    return hash.value
  }
}
