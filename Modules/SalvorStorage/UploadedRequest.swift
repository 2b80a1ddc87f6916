import SalvorModel
import SalvorWire

/// One request of an upload, as the device sent it.
public struct UploadedRequest: Sendable, Hashable {
  /// The stamp of the session after which the device captured it.
  public var stamp: RequestStamp
  /// The tag that the application gave it; nil: none.
  public var tag: String?
  /// At least one, in the device's order.
  public var changes: [UploadedChange]
  /// What it was before its device dropped columns or tables that it wrote: a server that has settled it so does not apply it again.
  public var former: [FormerContent]

  /// A request by its stamp, with all of its changes.
  public init(stamp: RequestStamp, tag: String?, changes: [UploadedChange], former: [FormerContent] = []) {
    self.stamp = stamp
    self.tag = tag
    self.changes = changes
    self.former = former
  }

  /// The request's ID: its stamp with the counter of its first change.
  public var id: RequestID { RequestID(stamp: stamp, counter: changes[0].counter) }
}

/// One change of a request of an upload.
public struct UploadedChange: Sendable, Hashable {
  /// The device's capture counter: it grows from change to change.
  public var counter: Int64
  /// The number of the commit that the device's rows stood at when the change was made.
  public var made: Int64
  /// The table's name as the device knows it.
  public var table: String
  /// In the order of the schema; empty for an insert into a table that the schema does not have.
  public var key: Key
  /// What the change does to the row.
  public var operation: Operation
  /// An insert's: all travelling columns; an update's: those that changed; a delete's: none.
  public var columns: [UploadedColumn]
  /// Not nil: it brings back what the server has lost (semantics 10).
  public var offer: Offer?

  /// By default an ordinary change, no offer.
  public init(
    counter: Int64, made: Int64, table: String, key: Key, operation: Operation, columns: [UploadedColumn],
    offer: Offer? = nil
  ) {
    self.offer = offer
    self.counter = counter
    self.made = made
    self.table = table
    self.key = key
    self.operation = operation
    self.columns = columns
  }
}

/// One column of an uploaded change.
public struct UploadedColumn: Sendable, Hashable {
  /// The column's name as the device knows it.
  public var name: String
  /// Of an update: what the device saw.
  public var old: Value?
  /// The value that the change gives.
  public var new: Value

  /// By default without the value that the device saw, as in an insert.
  public init(_ name: String, old: Value? = nil, new: Value) {
    self.name = name
    self.old = old
    self.new = new
  }
}

/// Reads the chunks of an upload, one after the other, as requests in the device's order. It holds the requests of one
/// chunk, and one that has not ended.
public struct UploadRequestReader: Sendable {
  private let keys: [String: [String]]
  private let tables: Set<String>?
  private var lastCounter: Int64 = 0
  /// What the last `request` line said.
  private var range: (first: Int64, last: Int64, tag: String?)?
  /// What the last `offer` line said.
  private var offers: (first: Int64, last: Int64, offer: Offer)?
  /// What the last `former` line said.
  private var former: (first: Int64, contents: [FormerContent])?
  /// What its `lost` lines said of the order of lost incarnations.
  public private(set) var lost: [LostNeighbours] = []
  private var open: (request: UploadedRequest, last: Int64)?

  /// - Parameter tables: a request that is one change of another table is left out; nil: none is.
  public init(schema: Schema, tables: Set<String>? = nil) {
    keys = Dictionary(schema.tables.map { ($0.name, $0.primaryKey) }) { first, _ in first }
    self.tables = tables
  }

  /// The requests that end in this chunk. Throws `malformed`, and what `blobs` throws.
  ///
  /// - Parameter blobs: as of `PayloadReader`.
  public mutating func read(_ chunk: [UInt8], blobs: any BlobResolver = BlobContents()) throws -> [UploadedRequest] {
    var requests: [UploadedRequest] = []
    try chunk.withUnsafeBufferPointer { buffer in
      var reader = UploadChunkReader(buffer, blobs: blobs)
      while let event = try reader.next() {
        switch event {
        case .shape: break
        case .lost(_, let order): lost += order
        case .offer(let first, let last, let offer): offers = (first, last, offer)
        case .request(let first, let last, let tag): range = (first, last, tag)
        case .former(let first, let contents): former = (first, contents)
        case .change(let place, let stamp, let counter, let made):
          guard counter > lastCounter else { throw reader.malformed("the counters must grow") }
          lastCounter = counter
          if let ended = end(before: counter) { requests.append(ended) }
          let shape = reader.shapes[place]
          let named = range.flatMap { $0.first == counter ? $0 : nil }
          let isAlone = open == nil && (named?.last ?? counter) == counter
          if isAlone, tables?.contains(shape.table) == false { continue }
          var values: [Value] = []
          while let item = try reader.item() { values.append(item.value) }
          guard var change = change(shape, values, counter, made) else {
            throw reader.malformed("a row does not have its shape")
          }
          if let offers, (offers.first...offers.last).contains(counter) { change.offer = offers.offer }
          if open == nil {
            let was = former.flatMap { $0.first == counter ? $0.contents : nil } ?? []
            open = (UploadedRequest(stamp: stamp, tag: named?.tag, changes: [], former: was), named?.last ?? counter)
          }
          open?.request.changes.append(change)
          if let ended = end(before: counter + 1) { requests.append(ended) }
        }
      }
    }
    return requests
  }

  /// The request that the upload's end ends; nil: none is open.
  public mutating func finish() -> UploadedRequest? { end(before: .max) }

  /// The open request, if none of its changes can have this counter.
  private mutating func end(before counter: Int64) -> UploadedRequest? {
    guard let ended = open, ended.last < counter else { return nil }
    open = nil
    return ended.request
  }

  private func change(_ shape: UploadShape, _ values: [Value], _ counter: Int64, _ made: Int64) -> UploadedChange? {
    let primaryKey = keys[shape.table]
    let count = shape.columns.count
    var key: Key
    var columns: [UploadedColumn] = []
    switch shape.operation {
    case .insert:
      guard values.count == count else { return nil }
      columns = zip(shape.columns, values).map { UploadedColumn($0, new: $1) }
      key = []
      for name in primaryKey ?? [] {
        guard let place = shape.columns.firstIndex(of: name) else { return nil }
        key.append(values[place])
      }
    case .update:
      guard values.count >= 2 * count else { return nil }
      key = Array(values.dropLast(2 * count))
      columns = shape.columns.enumerated().map { index, name in
        let place = key.count + 2 * index
        return UploadedColumn(name, old: values[place], new: values[place + 1])
      }
    case .delete: key = values
    }
    if let primaryKey, key.count != primaryKey.count { return nil }
    return UploadedChange(
      counter: counter, made: made, table: shape.table, key: key, operation: shape.operation, columns: columns)
  }
}
