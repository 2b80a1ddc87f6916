import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What a comparison's answers, kept for a rehearsal, say otherwise than the bases, without what the server has changed
/// since (`RecoveringClientStore.examine`). It holds what differs.
struct RowExamination {
  let context: StoreContext
  /// The table of the payloads.
  let source: String

  private var sql: String { "SELECT payload FROM \(source) ORDER BY id" }

  /// In a transaction.
  func run() throws -> [RowDifference] {
    let lines = StagedLines(context: context)
    let fed = try RowNames(context, "examined")
    defer { try? fed.clear() }
    try lines.each(
      sql,
      full: { names in
        throw SalvorError(
          .inconsistentDownload,
          "The scope of \(names.joined(separator: ", ")) has changed meanwhile. Synchronize, and verify again.")
      }
    ) { line in if line.version != nil { try fed.insert(line.table, line.key) } }
    let index = try LogIndex(context)
    var found: [RowDifference] = []
    try lines.each(sql) { line in
      guard line.version == nil, let table = context.table(line.table), try fed.insert(line.table, line.key) else {
        return
      }
      let base = try index.timeline(line.table, line.key).base
      let places = table.travelling.compactMap { column in
        line.table.columns.firstIndex { $0.name.folded == column.name.folded }
      }
      func inOrder(_ row: SlotRow?) -> Row? { row.map { row in places.map { row[$0] } } }
      let difference = RowDifference(
        table: table, key: line.key, here: inOrder(base), there: inOrder(line.row),
        isDirty: try index.mayContain(line.table, line.key))
      if let difference { found.append(difference) }
    }
    let order = context.schema.tables.map(\.name)
    return found.sorted { a, b in
      a.table == b.table
        ? keyPrecedes(a.key, b.key)
        : order.firstIndex(of: a.table) ?? 0 < order.firstIndex(of: b.table) ?? 0
    }
  }

  /// Puts the server's rows of these differences into staging, from which a recovery takes them. In a transaction.
  func stage(_ differences: [RowDifference]) throws {
    let wanted = try RowNames(context, "examined")
    defer { try? wanted.clear() }
    for difference in differences { try wanted.insert(try context.captured(difference.table), difference.key) }
    var writer = DownloadChunkWriter()
    func flush() throws {
      try context.connection.run("INSERT INTO salvor_staging (payload) VALUES (?1)", .text(writer.finish()))
      writer = DownloadChunkWriter()
    }
    try StagedLines(context: context).each(sql) { line in
      guard line.version == nil, try wanted.contains(line.table, line.key) else { return }
      writer.table(line.table.name, columns: line.table.columns.map(\.name))
      if line.row != nil { writer.beginRow(version: nil) } else { writer.beginKey(.lost, version: nil) }
      for value in line.row ?? line.key { writer.value(value) }
      writer.endRow()
      if writer.byteCount > 1 << 18 { try flush() }
    }
    try flush()
  }
}
