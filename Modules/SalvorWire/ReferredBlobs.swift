import SalvorModel

/// Whether a payload may refer to blobs: nothing else in one is written as `{"ref":`.
public func mentionsBlobs(_ payload: some Sequence<UInt8>) -> Bool {
  let found = payload.withContiguousStorageIfAvailable { bytes in
    var place = 0
    while place + 7 <= bytes.count {
      if bytes[place] == 0x7B, bytes[place + 1] == 0x22, bytes[place + 2] == 0x72, bytes[place + 3] == 0x65,
        bytes[place + 4] == 0x66, bytes[place + 5] == 0x22, bytes[place + 6] == 0x3A
      {
        return true
      }
      place += 1
    }
    return false
  }
  return found ?? mentionsBlobs(Array(payload))
}

/// Calls `body` with each blob that an upload's chunk refers to, and with the request that does.
public func eachReferredBlob(
  inUpload chunk: [UInt8], _ body: (BlobReference, RequestID) throws -> Void
) throws {
  guard mentionsBlobs(chunk) else { return }
  try chunk.withUnsafeBufferPointer { buffer in
    var reader = UploadChunkReader(buffer, blobs: BlobCollector())
    var range: (first: Int64, last: Int64)?
    while let event = try reader.next() {
      if case .request(let first, let last, _) = event { range = (first, last) }
      guard case .change(_, let stamp, let counter, _) = event else { continue }
      let first = range.flatMap { $0.first <= counter && counter <= $0.last ? $0.first : nil } ?? counter
      while try reader.item() != nil {
        guard let reference = reader.lastReference else { continue }
        try body(reference, RequestID(stamp: stamp, counter: first))
      }
    }
  }
}

/// What a download payload refers to, each with the row and column that it is for.
///
/// - Parameter primaryKey: the key columns of a table; nil where it is unknown.
public func placedBlobs(
  inDownload payload: [UInt8], primaryKey: (String) -> [String]?
) throws -> [(reference: BlobReference, place: BlobPlace)] {
  guard mentionsBlobs(payload) else { return [] }
  var found: [(reference: BlobReference, place: BlobPlace)] = []
  try payload.withUnsafeBufferPointer { buffer in
    var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
    var (table, columns, keyPlaces) = ("", [String](), [Int]())
    while let event = try reader.next() {
      switch event {
      case .full, .key: continue
      case .table(let name, let names):
        (table, columns) = (name, names)
        keyPlaces = (primaryKey(name) ?? []).compactMap { key in
          names.firstIndex { $0.folded == key.folded }
        }
      case .row, .part:
        var place = 0
        var key: [Int: Value] = [:]
        var references: [(BlobReference, String)] = []
        while let item = try reader.item() {
          if let reference = reader.lastReference, place < columns.count {
            references.append((reference, columns[place]))
          } else if keyPlaces.contains(place) {
            key[place] = item.value
          }
          place += 1
        }
        for (reference, column) in references {
          found.append((reference, BlobPlace(table: table, key: keyPlaces.compactMap { key[$0] }, column: column)))
        }
      }
    }
  }
  return found
}
