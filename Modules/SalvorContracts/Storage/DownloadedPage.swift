import SalvorModel
import SalvorStorage
import SalvorWire

/// One page of a download, read.
struct DownloadedPage: Sendable {
  struct Item: Sendable, Hashable {
    var table: String
    /// Name and value; for a departure the key alone.
    var columns: [String]
    var values: [Value]
    var departure: Departure?
    var version: Int64?
    /// The columns that were changed alone.
    var isPart = false
  }

  var full: [String] = []
  var items: [Item] = []

  init(_ bytes: [UInt8], schema: Schema) throws {
    var page = DownloadedPage()
    try bytes.withUnsafeBufferPointer { buffer in
      var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
      var table = ""
      var columns: [String] = []
      while let event = try reader.next() {
        switch event {
        case .full(let tables): page.full += tables
        case .table(let name, let names):
          table = name
          columns = names
        case .part(let version):
          var values: [Value] = []
          while let item = try reader.item() { values.append(item.value) }
          try expectEqual(values.count, columns.count, "the values of a part of a row of \(table)")
          page.items.append(Item(table: table, columns: columns, values: values, version: version, isPart: true))
        case .row(let version):
          var values: [Value] = []
          while let item = try reader.item() { values.append(item.value) }
          try expectEqual(values.count, columns.count, "the values of a downloaded row of \(table)")
          page.items.append(Item(table: table, columns: columns, values: values, version: version))
        case .key(let departure, let version):
          var values: [Value] = []
          while let item = try reader.item() { values.append(item.value) }
          let key = try expectSome(schema.table(table), "the table \(table)").primaryKey
          try expectEqual(values.count, key.count, "the values of a downloaded key of \(table)")
          page.items.append(
            Item(table: table, columns: key, values: values, departure: departure, version: version))
        }
      }
    }
    self = page
  }

  private init() {}
}

/// What a device has after its downloads: rows as name and value, by table and key.
struct Replica: Sendable {
  let schema: Schema
  private(set) var rows: [String: [Key: Row]] = [:]

  init(_ schema: Schema) { self.schema = schema }

  /// Applies a whole download, its pages in order.
  mutating func apply(_ pages: [DownloadedPage]) throws {
    let full = Set(pages.flatMap(\.full))
    for table in full { rows[table] = [:] }
    for item in pages.flatMap(\.items) {
      let table = try expectSome(schema.table(item.table), "the table \(item.table)")
      guard item.departure == nil else {
        rows[table.name, default: [:]][item.values] = nil
        continue
      }
      let key = try table.primaryKey.map { name in
        item.values[try expectSome(item.columns.firstIndex(of: name), "the key column \(name)")]
      }
      // A part of a row that came to be later comes before the row.
      guard !item.isPart || rows[table.name]?[key] != nil else { continue }
      var row = item.isPart ? rows[table.name]?[key] ?? [] : table.columns.map { $0.defaultValue ?? .null }
      for (name, value) in zip(item.columns, item.values) {
        row[try expectSome(table.columnIndex(name), "the column \(name)")] = value
      }
      rows[table.name, default: [:]][table.key(of: row)] = row
    }
  }

  func rows(of table: String) -> Set<Row> { Set((rows[table] ?? [:]).values) }
}
