import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides and applies one request with all that may speak against it: the server's row, the scope, conflicts, the
/// constraints. Whatever is not accepted leaves the tables as they were.
final class CarefulChanges {
  enum Outcome {
    case accepted
    /// Accepted; what it says stands beside the server's row as a conflict version.
    case kept
    case refused(RefusalText)
    /// A later request may bring what it lacks.
    case lacks(RefusalText)
  }

  struct FedRow {
    var table: Int
    var key: Key
    var hash: UInt64
  }

  let connection: SQLiteConnection
  let catalog: Catalog
  private let rows: RowReader
  private let upload: ProcessRequest
  private let now: Int64
  private let filters: [ScopeFilter?]
  private var rowsToFeed: [FedRow] = []
  /// The server's rows that a conflict leaves standing, of the request at hand.
  private var standing: [(change: StagedChange, server: Row)] = []

  init(_ connection: SQLiteConnection, _ catalog: Catalog, _ rows: RowReader, _ upload: ProcessRequest, now: Int64) {
    self.connection = connection
    self.catalog = catalog
    self.rows = rows
    self.upload = upload
    self.now = now
    filters = catalog.tables.map { ScopeFilter($0, upload.principal, catalog) }
  }

  func takeRowsToFeed() -> [FedRow] {
    defer { rowsToFeed = [] }
    return rowsToFeed
  }

  func attempt(_ request: StagedRequest, _ foreign: inout ForeignChanges) throws -> Outcome {
    let outcome = try attempt(request, &foreign, parked: false)
    // Rows of one request may swap unique values, which SQLite checks row by row.
    if case .lacks(let text) = outcome, request.changes.count > 1, text.reason == .constraint {
      let swapped = try attempt(request, &foreign, parked: true)
      if case .lacks = swapped { return outcome }
      return swapped
    }
    return outcome
  }

  private func attempt(_ request: StagedRequest, _ foreign: inout ForeignChanges, parked: Bool) throws -> Outcome {
    standing = []
    let fedBefore = rowsToFeed.count
    let defers = request.changes.count > 1 || catalog.hasDeferrableForeignKeys
    try connection.execute("SAVEPOINT salvor_request")
    if defers { try connection.execute("PRAGMA defer_foreign_keys = ON") }
    var outcome = Outcome.accepted
    do {
      if parked { try park(request) }
      changes: for change in request.changes {
        let found = try apply(change, &foreign)
        switch found {
        case .accepted, .kept: continue
        default:
          outcome = found
          break changes
        }
      }
      if case .accepted = outcome, defers, connection.hasUnresolvedForeignKeys { outcome = .lacks(try brokenReference(request)) }
    } catch let error as SalvorError where error.isConstraintViolation {
      // Parking broke a constraint: it is no way round.
      outcome = .lacks(RefusalText(.constraint, "The rows of the request break a constraint. Correct them."))
    }
    if case .accepted = outcome, !standing.isEmpty { outcome = .kept }
    if case .accepted = outcome {
      if defers { try connection.execute("PRAGMA defer_foreign_keys = OFF") }
      try connection.execute("RELEASE salvor_request")
      return outcome
    }
    rowsToFeed.removeSubrange(fedBefore...)
    try connection.execute("ROLLBACK TO salvor_request")
    if defers { try connection.execute("PRAGMA defer_foreign_keys = OFF") }
    try connection.execute("RELEASE salvor_request")
    if case .kept = outcome { return try keep(request) }
    return outcome
  }

  private func apply(_ change: StagedChange, _ foreign: inout ForeignChanges) throws -> Outcome {
    guard let place = change.table else { return .refused(RefusalText(.unknownTable, "The table is unknown.")) }
    let present = try rows.row(place, change.key)
    if present != nil, try !isInScope(place, change.key) { return .refused(outOfScope(place)) }
    switch change.operation {
    case .insert:
      guard let present else { return try write(change, place, over: nil) }
      return try insert(change, place, over: present)
    case .update:
      guard let present else {
        return .refused(
          RefusalText(
            .rowDeleted,
            "The row of \(catalog.tables[place].name) was deleted on the server. Withdraw the change or insert the row."))
      }
      let isNewer = try foreign.isNewer(change.hash, than: change.made)
      // The device is fed the row: others changed it, too.
      if isNewer { rowsToFeed.append(FedRow(table: place, key: change.key, hash: change.hash)) }
      let isInConflict =
        isNewer
        && change.columns.indices.contains { index in
          let value = present[change.columns[index]]
          return value != change.old[index] && value != change.new[index]
        }
      return isInConflict ? try settle(change, place, over: present) : try write(change, place, over: present)
    case .delete:
      guard let present else { return .accepted }
      return try foreign.isNewer(change.hash, than: change.made)
        ? try settle(change, place, over: present) : try delete(change, place)
    }
  }

