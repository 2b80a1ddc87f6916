import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Which unchanged rows an upload names as context (semantics 4, *parent closure*): the parents of every row that it
/// changes, and theirs, up to the root, each once.
///
/// A changed row's parents are those that its base references, which the row is made from where the server has lost it,
/// and those that it references after each of its outstanding requests. A parent is named where it has a base, with the
/// parents of that base. Rows that the upload changes itself are none: they come with their values.
///
/// It is written down (`salvor_upload_context`) when the upload is chosen, so that a resend says the same whatever the
/// application writes meanwhile. By set; tables that neither reference nor are referenced cost nothing.
struct ParentClosure {
  let context: StoreContext
  private let references: [ParentReference]
  private var connection: SQLiteConnection { context.connection }
  /// How many key columns `held` and `mixed` have.
  private let keyWidth: Int
  /// That a log row `g` belongs to the upload.
  private let isSent: String

  /// Rows of referenced tables with a change in the upload.
  private let changed = "temp.salvor_closure_changed"
  /// Rows with a change in the log that is not in the upload: of a request in error, or of another group. Few.
  private let held: String
  /// Those of them that have a change in the upload, too, with its counter.
  private let mixed: String
  /// The parents found, the newest last.
  private let found = "temp.salvor_closure_found"

  init(_ context: StoreContext) throws {
    self.context = context
    references = context.catalog.tables.flatMap { ParentReference.all(of: $0, context) }
    keyWidth = max(1, references.map(\.child.keyCount).max() ?? 1)
    held = "temp.salvor_closure_held_\(keyWidth)"
    mixed = "temp.salvor_closure_mixed_\(keyWidth)"
    // Runs of counters do not overlap: the one that begins last before a change is the only one that may hold it.
    let leftOut = try ["salvor_request_state", "salvor_upload_excluded"].filter {
      try context.connection.integer("SELECT 1 FROM \($0) LIMIT 1") != nil
    }.map {
      " AND coalesce((SELECT r.last FROM \($0) r WHERE r.first <= g.seq ORDER BY r.first DESC LIMIT 1), 0) < g.seq"
    }
    isSent =
      "g.seq <= (SELECT value FROM salvor_state WHERE name = '\(StateName.uploadLast.rawValue)')" + leftOut.joined()
  }

  /// In the transaction that has chosen the upload.
  func write() throws {
    try connection.run("DELETE FROM salvor_upload_context")
    let logged = try loggedTables()
    guard references.contains(where: { logged.contains($0.child.number) }) else { return }
    try makeTables()
    try collect(logged)
    for reference in references where logged.contains(reference.child.number) {
      try addParents(ofChanged: reference)
    }
    let index = try connection.integer("SELECT 1 FROM \(held) LIMIT 1") == nil ? nil : try LogIndex(context)
    var done: Int64 = 0
    while let end = try connection.integer("SELECT max(id) FROM \(found)"), end > done {
      if let index { try addParentsOfHeld(index, after: done, to: end) }
      try addParents(after: done, to: end)
      done = end
    }
    try writeDown()
    try makeTables()
  }

  // MARK: What is there

  /// Makes the temporary tables, or empties them.
  private func makeTables() throws {
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    try connection.execute(
      """
      CREATE TABLE IF NOT EXISTS \(changed) (t, k0, PRIMARY KEY (t, k0)) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS \(held) (t, \(keys), PRIMARY KEY (t, \(keys))) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS \(mixed) (t, \(keys), seq, PRIMARY KEY (t, \(keys))) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS \(found) (id INTEGER PRIMARY KEY, t, k0, seq, has_base, UNIQUE (t, k0));
      DELETE FROM \(changed); DELETE FROM \(held); DELETE FROM \(mixed); DELETE FROM \(found)
      """)
  }

  private func loggedTables() throws -> Set<Int64> {
    if references.isEmpty { return [] }
    return Set(
      try connection.rows("SELECT DISTINCT t FROM salvor_log WHERE op IN \(StoreContext.changeOperations)")
        .compactMap { $0[0].integer })
  }

