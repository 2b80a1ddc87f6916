import CSQLite
import SQLiteSupport

/// A set of rows by their hashes, in memory of fixed size: of a row that is in it it always says so; of another one seldom, too.
///
/// The bits of one hash stand in 64 bytes, so that a row costs one look at the memory.
struct RowSketch {
  private static let probes = 6
  /// Eight are a block.
  private var words: [UInt64]
  private let shift: UInt64

  /// 2^bits bits, 2^12 at least.
  init(bits: Int) {
    let blockBits = max(3, bits - 9)
    words = Array(repeating: 0, count: 8 << blockBits)
    shift = 64 - UInt64(blockBits)
  }

  /// 32 bits for each row or more; 4 MiB at most.
  init(rows: Int64) {
    self.init(bits: min(25, max(16, 69 - max(1, rows).leadingZeroBitCount)))
  }

  /// Where the bits of one hash stand, one after the other.
  private struct Probe {
    private let block: Int
    private var rest: UInt64

    init(_ hash: UInt64, shift: UInt64) {
      block = Int(truncatingIfNeeded: hash >> shift) << 3
      rest = hash &* 0xD6E8_FEB8_6659_FD93
      rest ^= rest >> 32
    }

    mutating func next() -> (word: Int, bit: UInt64) {
      defer { rest >>= 9 }
      return (block | Int(truncatingIfNeeded: (rest >> 6) & 7), 1 << (rest & 63))
    }
  }

  func contains(_ hash: UInt64) -> Bool {
    var probe = Probe(hash, shift: shift)
    for _ in 0..<Self.probes {
      let (word, bit) = probe.next()
      if words[word] & bit == 0 { return false }
    }
    return true
  }

  /// Answers whether it was there already.
  @discardableResult
  mutating func insert(_ hash: UInt64) -> Bool {
    var probe = Probe(hash, shift: shift)
    var missing: UInt64 = 0
    for _ in 0..<Self.probes {
      let (word, bit) = probe.next()
      missing |= ~words[word] & bit
      words[word] |= bit
    }
    return missing == 0
  }
}

/// A hash of table and key, from the columns of a statement.
func rowHash(_ row: SQLiteStatement, table: Int, firstKey: Int, count: Int) -> UInt64 {
  var hash: UInt64 = 0xCBF2_9CE4_8422_2325
  func mix(_ word: UInt64) {
    hash = (hash ^ word) &* 0x9E37_79B9_7F4A_7C15
    hash ^= hash >> 29
  }
  mix(UInt64(bitPattern: row.int64(table)))
  for column in firstKey..<(firstKey + count) {
    let type = row.type(column)
    mix(UInt64(type))
    switch type {
    case SQLITE_INTEGER: mix(UInt64(bitPattern: row.int64(column)))
    case SQLITE_FLOAT: mix(row.double(column).bitPattern)
    case SQLITE_TEXT: row.withText(column) { mixBytes($0, mix) }
    case SQLITE_BLOB: row.withBlob(column) { mixBytes($0, mix) }
    default: break
    }
  }
  return hash ^ (hash >> 32)
}

private func mixBytes(_ bytes: UnsafeRawBufferPointer, _ mix: (UInt64) -> Void) {
  var offset = 0
  while offset + 8 <= bytes.count {
    mix(bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    offset += 8
  }
  var rest = UInt64(bytes.count)
  while offset < bytes.count {
    rest = rest << 8 | UInt64(bytes[offset])
    offset += 1
  }
  mix(rest)
}