  /// The server has the key already.
  private func insert(_ change: StagedChange, _ place: Int, over present: Row) throws -> Outcome {
    let table = catalog.tables[place]
    if change.columns.indices.allSatisfy({ present[change.columns[$0]] == change.new[$0] }) {
      if change.columns.count < table.columns.count {
        rowsToFeed.append(FedRow(table: place, key: change.key, hash: change.hash))
      }
      return .accepted
    }
    if table.table.sameKey == .refuse {
      return .refused(
        RefusalText(.keyExists, "\(table.name) has another row with this key. Give the new row another key."))
    }
    // The same key is the same thing: merged like an update of every column.
    rowsToFeed.append(FedRow(table: place, key: change.key, hash: change.hash))
    return try settle(change, place, over: present)
  }

  /// The table's policy settles a conflict. One that this store does not know is settled as client-wins.
  private func settle(_ change: StagedChange, _ place: Int, over present: Row) throws -> Outcome {
    let table = catalog.tables[place]
    switch table.table.conflicts {
    case ConflictPolicy.serverWins:
      return .refused(
        RefusalText(
          .conflict, "The row of \(table.name) was changed on the server meanwhile. Look at it and change it again."))
    case ConflictPolicy.keepVersions:
      standing.append((change, present))
      return .accepted
    default:
      return change.operation == .delete ? try delete(change, place) : try write(change, place, over: present)
    }
  }

  // MARK: Writing

  private func write(_ change: StagedChange, _ place: Int, over present: Row?) throws -> Outcome {
    let table = catalog.tables[place]
    var names: [String] = []
    var values: [Value] = []
    for (index, column) in change.columns.enumerated() where present.map({ $0[column] != change.new[index] }) ?? true {
      names.append(table.columns[column].name)
      values.append(change.new[index])
    }
    if present != nil && names.isEmpty { return .accepted }
    do {
      if present == nil {
        let slots = values.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
        try connection.run("INSERT INTO \(table.sql) (\(quotedList(names))) VALUES (\(slots))", values)
      } else {
        let sets = names.enumerated().map { "\(quoted($1)) = ?\($0 + 1)" }.joined(separator: ", ")
        let key = table.keyMatches("x") { "?\(values.count + $0 + 1)" }
        try connection.run("UPDATE \(table.sql) AS x SET \(sets) WHERE \(key)", values + change.key)
      }
    } catch let error as SalvorError where error.isConstraintViolation {
      return refusal(for: error, change, place)
    }
    guard let filter = filters[place], present == nil || !filter.columns.isDisjoint(with: names),
      try !isInScope(place, change.key)
    else { return .accepted }
    if present != nil && table.table.handover { return .accepted }
    if let missing = try missingParent(change, place) { return .lacks(missing) }
    return .refused(outOfScope(place))
  }

  private func delete(_ change: StagedChange, _ place: Int) throws -> Outcome {
    let table = catalog.tables[place]
    for child in catalog.children[place] where child.reference.takesRowsAlong {
      let exists = catalog.childExists(child, of: place, parentKey: "?1")
      if try connection.integer("SELECT \(exists)", change.key[0]) == 1 {
        return .lacks(
          RefusalText(
            .conflict,
            "Rows of \(catalog.tables[child.table].name) that the client did not see reference the deleted row of \(table.name). Look at them first."))
      }
    }
    do {
      try connection.run(
        "DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", change.key)
    } catch let error as SalvorError where error.isConstraintViolation {
      return refusal(for: error, change, place)
    }
    return .accepted
  }

  /// Frees the unique values that the request's updates take from each other. What stands in for them is gone before the
  /// request ends.
  private func park(_ request: StagedRequest) throws {
    for change in request.changes where change.operation == .update {
      guard let place = change.table else { continue }
      let table = catalog.tables[place]
      let unique = Set(table.uniqueColumns.flatMap(\.self))
      for column in change.columns.map({ table.columns[$0] }) where unique.contains(column.name) {
        let bits = Int64.random(in: Int64.min ... -1_000_000_000_000)
        let standIn: Value =
          switch column.type {
          case _ where column.nullable: .null
          case .integer, .boolean: .integer(bits)
          case .real: .real(Double(bits))
          case .blob: .blob(Array("salvor \(bits)".utf8))
          case .text, .timestamp, .json: .text("salvor \(bits)")
          }
        try connection.run(
          "UPDATE \(table.sql) AS x SET \(quoted(column.name)) = ?1 WHERE \(table.keyMatches("x") { "?\($0 + 2)" })",
          [standIn] + change.key)
      }
    }
  }

  // MARK: Keep-versions

  /// The server's rows stand; what the client sent is kept beside them. The device is fed all of them.
  private func keep(_ request: StagedRequest) throws -> Outcome {
    let server = standing
    for change in request.changes {
      guard let place = change.table else { continue }
      let table = catalog.tables[place]
      let isNew = try rows.row(place, change.key) == nil
      if isNew && change.operation == .insert && table.isScoped {
        // A device that may not see where such a row would be could never be told that it is not there.
        return .refused(
          RefusalText(.conflict, "Another row of the request is in conflict. Look at it and send the request again."))
      }
    }
    let version = try CommitLog.state(connection).head.number
    for change in request.changes {
      guard let place = change.table else { continue }
      let table = catalog.tables[place]
      let row = try server.first { $0.change.hash == change.hash }?.server ?? rows.row(place, change.key)
      let members = { (columns: [Int], values: [Value]) in
        JSONValue.object(zip(columns, values).map { JSONValue.Member(table.columns[$0].name, JSONValue($1)) })
      }
      try connection.run(
        """
        INSERT INTO salvor_conflict ("table", key, operation, client, server, version, remote, principal, request, time)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        """, .text(table.name), .text(JSONValue.array(change.key.map { JSONValue($0) }).text),
        .text(change.operation.rawValue), .text(members(change.columns, change.new).text),
        row.map { .text(members(Array(table.columns.indices), $0).text) } ?? .null, .integer(version),
        .text(upload.remote.text), .text(upload.principal.name), .text(request.id.description), .integer(now))
    }
    return .kept
  }

