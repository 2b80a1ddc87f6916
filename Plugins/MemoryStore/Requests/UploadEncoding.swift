import SalvorModel
import SalvorStorage
import SalvorWire

/// Writes requests as upload chunks.
struct UploadEncoding {
  /// The commits that rows stood at which no subscription covers any more: they are fed no more (decision 9).
  let leaving: [RowName: Int64]
  let blobs: BlobSink
  /// The key columns of each table.
  let keys: [String: [String]]
  /// The incarnations that offers are of, in the order in which they lived.
  let lost: [IncarnationID]
  let order: [LostNeighbours]

  init(
    leaving: [RowName: Int64], schema: Schema, blobs: BlobSink, lost: [IncarnationID],
    order: [LostNeighbours]
  ) {
    self.lost = lost
    self.order = order
    self.leaving = leaving
    self.blobs = blobs
    keys = Dictionary(schema.tables.map { ($0.name, $0.primaryKey) }) { first, _ in first }
  }

  /// The chunk that follows `counter`; nil where nothing does. The same arguments give the same bytes.
  func chunk(of requests: [Request], after counter: Int64, bytesTarget: Int) -> UploadChunk? {
    var writer = UploadChunkWriter(blobs: blobs)
    var isLast = true
    var saysLost = false
    loop: for request in requests where request.lastCounter > counter {
      var isNamed = false
      for change in request.changes where change.counter > counter {
        if writer.changeCount > 0 && writer.byteCount >= bytesTarget {
          isLast = false
          break loop
        }
        if change.counter == request.firstCounter, !request.former.isEmpty {
          writer.former(first: change.counter, request.former)
        }
        if !isNamed && (request.changes.count > 1 || request.tag != nil) {
          writer.request(first: request.firstCounter, last: request.lastCounter, tag: request.tag)
          isNamed = true
        }
        if let offer = change.offer {
          if !saysLost { writer.lost(lost, order: order) }
          saysLost = true
          writer.offer(first: change.counter, last: change.counter, offer)
        }
        write(change, of: request, to: &writer)
      }
    }
    guard writer.changeCount > 0 else { return nil }
    let bytes = writer.finish()
    return UploadChunk(
      bytes: bytes, firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
      changeCount: writer.changeCount, isLast: isLast, blobs: writer.blobs)
  }

  private func write(_ change: Change, of request: Request, to writer: inout UploadChunkWriter) {
    let columns = change.operation == .delete ? [] : change.columns
    let place = writer.place(
      of: UploadShape(table: change.row.table, operation: change.operation, columns: columns.map(\.name)))
    let made = min(change.made, leaving[change.row] ?? .max)
    writer.beginChange(shape: place, stamp: request.stamp, counter: change.counter, made: made)
    if change.operation != .insert { for value in change.row.key { writer.value(value, isKey: true) } }
    for column in columns {
      if change.operation == .update { writer.value(column.old) }
      writer.value(
        column.new, isKey: change.operation == .insert && keys[change.row.table]?.contains(column.name) == true)
    }
    writer.endChange()
  }
}
