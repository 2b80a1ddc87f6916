import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// One line of a download payload, its row by slot.
struct StagedLine {
  var table: CapturedTable
  var key: Key
  /// Nil: the device is not to have such a row.
  var row: SlotRow?
  /// Why; nil where there is a row.
  var departure: Departure?
  /// Nil: the line answers a question; else a commit that the feed tells of.
  var version: Int64?
}

/// Reads payload line by line, where its rows are looked at before they are applied.
struct StagedLines {
  let context: StoreContext

  /// - Parameters:
  ///   - sql: selects pieces of payload, in order.
  ///   - full: called with the tables that a piece says to be whole.
  func each(
    _ sql: String, _ values: [Value] = [], full: ([String]) throws -> Void = { _ in },
    _ body: (StagedLine) throws -> Void
  ) throws {
    try context.connection.query(sql, values) { piece in
      try piece.withText(0) { text in
        try each(
          UnsafeBufferPointer(start: text.baseAddress?.assumingMemoryBound(to: UInt8.self), count: text.count), full,
          body)
      }
      return true
    }
  }

  private func each(
    _ text: UnsafeBufferPointer<UInt8>, _ full: ([String]) throws -> Void, _ body: (StagedLine) throws -> Void
  ) throws {
    let blobs = StagedBlobs(staging: BlobStaging(context: context), rehearses: context.rehearses)
    var reader = DownloadChunkReader(text, blobs: blobs)
    var table: CapturedTable?
    var slots: [Int?] = []
    var defaults: SlotRow = []
    while let event = try reader.next() {
      switch event {
      case .full(let names): try full(names)
      case .table(let name, let columns):
        let found = try context.captured(name)
        table = found
        defaults = self.defaults(found)
        slots = columns.map { column in
          found.columns.firstIndex { $0.name.folded == column.folded }
        }
      case .row(let version):
        guard let table else { continue }
        var row = defaults
        var place = 0
        while let item = try reader.item() {
          if place < slots.count, let slot = slots[place] { row[slot] = item.value }
          place += 1
        }
        try body(StagedLine(table: table, key: Array(row.prefix(table.keyCount)), row: row, version: version))
      case .part: throw reader.malformed("a part of a row in an answer to a question")
      case .key(let departure, let version):
        guard let table else { continue }
        var key: Key = []
        while let item = try reader.item() { key.append(item.value) }
        try body(StagedLine(table: table, key: key, row: nil, departure: departure, version: version))
      }
    }
  }

  private func defaults(_ table: CapturedTable) -> SlotRow {
    let columns = context.table(table)?.columns ?? []
    return table.columns.map { column in
      columns.first { $0.name.folded == column.name.folded }?.defaultValue ?? .null
    }
  }
}

/// Keys of rows, in a temporary table.
struct RowNames {
  private let connection: SQLiteConnection
  private let name: String
  private let keyWidth: Int

  /// Empty.
  init(_ context: StoreContext, _ purpose: String) throws {
    connection = context.connection
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    name = "temp.salvor_\(purpose)_\(keyWidth)"
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(name) (t, \(keys), PRIMARY KEY (t, \(keys))) WITHOUT ROWID; DELETE FROM \(name)")
  }

  /// False: it was there.
  @discardableResult
  func insert(_ table: CapturedTable, _ key: Key) throws -> Bool {
    let slots = (1...keyWidth + 1).map { "?\($0)" }.joined(separator: ", ")
    try connection.run("INSERT OR IGNORE INTO \(name) VALUES (\(slots))", values(table, key))
    return connection.changes > 0
  }

  func contains(_ table: CapturedTable, _ key: Key) throws -> Bool {
    let condition = (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    return try connection.integer("SELECT 1 FROM \(name) WHERE t = ?1 AND \(condition)", values(table, key)) != nil
  }

  /// Whether it contains the row `x` of the table.
  func condition(_ table: CapturedTable) -> String {
    let keys = (0..<keyWidth).map { place in
      "n.k\(place) = " + (place < table.keyCount ? table.tableColumn(table.keySlots[place]) : "0")
    }
    return "EXISTS (SELECT 1 FROM \(name) n WHERE n.t = \(table.number) AND \(keys.joined(separator: " AND ")))"
  }

  func clear() throws { try connection.execute("DELETE FROM \(name)") }

  private func values(_ table: CapturedTable, _ key: Key) -> [Value] {
    [.integer(table.number)] + key + Array(repeating: .integer(0), count: keyWidth - key.count)
  }
}