  // MARK: Reasons

  private func isInScope(_ place: Int, _ key: Key) throws -> Bool {
    guard let filter = filters[place] else { return true }
    let table = catalog.tables[place]
    return try connection.rows(
      "SELECT 1 FROM \(table.sql) x WHERE \(table.keyMatches("x") { "?\($0 + 1)" }) AND \(filter.sql { "x.\(quoted($0))" })",
      key + filter.values
    ).count > 0
  }

  private func outOfScope(_ place: Int) -> RefusalText {
    RefusalText(
      .outOfScope, "The row of \(catalog.tables[place].name) is outside of what you may write. Withdraw the change.")
  }

  /// The first reference of the row to one that is not there.
  private func missingParent(_ change: StagedChange, _ place: Int) throws -> RefusalText? {
    let table = catalog.tables[place]
    guard let row = try rows.row(place, change.key) else { return nil }
    for reference in table.table.references {
      guard let parent = catalog.place(of: reference.table), let column = table.place(reference.column),
        !row[column].isNull, try rows.row(parent, [row[column]]) == nil
      else { continue }
      return missingParent(table, reference)
    }
    return nil
  }

  private func missingParent(_ table: ServerTable, _ reference: Reference) -> RefusalText {
    RefusalText(
      .missingParent,
      "The row of \(reference.table) that \(table.name).\(reference.column) references is not on the server. Insert it first.")
  }

  private func refusal(for error: SalvorError, _ change: StagedChange, _ place: Int) -> Outcome {
    let table = catalog.tables[place]
    switch error.sqliteCode ?? 0 {
    case 787:
      // SQLITE_CONSTRAINT_FOREIGNKEY
      if change.operation == .delete { return .lacks(referenced(place, change.key)) }
      return .lacks(absentParent(of: change, place) ?? referenced(place, change.key))
    case 2067, 1555, 2579:
      // UNIQUE, PRIMARYKEY, ROWID: the value may be given up later in the upload.
      return .lacks(RefusalText(.constraint, "\(sqliteText(error)). Change the value."))
    case 1811:
      return .refused(
        RefusalText(.constraint, "A trigger of the server's database refused the row of \(table.name). Correct the row."))
    default:
      return .refused(RefusalText(.constraint, "\(sqliteText(error)). Correct the row of \(table.name)."))
    }
  }

  /// SQLite's own words: names of tables, columns and constraints, no values.
  private func sqliteText(_ error: SalvorError) -> String {
    var text = error.message
    if let start = text.firstRange(of: "SQLite: ") { text = String(text[start.upperBound...]) }
    if let end = text.firstRange(of: " (code") { text = String(text[..<end.lowerBound]) }
    return text
  }

  /// By the change's own new values: the statement was undone.
  private func absentParent(of change: StagedChange, _ place: Int) -> RefusalText? {
    let table = catalog.tables[place]
    for reference in table.table.references {
      guard let parent = catalog.place(of: reference.table), let column = table.place(reference.column),
        let index = change.columns.firstIndex(of: column), !change.new[index].isNull,
        (try? rows.row(parent, [change.new[index]])) == .some(.none)
      else { continue }
      return missingParent(table, reference)
    }
    return nil
  }

  private func referenced(_ place: Int, _ key: Key) -> RefusalText {
    let names = catalog.children[place].filter { child in
      (try? connection.integer("SELECT \(catalog.childExists(child, of: place, parentKey: "?1"))", key[0])) == 1
    }.map { catalog.tables[$0.table].name }
    let what = names.isEmpty ? "Other rows" : "Rows of \(names.joined(separator: ", "))"
    return RefusalText(
      .constraint, "\(what) still reference the row of \(catalog.tables[place].name). Delete them first.")
  }

  /// What a request that was applied whole leaves broken.
  private func brokenReference(_ request: StagedRequest) throws -> RefusalText {
    for change in request.changes where change.operation != .delete {
      if let place = change.table, let missing = try missingParent(change, place) { return missing }
    }
    for change in request.changes where change.operation == .delete {
      guard let place = change.table, try rows.row(place, change.key) == nil else { continue }
      for child in catalog.children[place] {
        if try connection.integer("SELECT \(catalog.childExists(child, of: place, parentKey: "?1"))", change.key[0]) == 1 {
          return referenced(place, change.key)
        }
      }
    }
    return RefusalText(.constraint, "A foreign key of the server's database is broken by the request. Correct its rows.")
  }
}
