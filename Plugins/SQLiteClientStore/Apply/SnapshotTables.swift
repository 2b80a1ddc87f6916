import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import SnapshotFiles

/// The rows of a snapshot, as a part of a download: the lines that would have said the same.
extension DownloadStream {
  private static var chunkBytes: Int { 256 << 10 }

  func take(_ file: AttachedSnapshot) throws {
    for table in file.tables {
      let number = try context.captured(table.name).number
      if let onlyTables, !onlyTables.contains(number) { continue }
      if onlyTables != nil {
        _ = try readRows(table, of: file)
      } else if try !carryOver(table, of: file), try readRows(table, of: file) {
        report.notices.append(
          "The rows of \(table.name) came from their file one by one: the table has rows, changes or triggers of this device."
        )
      }
      // Rows with large values stand apart, as the lines of a download.
      try context.connection.query(
        "SELECT payload FROM \(file.alias).\(SnapshotFormat.apartTable) WHERE \"table\" = ?1", [.text(table.name)]
      ) { row in
        let payload = try row.withText(0) { try LargeBlobs(context: context).taken(of: Array($0)) }
        try payload.withUnsafeBytes { try read($0) }
        return true
      }
    }
  }

  /// By one statement, where the table was empty, nobody wrote it and no trigger fires: SQLite carries whole records over where
  /// both tables are alike. False: row by row.
  private func carryOver(_ table: Table, of file: AttachedSnapshot) throws -> Bool {
    let target = try target(table.name)
    guard touched.isWhole.contains(target.table.number), leaving.isEmpty else { return false }
    prepareWrite(target.table)
    let connection = context.connection
    let (here, there) = (try columns(of: table, in: "main"), try columns(of: table, in: file.alias))
    let names = here == there ? nil : table.travelling.map { quoted($0.name) }.joined(separator: ", ")
    let sql =
      "INSERT INTO main.\(quoted(table.name))\(names.map { " (\($0))" } ?? "") "
      + "SELECT \(names ?? "*") FROM \(file.alias).\(quoted(table.name))"
    // In the order of the keys: pages that are full are done, and a large cache would hold them for nothing.
    let cache = try connection.integer("PRAGMA main.cache_size") ?? 0
    try connection.execute("PRAGMA main.cache_size = -2048")
    defer { try? connection.execute("PRAGMA main.cache_size = \(cache)") }
    do {
      try connection.prepare(sql).run()
    } catch let error as SalvorError where error.isConstraintViolation {
      // The rows that are in the way are named one by one.
      return false
    }
    report.upserts += Int64(connection.changes)
    return true
  }

  private func columns(of table: Table, in schema: String) throws -> [[Value]] {
    try context.connection.rows("SELECT name FROM pragma_table_xinfo(?1, ?2)", .text(table.name), .text(schema))
  }

  /// False: the file has none.
  private func readRows(_ table: Table, of file: AttachedSnapshot) throws -> Bool {
    var hasRows = false
    let names = table.travelling.map(\.name)
    var writer = DownloadChunkWriter(capacity: Self.chunkBytes + 4096)
    func hand(_ writer: inout DownloadChunkWriter) throws {
      try writer.finish().withUnsafeBytes { try read($0) }
      writer = DownloadChunkWriter(capacity: Self.chunkBytes + 4096)
    }
    let columns = names.map(quoted).joined(separator: ", ")
    let rows = try context.connection.prepare("SELECT \(columns) FROM \(file.alias).\(quoted(table.name))")
    while try rows.step() {
      hasRows = true
      writer.table(table.name, columns: names)
      writer.beginRow(version: nil)
      for value in rows.values() { writer.value(value) }
      writer.endRow()
      if writer.byteCount >= Self.chunkBytes { try hand(&writer) }
    }
    if writer.byteCount > 0 { try hand(&writer) }
    return hasRows
  }
}
