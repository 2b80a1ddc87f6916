import SalvorModel
import SalvorStorage
import SalvorWire

/// Erases rows, and what the database holds of them besides. Runs in one transaction of the store's.
///
/// The key of an erased row stays in the change log, with the values that decide who could see it, until the log is trimmed:
/// devices learn of the delete by them.
package struct Purge {
  private let connection: any StoreConnection
  private let catalog: Catalog
  /// What the database itself has of a row beside its tables.
  private let forgetLeftovers: (ServerTable, Key) throws -> Void
  package private(set) var report = PurgeReport()
  private var erased: Set<RowName> = []

  package init(
    _ connection: any StoreConnection, _ catalog: Catalog,
    forgetLeftovers: @escaping (ServerTable, Key) throws -> Void = { _, _ in }
  ) {
    self.connection = connection
    self.catalog = catalog
    self.forgetLeftovers = forgetLeftovers
  }

  /// Errors: `not-found`.
  package static func place(of table: String, _ catalog: Catalog) throws -> Int {
    if let place = catalog.place(of: table) { return place }
    throw SalvorError(
      .notFound,
      "The schema has no synchronized table \(table). It has \(catalog.tables.map(\.name).joined(separator: ", ")).",
      context: ["table": table])
  }

  /// The row goes, and with it those that the database's foreign keys take along (`ON DELETE CASCADE`): they are erased as it is.
  ///
  /// Errors: `cannot-stand` where rows need the row that do not go with it.
  package mutating func erase(_ place: Int, _ asked: Key) throws {
    let table = catalog.tables[place]
    let key = try Self.stored(asked, in: table, connection)
    let along = try rowsAlong(place, key)
    do {
      try connection.run(
        "DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
    } catch let error as SalvorError where connection.refusesRow(error) {
      throw SalvorError(
        .cannotStand,
        "A row of \(table.name) cannot be erased: \(error.context["detail"] ?? error.message). Purge or delete the rows that need it first. Nothing was changed.",
        context: ["table": table.name])
    }
    report.rows += Int64(connection.changes)
    try forget(place, key)
    for row in along where try !isThere(row) {
      report.rows += 1
      report.along += 1
      try forget(row.place, row.key)
    }
  }

  /// The key as its row has it, or would have it: a person may write a UUID in braces, and the ledger knows a key by its bytes.
  package static func stored(_ key: Key, in table: ServerTable, _ connection: any StoreConnection) throws -> Key {
    let found = try connection.rows(
      "SELECT \(table.keyList("x")) FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
    if let found = found.first { return found }
    return try zip(table.keyPlaces, key).map { place, value in
      try connection.asStored(value, in: table.name, table.columns[place].name) ?? value
    }
  }

  private func isThere(_ row: RowName) throws -> Bool {
    let table = catalog.tables[row.place]
    return try !connection.rows(
      "SELECT 1 FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", row.key
    ).isEmpty
  }

  /// Rows of the schema's tables that a delete of this one takes along, at whatever distance.
  private func rowsAlong(_ place: Int, _ key: Key) throws -> [RowName] {
    var found: [RowName] = []
    // References may go in circles.
    var seen = [RowName(place: place, key: key)] as Set
    var open = Array(seen)
    while let row = open.popLast() {
      let parent = catalog.tables[row.place]
      for (place, table) in catalog.tables.enumerated() {
        for cascade in table.cascades where cascade.parent == parent.name {
          let isChild = zip(cascade.columns, cascade.parentColumns).map { "c.\(quoted($0)) = x.\(quoted($1))" }
          for below in try connection.rows(
            """
            SELECT \(table.keyList("c")) FROM \(table.sql) AS c, \(parent.sql) AS x
            WHERE \(parent.keyMatches("x") { "?\($0 + 1)" }) AND \(isChild.joined(separator: " AND "))
            """, row.key)
          {
            let name = RowName(place: place, key: below)
            guard seen.insert(name).inserted else { continue }
            found.append(name)
            open.append(name)
          }
        }
      }
    }
    return found
  }

  /// What the database holds of a row beside its table.
  private mutating func forget(_ place: Int, _ key: Key) throws {
    guard erased.insert(RowName(place: place, key: key)).inserted else { return }
    let table = catalog.tables[place]
    let text = Value.text(JSONValue.array(key.map { JSONValue($0) }).text)
    try connection.run("DELETE FROM salvor_conflict WHERE \"table\" = ?1 AND key = ?2", .text(table.name), text)
    report.conflicts += Int64(connection.changes)
    for name in ["salvor_healed", "salvor_healed_delete"] {
      try connection.run("DELETE FROM \(name) WHERE t = ?1 AND key = ?2", .integer(table.number), text)
    }
    try HealBook.forget(table, key, connection, catalog)
    try WaitingBook(connection: connection).forget(table.name, key: text)
    try forgetBlobs(table, text)
    try forgetLeftovers(table, key)
  }

  /// Writes what was erased into the ledger (`PurgeBook.note`), and gives the report.
  package func note(
    in book: PurgeBook, _ ledger: PurgeLedger?, at now: Int64, _ server: ServerID
  ) throws -> PurgeReport {
    var report = report
    for (place, rows) in Dictionary(grouping: erased, by: \.place).sorted(by: { $0.key < $1.key }) {
      let keys = rows.map(\.key).sorted(by: keyPrecedes)
      report.keys += try book.note(.purge, keys, of: catalog.tables[place], at: now, in: ledger, server)
    }
    return report
  }

  /// The same after a restore, of a row that no other row needed when it was purged: rows that need it have come back with it. They lose
  /// their reference where it may be empty, and go where it may not.
  ///
  /// - Returns: how many rows that was.
  package mutating func eraseAgain(_ place: Int, _ key: Key) throws -> Int64 {
    var changed: Int64 = 0
    var seen: Set<RowName> = []
    try release(place, key, &seen, &changed)
    try erase(place, key)
    return changed
  }

  private struct RowName: Hashable {
    var place: Int
    var key: Key
  }

  /// Rows of the schema's tables that reference this one and do not follow it by a foreign key action.
  private func release(_ place: Int, _ key: Key, _ seen: inout Set<RowName>, _ changed: inout Int64) throws {
    // References may go in circles.
    guard key.count == 1, seen.insert(RowName(place: place, key: key)).inserted else { return }
    let name = catalog.tables[place].name
    for child in catalog.tables.indices {
      let table = catalog.tables[child]
      for reference in table.table.references
      where reference.table == name && [.noAction, .restrict].contains(reference.onDelete) {
        guard let column = table.place(reference.column) else { continue }
        let needs = "\(quoted(reference.column)) = ?1"
        if table.columns[column].nullable, !table.table.primaryKey.contains(reference.column) {
          try connection.run("UPDATE \(table.sql) SET \(quoted(reference.column)) = NULL WHERE \(needs)", key)
          changed += Int64(connection.changes)
          continue
        }
        for below in try connection.rows("SELECT \(table.keyList()) FROM \(table.sql) WHERE \(needs)", key) {
          guard !seen.contains(RowName(place: child, key: below)) else { continue }
          try release(child, below, &seen, &changed)
          try connection.run(
            "DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", below)
          changed += Int64(connection.changes)
        }
      }
    }
  }

  private func forgetBlobs(_ table: ServerTable, _ key: Value) throws {
    try connection.run(
      """
      DELETE FROM salvor_blob_part WHERE blob IN (SELECT id FROM salvor_blob WHERE hash IN
        (SELECT hash FROM salvor_blob_hint WHERE "table" = ?1 AND key = ?2))
      """, .text(table.name), key)
    try connection.run(
      "DELETE FROM salvor_blob WHERE hash IN (SELECT hash FROM salvor_blob_hint WHERE \"table\" = ?1 AND key = ?2)",
      .text(table.name), key)
    try connection.run("DELETE FROM salvor_blob_hint WHERE \"table\" = ?1 AND key = ?2", .text(table.name), key)
  }

  /// Whoever was sending sends again. The results of uploads keep what was decided, without the rows that stood beside it.
  package func forgetOnTheWay() throws {
    try Staging(connection: connection).forgetAll()
    try connection.execute("DELETE FROM salvor_staging")
    var last = ""
    while true {
      // One remote has one result; the larger ones are some hundred KiB.
      let row = try connection.rows(
        "SELECT remote, result FROM salvor_result WHERE remote > ?1 ORDER BY remote LIMIT 1", .text(last)
      ).first
      guard let row, let remote = row[0].string else { return }
      last = remote
      guard var results = try? UploadResults(JSONValue(parsing: Array((row[1].string ?? "").utf8))),
        results.refused.contains(where: { !$0.serverRows.isEmpty })
      else { continue }
      for place in results.refused.indices { results.refused[place].serverRows = [] }
      try connection.run(
        "UPDATE salvor_result SET result = ?2 WHERE remote = ?1", .text(remote), .text(results.json.text))
    }
  }
}
