import SalvorModel

/// A blob that a download refers to, with the row and column that it is for.
public typealias PlacedBlob = (reference: BlobReference, place: BlobPlace)

/// A download payload without the rows that refer to a blob of more than a device takes: each stands as the key of a row that `left`.
///
/// - Parameters:
///   - bytesMax: such a blob is not taken.
///   - primaryKey: the key columns of a table; nil where it is unknown.
///   - isHere: the device holds the blob already.
/// - Returns: the payload as it is where nothing is left out, and of each row that is the first such blob.
public func leavingOutBlobs(
  above bytesMax: Int64, inDownload payload: [UInt8], primaryKey: (String) -> [String]?,
  isHere: (PlacedBlob) throws -> Bool
) throws -> (payload: [UInt8], left: [PlacedBlob]) {
  var large: Set<BlobReference> = []
  for placed in try placedBlobs(inDownload: payload, primaryKey: primaryKey) where placed.reference.size > bytesMax {
    if !large.contains(placed.reference), try !isHere(placed) { large.insert(placed.reference) }
  }
  if large.isEmpty { return (payload, []) }
  var left: [PlacedBlob] = []
  var writer = DownloadChunkWriter(capacity: payload.count)
  try payload.withUnsafeBufferPointer { buffer in
    var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
    var (table, columns, keyPlaces) = ("", [String](), [Int]())
    while let event = try reader.next() {
      var items: [(value: Value, reference: BlobReference?)] = []
      switch event {
      case .full(let names): writer.full(names)
      case .table(let name, let names):
        (table, columns) = (name, names)
        keyPlaces = (primaryKey(name) ?? []).compactMap { key in names.firstIndex { $0.folded == key.folded } }
        writer.table(name, columns: names)
      case .key(let departure, let version):
        writer.beginKey(departure, version: version)
        while let item = try reader.item() { writer.value(item.value, isKey: true) }
        writer.endRow()
      case .row(let version), .part(let version):
        while let item = try reader.item() { items.append((item.value, reader.lastReference)) }
        guard items.count == columns.count else { throw reader.malformed("a row does not have its columns") }
        let key = keyPlaces.map { items[$0].value }
        if let place = items.firstIndex(where: { $0.reference.map(large.contains) == true }),
          let reference = items[place].reference
        {
          left.append((reference, BlobPlace(table: table, key: key, column: columns[place])))
          writer.beginKey(.left, version: version)
          for value in key { writer.value(value, isKey: true) }
          writer.endRow()
          continue
        }
        if case .row = event { writer.beginRow(version: version) } else { writer.beginPart(version: version) }
        for (place, item) in items.enumerated() {
          if let reference = item.reference {
            writer.value { $0.reference(reference) }
          } else {
            writer.value(item.value, isKey: keyPlaces.contains(place))
          }
        }
        writer.endRow()
      }
    }
  }
  return (writer.finish(), left)
}