  private func collect(_ logged: Set<Int64>) throws {
    let tables = Set(references.flatMap { [$0.child, $0.parent] }).filter { logged.contains($0.number) }
    let parents = Set(references.map(\.parent))
    for table in tables where parents.contains(table) {
      try connection.run(
        "INSERT OR IGNORE INTO \(changed) SELECT g.t, g.v0 FROM salvor_log g WHERE \(isChange(of: table)) AND \(isSent)"
      )
    }
    for table in tables {
      try connection.run(
        "INSERT OR IGNORE INTO \(held) SELECT g.t, \(logKey(table)) FROM salvor_log g WHERE \(isChange(of: table)) AND NOT (\(isSent))"
      )
    }
    guard try connection.integer("SELECT 1 FROM \(held) LIMIT 1") != nil else { return }
    for table in tables {
      try connection.run(
        "INSERT OR IGNORE INTO \(mixed) SELECT g.t, \(logKey(table)), g.seq FROM salvor_log g "
          + "WHERE \(isChange(of: table)) AND \(isSent) AND EXISTS (SELECT 1 FROM \(held) h WHERE \(isRow("h", of: table)))"
      )
    }
  }

  private func isChange(of table: CapturedTable) -> String {
    "g.t = \(table.number) AND g.op IN \(StoreContext.changeOperations)"
  }

  private func logKey(_ table: CapturedTable) -> String {
    (0..<keyWidth).map { $0 < table.keyCount ? "g.v\($0)" : "0" }.joined(separator: ", ")
  }

  /// That a row of a temporary table is the one that the log row `g` is about.
  private func isRow(_ alias: String, of table: CapturedTable) -> String {
    (["\(alias).t = \(table.number)"] + (0..<table.keyCount).map { "\(alias).k\($0) = g.v\($0)" })
      .joined(separator: " AND ")
  }

  /// That one of the temporary tables has a row of a referenced table.
  private func has(_ rows: String, _ parent: CapturedTable, _ value: String) -> String {
    "EXISTS (SELECT 1 FROM \(rows) h WHERE h.t = \(parent.number) AND h.k0 = \(value))"
  }

  // MARK: Parents

  /// Every value that a changed row's reference has had since its base: the old ones stand in its log rows, whosever
  /// they are, the last one in the row.
  private func addParents(ofChanged reference: ParentReference) throws {
    let child = reference.child
    let old = "g.v\(reference.slot)"
    try add(
      reference,
      "SELECT \(old) AS value, g.seq AS seq FROM salvor_log g WHERE \(isChange(of: child)) AND \(isSent) AND \(old) IS NOT NULL"
    )
    try add(
      reference,
      "SELECT \(old) AS value, m.seq AS seq FROM salvor_log g CROSS JOIN \(mixed) m "
        + "WHERE \(isChange(of: child)) AND \(isRow("m", of: child)) AND \(old) IS NOT NULL")
    try add(
      reference,
      "SELECT \(reference.column) AS value, g.seq AS seq FROM salvor_log g CROSS JOIN \(quoted(child.name)) x "
        + "WHERE \(isChange(of: child)) AND \(isSent) AND \(child.rowAt { "g.v\($0)" }) AND \(reference.column) IS NOT NULL"
    )
  }

  /// The parents of those found between two places, that have no change of their own.
  private func addParents(after start: Int64, to end: Int64) throws {
    for reference in try referencesOfFound(after: start, to: end) {
      let child = reference.child
      try add(
        reference,
        "SELECT \(reference.column) AS value, n.seq AS seq FROM \(found) n CROSS JOIN \(quoted(child.name)) x "
          + "WHERE n.id > ?1 AND n.id <= ?2 AND n.t = \(child.number) AND \(child.rowAt { _ in "n.k0" }) "
          + "AND \(reference.column) IS NOT NULL AND NOT \(has(held, child, "n.k0"))",
        [.integer(start), .integer(end)])
    }
  }

