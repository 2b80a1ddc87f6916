import SalvorModel
import SalvorStorage
import SalvorWire

/// One change of an upload, read back from its chunks.
struct ReadChange: Sendable, Hashable {
  var table: String
  var operation: SalvorModel.Operation
  var columns: [String]
  /// As on the wire: an insert's values; an update's key, then old and new of each column; a delete's key.
  var values: [Value]
  var stamp: RequestStamp
  var counter: Int64
  var made: Int64
  /// The first counter of the request it belongs to.
  var request: Int64
  var tag: String?
  /// Not nil: it brings back what the server has lost.
  var offer: Offer?
  /// What its request was before; empty where the line stands not before this change.
  var former: [FormerContent] = []

  var id: RequestID { RequestID(stamp: stamp, counter: request) }

  /// What is changed, without the numbers that differ between stores.
  var summary: String {
    let columns = operation == .delete ? "" : " \(columns)"
    let offered = offer.map { " of \($0.version.number) \($0.written)" } ?? ""
    return "\(operation.rawValue) \(table)\(columns) \(values)\(offered)"
  }
}

enum ReadUpload {
  static func changes(in chunks: [UploadChunk]) throws -> [ReadChange] {
    var changes: [ReadChange] = []
    var ranges: [(first: Int64, last: Int64, tag: String?)] = []
    var offers: [(first: Int64, last: Int64, offer: Offer)] = []
    var former: (first: Int64, contents: [FormerContent])?
    for chunk in chunks {
      var count = 0
      try chunk.bytes.withUnsafeBufferPointer { buffer in
        var reader = UploadChunkReader(buffer, blobs: BlobCollector())
        while let event = try reader.next() {
          switch event {
          case .shape, .lost: break
          case .former(let first, let contents): former = (first, contents)
          case .offer(let first, let last, let offer): offers.append((first, last, offer))
          case .request(let first, let last, let tag): ranges.append((first, last, tag))
          case .change(let place, let stamp, let counter, let made):
            var values: [Value] = []
            while let item = try reader.item() { values.append(item.value) }
            let shape = reader.shapes[place]
            let range = ranges.last { $0.first <= counter && counter <= $0.last }
            changes.append(
              ReadChange(
                table: shape.table, operation: shape.operation, columns: shape.columns, values: values, stamp: stamp,
                counter: counter, made: made, request: range?.first ?? counter, tag: range?.tag,
                offer: offers.last { $0.first <= counter && counter <= $0.last }?.offer,
                former: former.flatMap { $0.first == counter ? $0.contents : nil } ?? []))
            count += 1
          }
        }
      }
      try expectEqual(chunk.changeCount, count, "the chunk's number of changes")
      try expectEqual(
        [chunk.firstCounter, chunk.lastCounter],
        [changes.dropLast(count - 1).last?.counter ?? 0, changes.last?.counter ?? 0], "the chunk's counters")
    }
    for (before, after) in zip(changes, changes.dropFirst()) {
      try expect(before.counter < after.counter, "the counters of an upload must grow")
    }
    return changes
  }

  /// Every chunk of the upload under way.
  static func chunks(_ store: any ClientStore, bytesTarget: Int = 1 << 20) async throws -> [UploadChunk] {
    var chunks: [UploadChunk] = []
    var counter: Int64 = 0
    while let chunk = try await store.uploadChunk(after: counter, bytesTarget: bytesTarget) {
      try expect(chunk.lastCounter > counter, "a chunk must go on")
      chunks.append(chunk)
      counter = chunk.lastCounter
      try expectEqual(
        chunk.isLast, try await store.uploadChunk(after: counter, bytesTarget: bytesTarget) == nil, "isLast")
    }
    return chunks
  }
}
