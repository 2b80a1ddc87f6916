import SQLiteSupport
import SalvorModel

extension StoreContext {
  /// Brings the values that the view of the error archive shows in line with the requests that are in error: after each step
  /// that changes which ones are, while later changes of their rows are still in the log. In a transaction.
  ///
  /// They stand in a table since a view that names the application's tables would be in the way of its migrations.
  func noteErrorValues() throws {
    try connection.run(
      """
      DELETE FROM salvor_error_value WHERE NOT EXISTS (SELECT 1 FROM salvor_outstanding s
        WHERE s.first = (SELECT max(first) FROM salvor_outstanding WHERE first <= salvor_error_value.seq) AND s.last >= seq AND s.\(OutstandingTable.inError))
      """)
    var missing: [LogEntry] = []
    try connection.query(
      """
      SELECT \(catalog.logColumns) FROM salvor_outstanding s JOIN salvor_log g ON g.seq BETWEEN s.first AND s.last
      WHERE s.\(OutstandingTable.inError) AND g.op IN (1, 2, 11) AND NOT EXISTS (SELECT 1 FROM salvor_error_value v WHERE v.seq = g.seq)
      """
    ) { row in
      missing.append(try catalog.entry(from: row))
      return true
    }
    guard !missing.isEmpty else { return }
    let index = try LogIndex(self)
    var timelines: [RowRef: [Int64: RowTimeline.Step]] = [:]
    for entry in missing {
      guard let table = catalog.table(number: entry.table) else { continue }
      let ref = RowRef(table: entry.table, key: entry.key(table))
      if timelines[ref] == nil {
        let steps = try index.timeline(table, ref.key).steps
        timelines[ref] = Dictionary(uniqueKeysWithValues: steps.map { ($0.seq, $0) })
      }
      guard let step = timelines[ref]?[entry.seq] else { continue }
      try connection.run(
        "INSERT INTO salvor_error_value (seq, after) VALUES (?1, ?2)", .integer(entry.seq),
        .text(written(step.change, table)))
    }
  }

  /// `name = literal, …`, as the view has what a change replaced.
  private func written(_ change: RowChange, _ table: CapturedTable) -> String {
    let values: [(slot: Int, value: Value)] =
      switch change {
      case .insert(let row): row.enumerated().map { ($0, $1) }
      case .update(let news): news.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
      case .delete: []
      }
    return values.map { "\(table.columns[$0.slot].name) = \(literal($0.value))" }.joined(separator: ", ")
  }
}
