import SalvorModel
import SalvorStorage
import SalvorWire

/// Reads the chunks of an upload as requests, in the client's order.
enum UploadDecoding {
  /// - Parameter lost: gets what the `lost` lines say.
  static func requests(
    in chunks: [[UInt8]], schema: Schema, blobs: any BlobResolver, lost: inout [LostNeighbours]
  ) throws -> [Request] {
    var reader = UploadRequestReader(schema: schema)
    var requests: [UploadedRequest] = []
    for chunk in chunks { requests += try reader.read(chunk, blobs: blobs) }
    if let last = reader.finish() { requests.append(last) }
    lost = reader.lost
    return requests.map(Request.init)
  }
}

extension Request {
  init(_ uploaded: UploadedRequest) {
    self.init(
      stamp: uploaded.stamp,
      changes: uploaded.changes.map { change in
        Change(
          counter: change.counter, made: change.made, row: RowName(table: change.table, key: change.key),
          operation: change.operation,
          columns: change.columns.map { ChangedColumn(name: $0.name, old: $0.old ?? .null, new: $0.new) },
          offer: change.offer)
      }, tag: uploaded.tag)
    former = uploaded.former
  }
}
