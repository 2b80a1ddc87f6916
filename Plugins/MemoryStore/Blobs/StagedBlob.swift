import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// What has come of a blob.
struct StagedBlob: Sendable {
  var size: Int64
  var bytes: [UInt8] = []
  /// Of its last part, in milliseconds since 1970.
  var time: Int64 = 0

  var isWhole: Bool { Int64(bytes.count) == size }

  /// Adds a part. False: it is whole, and not what its hash names.
  mutating func add(_ part: [UInt8], of reference: BlobReference, at offset: Int64) throws -> Bool {
    guard offset == Int64(bytes.count), offset + Int64(part.count) <= size else {
      throw SalvorError(.chunkMissing, "\(bytes.count) bytes of this blob are here. Go on from there.")
    }
    bytes += part
    return !isWhole || BlobHash(of: bytes) == reference.hash
  }
}

/// Whether a value is the blob that a reference names.
func isBlob(_ value: Value, _ reference: BlobReference) -> [UInt8]? {
  guard case .blob(let bytes) = value, Int64(bytes.count) == reference.size, BlobHash(of: bytes) == reference.hash
  else { return nil }
  return bytes
}

extension MemoryTables {
  /// The first blob of these rows that a reference names.
  func blob(_ reference: BlobReference, in tables: [Table], where isSeen: (Table, Row) -> Bool) -> [UInt8]? {
    for table in tables {
      for row in rows(of: table.name).values where isSeen(table, row) {
        for value in row { if let bytes = isBlob(value, reference) { return bytes } }
      }
    }
    return nil
  }
}

extension DownloadChunkWriter {
  /// The travelling values of a row.
  mutating func row(_ row: Row, of table: Table) {
    for column in table.travelling {
      value(table.value(column.name, of: row), isKey: table.primaryKey.contains(column.name))
    }
  }
}

/// Gives a download that is applied the bytes of its blobs.
struct ClientBlobContents: BlobResolver {
  let blobs: [BlobHash: StagedBlob]
  let rehearses: Bool

  func withContent(
    of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(SalvorError) {
    if let blob = blobs[reference.hash], blob.isWhole, blob.size == reference.size {
      return blob.bytes.withUnsafeBytes { body($0) }
    }
    guard rehearses else { throw SalvorError.blobMissing(reference) }
    [UInt8](repeating: 0, count: Int(clamping: reference.size)).withUnsafeBytes { body($0) }
  }
}
