import SalvorModel
import SalvorStorage

/// A second, empty table of the same form, without references, whose content can take the place of the first one's at once: rows are
/// written into it in many small transactions, and `exchange` swaps the two in one that is short however many rows there are.
///
/// Two tables whose statements are the same have pages of the same form. Where a table begins stands in `sqlite_schema.rootpage`;
/// that number, and those of the indexes, are exchanged (`PRAGMA writable_schema`). Names, triggers, indexes, views and references of
/// the original stay as they are.
public struct TableTwin: Sendable, Hashable {
  /// The name of the table whose content the twin replaces.
  public let original: String
  /// The twin's own name.
  public let name: String

  /// Its statements as they must be, the table's first, then those of the indexes; nil: the original cannot have one.
  private func statements(_ connection: SQLiteConnection) throws -> [String]? {
    let rows = try connection.rows(
      "SELECT type, sql FROM sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE AND type IN ('table', 'index') AND sql IS NOT NULL ORDER BY type DESC, name",
      .text(original))
    guard rows.first?[0].string == "table", let first = rows[0][1].string,
      let table = createTable(first, as: name)
    else { return nil }
    var statements = [table]
    for (place, row) in rows.dropFirst().enumerated() {
      guard let sql = row[1].string, let index = createIndex(sql, as: "\(name)_\(place)", on: name) else { return nil }
      statements.append(index)
    }
    return statements
  }

  /// Makes it, in a transaction. Nil: the original's form is not understood.
  public static func make(of original: String, as name: String, on connection: SQLiteConnection) throws -> TableTwin? {
    let twin = TableTwin(original: original, name: name)
    guard let statements = try twin.statements(connection) else { return nil }
    do {
      return try connection.savepoint("salvor_twin") {
        for statement in statements { try connection.execute(statement) }
        guard try twin.hasForm(of: original, connection) else { throw NoTwin() }
        return twin
      }
    } catch is NoTwin {
      return nil
    } catch let error as SalvorError where error.code == .storage {
      return nil
    }
  }

  private struct NoTwin: Error {}

  /// One that was made before, if it is there and the original has not changed its form since.
  public static func standing(of original: String, as name: String, on connection: SQLiteConnection) throws
    -> TableTwin?
  {
    let twin = TableTwin(original: original, name: name)
    let there = try connection.rows(
      "SELECT sql FROM sqlite_schema WHERE tbl_name = ?1 AND type IN ('table', 'index') AND sql IS NOT NULL ORDER BY type DESC, name",
      .text(name)
    ).compactMap { $0[0].string }
    guard let statements = try twin.statements(connection), Set(statements) == Set(there),
      statements.count == there.count
    else { return nil }
    return twin
  }

  /// Columns, keys and indexes are what the original's are; only references are not.
  private func hasForm(of original: String, _ connection: SQLiteConnection) throws -> Bool {
    guard var one = try connection.tableShape(original), var other = try connection.tableShape(name),
      other.foreignKeys.isEmpty
    else { return false }
    (one.name, other.name) = ("", "")
    one.foreignKeys = []
    for place in one.uniqueIndexes.indices { one.uniqueIndexes[place].name = "" }
    for place in other.uniqueIndexes.indices { other.uniqueIndexes[place].name = "" }
    func sorted(_ indexes: [TableShape.UniqueIndex]) -> [TableShape.UniqueIndex] {
      indexes.sorted { "\($0)" < "\($1)" }
    }
    one.uniqueIndexes = sorted(one.uniqueIndexes)
    other.uniqueIndexes = sorted(other.uniqueIndexes)
    guard one == other else { return false }
    for pair in try pairs(connection) {
      let forms = try [pair.one, pair.other].map { try connection.pragmaRows("index_xinfo", $0.name) }
      guard pair.isTable || forms[0] == forms[1] else { return false }
    }
    return true
  }

  private struct Place {
    var name: String
    var rowid: Int64
    var root: Int64
  }

  /// The tables and each index with its counterpart.
  private func pairs(_ connection: SQLiteConnection) throws -> [(one: Place, other: Place, isTable: Bool)] {
    func places(_ table: String) throws -> (table: [Place], own: [Place], automatic: [String: Place]) {
      var found: (table: [Place], own: [Place], automatic: [String: Place]) = ([], [], [:])
      for row in try connection.rows(
        "SELECT type, name, rowid, rootpage, sql IS NULL FROM sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE AND rootpage > 0 ORDER BY name",
        .text(table))
      {
        guard let name = row[1].string, let rowid = row[2].integer, let root = row[3].integer else { continue }
        let place = Place(name: name, rowid: rowid, root: root)
        if row[0].string == "table" {
          found.table.append(place)
        } else if row[4].integer == 1 {
          // sqlite_autoindex_TABLE_N, by the N of the constraints.
          found.automatic[name.split(separator: "_").last.map(String.init) ?? ""] = place
        } else {
          found.own.append(place)
        }
      }
      return found
    }
    let (one, other) = (try places(original), try places(name))
    // The twin's are numbered by the names of the original's: 10 stands behind 9.
    let numbered = try other.own.sorted { try number(of: $0.name) < number(of: $1.name) }
    guard one.table.count == 1, other.table.count == 1, one.own.count == numbered.count,
      Set(one.automatic.keys) == Set(other.automatic.keys)
    else { throw SalvorError(.storage, "The table \(original) has changed while its rows arrived. Sync again.") }
    return [(one.table[0], other.table[0], true)] + zip(one.own, numbered).map { ($0, $1, false) }
      + one.automatic.compactMap { key, place in other.automatic[key].map { (place, $0, false) } }
  }

  private func number(of index: String) throws -> Int {
    guard let number = Int(index.dropFirst(name.count + 1)) else {
      throw SalvorError(.storage, "The index \(index) is none of Salvor's. Drop it.")
    }
    return number
  }

  /// Exchanges the content of tables and twins, and drops the twins with what was in the tables. In a transaction; each twin was
  /// found by `standing` in it.
  public static func exchange(_ twins: [TableTwin], on connection: SQLiteConnection) throws {
    connection.clearStatementCache()
    let version = try connection.schemaVersion()
    var roots: [(rowid: Int64, root: Int64)] = []
    for twin in twins {
      for pair in try twin.pairs(connection) {
        roots += [(pair.one.rowid, pair.other.root), (pair.other.rowid, pair.one.root)]
      }
    }
    connection.setDefensive(false)
    try connection.execute("PRAGMA writable_schema = ON")
    do {
      defer { try? connection.execute("PRAGMA writable_schema = RESET") }
      for place in roots {
        try connection.run(
          "UPDATE sqlite_schema SET rootpage = ?2 WHERE rowid = ?1", .integer(place.rowid), .integer(place.root))
      }
      // Every connection reads the schema anew, this one too.
      try connection.execute("PRAGMA schema_version = \(version + 1)")
    }
    for twin in twins { try connection.execute("DROP TABLE \(quoted(twin.name))") }
  }
}
