import SalvorModel

/// What a first sync moves.
enum DataSet {
  case records(RecordData, count: Int)
  case dinesafe(DinesafeData)

  private static let batchRows = 10_000

  var schema: Schema {
    switch self {
    case .records: RecordData.schema
    case .dinesafe: DinesafeData.schema
    }
  }

  var schemaName: String {
    switch self {
    case .records: "record"
    case .dinesafe: "dinesafe"
    }
  }

  var rowCount: Int {
    switch self {
    case .records(_, let count): count
    case .dinesafe(let data): data.rowCount
    }
  }

  /// Calls `body` with the rows, parents first, in batches of which one is in memory at a time.
  ///
  /// - Parameter inKeyOrder: as a server's feed sends them; otherwise in the order in which they were made. (DineSafe
  ///   stands in the order of its files.)
  func eachBatch(inKeyOrder: Bool, _ body: (Table, RowArena) throws -> Void) throws {
    switch self {
    case .dinesafe(let data):
      for (table, rows) in data.tables { try body(table, rows) }
    case .records(let data, let count):
      let order = inKeyOrder ? data.keyOrder(count) : nil
      var rows = RowArena(columnCount: RecordData.table.columns.count)
      for start in stride(from: 0, to: count, by: DataSet.batchRows) {
        rows.removeAll()
        for place in start..<min(count, start + DataSet.batchRows) {
          data.append(order.map { Int($0[place]) } ?? place, to: &rows)
        }
        try body(RecordData.table, rows)
      }
    }
  }
}