  /// Those with requests that are not sent: these are taken off to see the base.
  private func addParentsOfHeld(_ index: LogIndex, after start: Int64, to end: Int64) throws {
    let references = try referencesOfFound(after: start, to: end)
    for table in Set(self.references.map(\.parent)) {
      for row in try connection.rows(
        "SELECT n.id, n.k0, n.seq FROM \(found) n WHERE n.id > ?1 AND n.id <= ?2 AND n.t = ?3 AND \(has(held, table, "n.k0"))",
        .integer(start), .integer(end), .integer(table.number))
      {
        guard let base = try index.timeline(table, [row[1]]).base else {
          // It was made here and never confirmed: there is nothing that the server could have lost.
          try connection.run("UPDATE \(found) SET has_base = 0 WHERE id = ?1", row[0])
          continue
        }
        for reference in references where reference.child == table && !base[reference.slot].isNull {
          try add(reference, "SELECT ?1 AS value, ?2 AS seq", [base[reference.slot], row[2]])
        }
      }
    }
  }

  private func referencesOfFound(after start: Int64, to end: Int64) throws -> [ParentReference] {
    let numbers = try connection.rows(
      "SELECT DISTINCT t FROM \(found) WHERE id > ?1 AND id <= ?2", .integer(start), .integer(end)
    ).compactMap { $0[0].integer }
    return references.filter { numbers.contains($0.child.number) }
  }

  /// Adds the parents with the keys that `source` gives as `value`, under its `seq`: those that are there, or whose row a
  /// request that is not sent has taken away.
  private func add(_ reference: ParentReference, _ source: String, _ values: [Value] = []) throws {
    let parent = reference.parent
    let key = "coalesce(\(parent.tableColumn(0)), s.value)"
    try connection.run(
      "INSERT OR IGNORE INTO \(found) (t, k0, seq, has_base) SELECT \(parent.number), \(key), s.seq, 1 FROM (\(source)) s "
        + "LEFT JOIN \(quoted(parent.name)) x ON \(parent.tableColumn(0)) = s.value\(parent.andUnmarked()) "
        + "WHERE NOT \(has(changed, parent, key)) "
        + "AND (\(parent.tableColumn(0)) IS NOT NULL OR \(has(held, parent, "s.value")))",
      values)
  }

  private func writeDown() throws {
    let cursors = try connection.groupStates(context.schema.groups)
    for table in Set(references.map(\.parent)) {
      let group = context.group(of: table.number)
      try connection.run(
        "INSERT INTO salvor_upload_context (seq, t, key, made) SELECT seq, t, k0, ?2 FROM \(found) WHERE t = ?1 AND has_base ORDER BY seq, k0",
        .integer(table.number), .integer(cursors.first { $0.name == group }?.cursor?.number ?? 0))
    }
  }
}

/// A reference between captured tables that is proved on the device: not a soft one, whose parent may be elsewhere.
private struct ParentReference {
  var child: CapturedTable
  /// Of the referencing column.
  var slot: Int
  /// Its key is one column.
  var parent: CapturedTable

  /// The referencing column of the child (alias `x`).
  var column: String { child.tableColumn(slot) }

  static func all(of child: CapturedTable, _ context: StoreContext) -> [ParentReference] {
    (context.table(child)?.references ?? []).compactMap { reference in
      guard !reference.soft, let parent = context.catalog.table(reference.table), parent.keyCount == 1,
        let slot = child.columns.firstIndex(where: { $0.name.lowercased() == reference.column.lowercased() })
      else { return nil }
      return ParentReference(child: child, slot: slot, parent: parent)
    }
  }
}

/// The context that goes with an upload's changes, met in their order.
struct ContextCursor {
  private let catalog: CaptureCatalog
  /// Tables that the server does not know yet.
  private let unknown: Set<Int64>
  private let statement: SQLiteStatement
  private var hasRow: Bool

  init(_ context: StoreContext, after counter: Int64) throws {
    catalog = context.catalog
    unknown = context.additions.tables
    statement = try context.connection.prepare(
      "SELECT seq, t, made, key FROM salvor_upload_context WHERE seq > ?1 ORDER BY seq, t, key")
    try statement.bind(1, counter)
    hasRow = try statement.step()
  }

  /// Writes the parents that go with the change `counter`, or went with none before it.
  mutating func write(upTo counter: Int64, _ writer: inout UploadChunkWriter) throws {
    while hasRow, statement.int64(0) <= counter {
      if let table = catalog.table(number: statement.int64(1)), !unknown.contains(table.number) {
        writer.context(table: table.name, made: statement.int64(2), key: [statement.value(3)])
      }
      hasRow = try statement.step()
    }
  }
}
