import SalvorModel
import SalvorStorage
import SalvorWire

/// Changes whose rows are larger than the server reads: each is sent with the size of its row in the place of its large values, so
/// that the server refuses it alone, as `too-large`, and the others of its upload go on (semantics 7, decision 120).
enum LargeChanges {
  /// Values up to this size stay as they are: names, keys, numbers.
  private static let valueBytesMin = 1024

  /// The chunk without what makes it larger than `bytesMax`: the largest changes go first. Nil: it is not for them.
  ///
  /// - Parameter primaryKeys: by table.
  static func cut(_ chunk: UploadChunk, to bytesMax: Int, _ primaryKeys: [String: [String]]) throws -> UploadChunk? {
    try chunk.bytes.withUnsafeBufferPointer { buffer in
      var sizes: [Int64: Int] = [:]
      try read(buffer) { event in
        if case .change(let change) = event { sizes[change.counter] = change.byteCount }
      }
      var total = chunk.bytes.count
      var large: Set<Int64> = []
      for (counter, size) in sizes.sorted(by: { ($1.value, $0.key) < ($0.value, $1.key) }) where total > bytesMax {
        large.insert(counter)
        total -= size
      }
      var made = chunk
      made.bytes = try written(buffer, large, primaryKeys)
      return made.bytes.count <= bytesMax ? made : nil
    }
  }

  private struct Change {
    var shape: UploadShape
    var stamp: RequestStamp
    var counter: Int64
    var made: Int64
    var items: [(item: PayloadReader.Item, reference: BlobReference?)]

    var byteCount: Int {
      var writer = PayloadWriter()
      for (item, reference) in items { writer.item(item, reference) }
      return writer.count
    }
  }

  private enum Event {
    case change(Change)
    case other(UploadChunkReader.Event)
  }

  private static func read(_ buffer: UnsafeBufferPointer<UInt8>, _ body: (Event) throws -> Void) throws {
    var reader = UploadChunkReader(buffer, blobs: BlobCollector())
    while let event = try reader.next() {
      guard case .change(let place, let stamp, let counter, let made) = event else {
        try body(.other(event))
        continue
      }
      var change = Change(shape: reader.shapes[place], stamp: stamp, counter: counter, made: made, items: [])
      while let item = try reader.item() { change.items.append((item, reader.lastReference)) }
      try body(.change(change))
    }
  }

  private static func written(
    _ buffer: UnsafeBufferPointer<UInt8>, _ large: Set<Int64>, _ primaryKeys: [String: [String]]
  ) throws -> [UInt8] {
    var writer = UploadChunkWriter()
    try read(buffer) { event in
      switch event {
      case .change(let change):
        let place = writer.place(of: change.shape)
        writer.beginChange(shape: place, stamp: change.stamp, counter: change.counter, made: change.made)
        let bytes = Int64(change.byteCount)
        for (index, entry) in change.items.enumerated() {
          let isKey = isKey(index, change, primaryKeys)
          if large.contains(change.counter), !isKey, entry.reference == nil, entry.item.byteCount > valueBytesMin {
            writer.value { $0.integer(bytes) }
          } else {
            writer.value { $0.item(entry.item, entry.reference) }
          }
        }
        writer.endChange()
      case .other(.request(let first, let last, let tag)): writer.request(first: first, last: last, tag: tag)
      case .other(.former(let first, let contents)): writer.former(first: first, contents)
      case .other(.lost(let incarnations, let order)): writer.lost(incarnations, order: order)
      case .other(.offer(let first, let last, let offer)): writer.offer(first: first, last: last, offer)
      // Written with the first change that has it.
      case .other(.shape), .other(.change): break
      }
    }
    return writer.finish()
  }

  private static func isKey(_ place: Int, _ change: Change, _ primaryKeys: [String: [String]]) -> Bool {
    switch change.shape.operation {
    case .delete: true
    case .update: place < change.items.count - 2 * change.shape.columns.count
    case .insert: primaryKeys[change.shape.table]?.contains(change.shape.columns[place]) ?? true
    }
  }
}

extension PayloadReader.Item {
  fileprivate var byteCount: Int {
    switch self {
    case .null, .integer, .real: 0
    case .text(let bytes), .blob(let bytes): bytes.count
    }
  }
}

extension PayloadWriter {
  fileprivate mutating func item(_ item: PayloadReader.Item, _ reference: BlobReference?) {
    if let reference { return self.reference(reference) }
    switch item {
    case .null: null()
    case .integer(let number): integer(number)
    case .real(let number): real(number)
    case .text(let bytes): text(bytes)
    case .blob(let bytes): blob(bytes)
    }
  }
}
