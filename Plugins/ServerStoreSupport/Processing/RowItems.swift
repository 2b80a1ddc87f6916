import SalvorModel
import SalvorStorage
import SalvorWire

/// The row array that the reader stands on: its values in place, until the next one.
///
/// Texts and blobs point into the chunk. The few that had to be unescaped stand in the reader's scratch space, which its
/// next value overwrites: they are copied aside, and stay as long as a copy of this array does.
struct RowItems {
  private final class Copies {
    var buffers: [UnsafeMutableBufferPointer<UInt8>] = []
    deinit { for buffer in buffers { buffer.deallocate() } }
  }

  private(set) var items: [PayloadReader.Item] = []
  /// Blobs that travelled outside the payload are not counted.
  private(set) var byteCount = 0
  /// Of the largest blob, wherever it travelled.
  private(set) var blobBytes: Int64 = 0
  /// Those that travelled outside, each with its item.
  private(set) var references: [(item: Int, reference: BlobReference)] = []
  /// A real of its is -0.0, which SQLite stores as 0.0 in a column of the type REAL.
  private(set) var holdsMinusZero = false
  private var copies: Copies?
  private let chunk: UnsafeBufferPointer<UInt8>

  init(_ chunk: UnsafeBufferPointer<UInt8>) { self.chunk = chunk }

  mutating func read(_ reader: inout UploadChunkReader) throws(SalvorError) {
    items.removeAll(keepingCapacity: true)
    copies = nil
    byteCount = 0
    blobBytes = 0
    references.removeAll(keepingCapacity: true)
    holdsMinusZero = false
    while let item = try reader.item() {
      switch item {
      case .text(let bytes):
        byteCount += bytes.count
        items.append(.text(kept(bytes)))
      case .blob(let bytes):
        if let reference = reader.lastReference {
          references.append((items.count, reference))
          blobBytes = max(blobBytes, reference.size)
        } else {
          byteCount += bytes.count
          blobBytes = max(blobBytes, Int64(bytes.count))
        }
        items.append(.blob(kept(bytes)))
      case .real(let x):
        if x == 0, x.sign == .minus { holdsMinusZero = true }
        byteCount += 8
        items.append(item)
      default:
        byteCount += 8
        items.append(item)
      }
    }
  }

  private mutating func kept(_ bytes: UnsafeBufferPointer<UInt8>) -> UnsafeBufferPointer<UInt8> {
    guard let base = bytes.baseAddress, let start = chunk.baseAddress else { return bytes }
    if base >= start && base <= start + chunk.count { return bytes }
    let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: max(1, bytes.count))
    _ = copy.initialize(from: bytes)
    if copies == nil { copies = Copies() }
    copies?.buffers.append(copy)
    return UnsafeBufferPointer(start: copy.baseAddress, count: bytes.count)
  }
}
