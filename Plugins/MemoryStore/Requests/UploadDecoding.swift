import SalvorModel
import SalvorWire

/// Reads the chunks of an upload as requests, in the client's order.
struct UploadDecoding {
  private let schema: Schema
  private var changes: [(stamp: RequestStamp, change: Change)] = []
  private var ranges: [(first: Int64, last: Int64, tag: String?)] = []

  static func requests(in chunks: [[UInt8]], schema: Schema) throws -> [Request] {
    var decoding = UploadDecoding(schema: schema)
    for chunk in chunks { try decoding.read(chunk) }
    return decoding.grouped()
  }

  private init(schema: Schema) { self.schema = schema }

  private mutating func read(_ bytes: [UInt8]) throws {
    try bytes.withUnsafeBufferPointer { buffer in
      var reader = UploadChunkReader(buffer)
      while let event = try reader.next() {
        switch event {
        case .shape, .context: break
        case .request(let first, let last, let tag): ranges.append((first, last, tag))
        case .change(let place, let stamp, let counter, let made):
          var values: [Value] = []
          while let item = try reader.item() { values.append(item.value) }
          guard let change = change(reader.shapes[place], values, counter, made) else {
            throw reader.malformed("a row does not have its shape")
          }
          if let last = changes.last?.change.counter, counter <= last {
            throw reader.malformed("counters must grow")
          }
          changes.append((stamp, change))
        }
      }
    }
  }

  private func change(_ shape: UploadShape, _ values: [Value], _ counter: Int64, _ made: Int64) -> Change? {
    let table = schema.table(shape.table)
    let count = shape.columns.count
    var key: Key
    var columns: [ChangedColumn]
    switch shape.operation {
    case .insert:
      guard values.count == count else { return nil }
      columns = zip(shape.columns, values).map { ChangedColumn(name: $0, old: .null, new: $1) }
      key = []
      for name in table?.primaryKey ?? [] {
        guard let place = shape.columns.firstIndex(of: name) else { return nil }
        key.append(values[place])
      }
    case .update:
      guard values.count >= 2 * count else { return nil }
      key = Array(values.dropLast(2 * count))
      columns = shape.columns.enumerated().map { index, name in
        let place = key.count + 2 * index
        return ChangedColumn(name: name, old: values[place], new: values[place + 1])
      }
    case .delete:
      key = values
      columns = []
    }
    if let table, key.count != table.primaryKey.count { return nil }
    return Change(
      counter: counter, made: made, row: RowName(table: shape.table, key: key), operation: shape.operation,
      columns: columns)
  }

  private func grouped() -> [Request] {
    var requests: [Request] = []
    var openUntil: Int64 = 0
    for (stamp, change) in changes {
      if change.counter <= openUntil {
        requests[requests.count - 1].changes.append(change)
      } else {
        let range = ranges.last { $0.first == change.counter }
        openUntil = range?.last ?? change.counter
        requests.append(Request(stamp: stamp, changes: [change], tag: range?.tag))
      }
    }
    return requests
  }
}
