import SalvorModel
import SalvorStorage

/// What the database knows of one row, for people who ask why it is there, or not.
package struct RowInquiry {
  let rows: RowReader
  private var connection: any StoreConnection { rows.connection }
  private var catalog: Catalog { rows.catalog }
  private static let conflictsMax = 100

  package init(_ rows: RowReader) { self.rows = rows }

  package func facts(of name: String, _ key: Key, in scopes: [ReadScope]) throws -> ServerRowFacts {
    guard let place = catalog.place(of: name) else {
      throw SalvorError(
        .notFound, "The schema has no table \(name). It has \(catalog.tables.map(\.name).joined(separator: ", ")).",
        context: ["table": name])
    }
    var facts = ServerRowFacts()
    let row = try rows.row(place, key)
    facts.isThere = row != nil
    if let row { facts.findings = try scopes.map { try finding(row, place, $0) } }
    facts.lastChange = try lastChange(catalog.tables[place], key)
    facts.trimmed = try FeedPageMaker.trimmed(connection)
    facts.conflicts = try ConflictBook(rows).versions(of: name, key, limit: Self.conflictsMax)
    return facts
  }

  private func finding(_ row: Row, _ place: Int, _ scope: ReadScope) throws -> ScopeFinding {
    let table = catalog.tables[place]
    let search = ScopeSearch(
      by: ScopeReader(catalog.schema, scope),
      value: { column, row, name in
        catalog.table(name).flatMap { table in table.place(column).map { row[$0] } } ?? .null
      },
      rows: { join, value throws(any Error) in
        guard let joined = catalog.place(of: join.table) else { return [] }
        if join.reference != nil { return try rows.row(joined, [value]).map { [$0] } ?? [] }
        return try rows.rows(joined, by: join, value, scope.principal)
      })
    return try search.finding(row, of: table.name, by: table.alternatives)
  }

  /// By the index of the log. Entries that say of a row only that its scope moved, or that one device holds something else,
  /// wrote nothing.
  private func lastChange(_ table: ServerTable, _ key: Key) throws -> ServerRowFacts.Change? {
    var change: ServerRowFacts.Change?
    try connection.query(
      """
      SELECT c.op, k.number, k.time, k.remote, r.principal
      FROM salvor_change c\(connection.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))
      LEFT JOIN salvor_commit k ON k.number = (SELECT number FROM salvor_commit WHERE last_seq >= c.seq ORDER BY last_seq LIMIT 1)
      LEFT JOIN salvor_remote r ON r.id = k.remote
      WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
        AND \(table.keyPlaces.indices.map { "c.v\($0) = ?\($0 + 1) AND \(connection.dialect.isSame("c.v\($0)", "?\($0 + 1)"))" }.joined(separator: " AND "))
        AND c.op > \(LogOperation.touch)
      ORDER BY c.seq DESC LIMIT 1
      """, key
    ) { row in
      let operation: Operation =
        switch row.int64(0) {
        case LogOperation.insert: .insert
        case LogOperation.delete: .delete
        default: .update
        }
      change = ServerRowFacts.Change(
        operation: operation, commit: row.isNull(1) ? nil : row.int64(1), time: row.isNull(2) ? nil : row.int64(2),
        remote: row.optionalString(3).flatMap { RemoteID($0) }, principal: row.optionalString(4))
      return false
    }
    return change
  }
}
