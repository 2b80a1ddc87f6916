import SalvorModel
import SalvorWire

/// The rows that decide what the sender of an upload sees, as they were before it: the change log has what the upload wrote over.
/// It is asked about rows that are hidden from him now, and reads what it has not read yet.
final class RowsBefore {
  private let rows: RowReader
  /// The last entry of the log before the upload.
  private let last: Int64
  private var read: Int64
  private var overlay: RowOverlay

  init(_ rows: RowReader, last: Int64) {
    self.rows = rows
    self.last = last
    read = last
    overlay = RowOverlay(rows)
  }

  /// What the upload had written is taken back.
  func forget() {
    read = last
    overlay = RowOverlay(rows)
  }

  /// Of rows that the upload has written, the columns that decide scopes, and the key; the others are NULL.
  func known() throws -> RowOverlay {
    let catalog = rows.catalog
    let sources = catalog.scopeSources.sorted()
    guard !sources.isEmpty else { return overlay }
    let operations = [LogOperation.insert, LogOperation.delete, LogOperation.move, LogOperation.replaced]
    let values = (0..<catalog.logWidth).map { "v\($0)" }.joined(separator: ", ")
    try rows.connection.query(
      """
      SELECT seq, op, t, \(values) FROM salvor_change
      WHERE seq > ?1 AND op IN (\(operations.map(String.init).joined(separator: ", ")))
        AND t IN (\(sources.map(String.init).joined(separator: ", "))) ORDER BY seq
      """, [.integer(read)]
    ) { entry in
      read = entry.int64(0)
      guard let place = catalog.place(number: entry.int64(2)) else { return true }
      let table = catalog.tables[place]
      let key = table.logKey(of: entry, from: 3)
      let hash = RowHash(table: table.name).adding(key)
      let operation = entry.int64(1)
      // The first entry says it. A row that took the key of one that it replaced is logged as inserted before.
      guard overlay[hash] == nil || operation == LogOperation.replaced && overlay[hash]?.now == nil else { return true }
      overlay.put(place, key, hash, operation == LogOperation.insert ? nil : row(table, key, entry))
      return true
    }
    return overlay
  }

  private func row(_ table: ServerTable, _ key: Key, _ entry: any StoreStatement) -> Row {
    var row = table.columns.map { _ in Value.null }
    for (index, column) in table.relevant.enumerated() {
      guard let place = table.place(column) else { continue }
      row[place] = table.dialect.unlogged(entry.value(3 + table.keyCount + index), table.types[place])
    }
    for (place, value) in zip(table.keyPlaces, key) { row[place] = value }
    return row
  }
}
