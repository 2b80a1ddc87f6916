import SalvorModel
import SalvorStorage
import SalvorWire

/// Brings the rows of an overlay into the tables, squashed to one change for each row, or says what they break. It runs in
/// the caller's savepoint or transaction, with foreign keys deferred.
struct SetWriter {
  let rows: RowReader
  private let reach: Reach
  private var connection: any StoreConnection { rows.connection }
  private var catalog: Catalog { rows.catalog }

  private typealias OverlayRow = RowOverlay.Entry

  /// A constraint that rows would break.
  struct Broken: Error {
    var text: RefusalText
    /// The `RowHash` of each, as far as that is known.
    var rows: Set<UInt64> = []
    /// A unique value is another row's.
    var isTaken = false
  }

  /// A row that the database refuses.
  private struct RefusedRow: Error {
    var error: SalvorError
    var table: String
    var hash: UInt64
    var row: OverlayRow
  }

  init(_ rows: RowReader, _ reach: Reach) {
    self.rows = rows
    self.reach = reach
  }

  /// What has become of a set.
  struct Outcome {
    /// Nil: everything is written.
    var broken: Broken?
    /// Unique values were swapped, so the change log has more entries than rows.
    var wasParked = false
    /// Rows that the database left as they were without a word: a trigger of its own took the statement's place.
    var passedOver: [RowOverlay.Entry] = []
  }

  /// - Parameter entry: the last entry of the log, or an earlier one.
  func write(_ overlay: RowOverlay, after entry: Int64) throws -> Outcome {
    let changed = overlay.entries.values.filter { $0.before != $0.now }
    guard !changed.isEmpty else { return Outcome() }
    if let broken = try brokenReference(changed, overlay) { return Outcome(broken: broken) }
    let ordered = changed.sorted { ($0.table, $0.key.count) < ($1.table, $1.key.count) }
    let written = connection.writtenRows
    func outcome(_ passedOver: [OverlayRow], wasParked: Bool) throws -> Outcome {
      let left = try leftBroken() ?? takenBack(ordered, passedOver, since: written, after: entry)
      return Outcome(broken: left, wasParked: wasParked, passedOver: passedOver)
    }
    do {
      return try outcome(try connection.savepoint("salvor_rows") { try run(ordered) }, wasParked: false)
    } catch let refused as RefusedRow {
      let text = try refusal(refused.error, of: refused.table, refused.row)
      guard isUnique(refused.error) else { return Outcome(broken: Broken(text: text, rows: [refused.hash])) }
      // A database checks unique values row by row: a value that another row of the set gives up must be free first.
      do {
        try park(ordered)
        return try outcome(try run(ordered), wasParked: true)
      } catch let second as RefusedRow {
        return Outcome(broken: Broken(text: text, rows: [second.hash], isTaken: isUnique(second.error)))
      }
    }
  }

  private func isUnique(_ error: SalvorError) -> Bool { connection.failure(error) == .unique }

  // MARK: Statements

  /// Parents are inserted before children; what leaves a parent does so before the parent goes.
  ///
  /// - Returns: the rows that no statement has changed.
  private func run(_ changed: [OverlayRow]) throws -> [OverlayRow] {
    var passedOver: [OverlayRow] = []
    func run(_ row: OverlayRow, _ statement: (OverlayRow) throws -> Void) throws {
      try name(row) { try statement(row) }
      if connection.changes == 0 { passedOver.append(row) }
    }
    for row in changed where row.before == nil { try run(row, insert) }
    for row in changed where row.before != nil && row.now != nil { try run(row, update) }
    for row in changed.reversed() where row.now == nil { try run(row, delete) }
    return passedOver
  }

  private func name(_ row: OverlayRow, _ body: () throws -> Void) throws {
    do {
      try body()
    } catch let error as SalvorError where connection.refusesRow(error) {
      try connection.refuseRolledBack(error)
      throw RefusedRow(error: error, table: catalog.tables[row.table].name, hash: hash(of: row), row: row)
    }
  }

  func hash(of row: RowOverlay.Entry) -> UInt64 { RowHash(table: catalog.tables[row.table].name).adding(row.key) }

  private func insert(_ row: OverlayRow) throws {
    let table = catalog.tables[row.table]
    guard let now = row.now else { return }
    let slots = now.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
    let insert = "INSERT INTO \(table.sql) (\(table.columnList())) \(table.dialect.overriding)VALUES (\(slots))"
    // Where the unique value is that of a row which came meanwhile, the database says so: all is begun anew, and sees it.
    let free = table.insertingFree(insert)
    if free != insert {
      try connection.run(free, now)
      if connection.changes > 0 { return }
    }
    try connection.run(insert, now)
  }

  private func update(_ row: OverlayRow) throws {
    guard let before = row.before, let now = row.now else { return }
    let places = now.indices.filter { before[$0] != now[$0] }
    try update(row.table, row.key, places, places.map { now[$0] })
  }

  private func update(_ place: Int, _ key: Key, _ places: [Int], _ values: [Value]) throws {
    guard !places.isEmpty else { return }
    let table = catalog.tables[place]
    let sets = places.enumerated().map { "\(quoted(table.columns[$1].name)) = ?\($0 + 1)" }.joined(separator: ", ")
    try connection.run(
      "UPDATE \(table.sql) AS x SET \(sets) WHERE \(table.keyMatches("x") { "?\(places.count + $0 + 1)" })",
      values + key)
  }

  private func delete(_ row: OverlayRow) throws {
    let table = catalog.tables[row.table]
    try connection.run("DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", row.key)
  }

  /// Frees the unique values that rows give up. What stands in for them is gone before the set is written.
  private func park(_ changed: [OverlayRow]) throws {
    for row in changed {
      guard let before = row.before else { continue }
      let table = catalog.tables[row.table]
      let unique = Set(table.uniqueColumns.flatMap(\.self)).subtracting(table.table.primaryKey)
      let places = table.columns.indices.filter { place in
        unique.contains(table.columns[place].name) && !before[place].isNull
          && row.now.map { $0[place] != before[place] } ?? true
      }
      // What nothing can stand in for, such as a boolean, is refused as the value that is taken.
      try name(row) { try update(row.table, row.key, places, places.map { standIn(table, $0) }) }
    }
  }

  private func standIn(_ table: ServerTable, _ place: Int) -> Value {
    let column = table.columns[place]
    let bits = Int64.random(in: Int64.min ... -1_000_000_000_000)
    if column.nullable { return .null }
    if let value = table.dialect.standIn(table.types[place], bits) { return value }
    switch column.type {
    case .integer, .boolean: return .integer(bits)
    case .real: return .real(Double(bits))
    case .blob: return .blob(Array("salvor \(bits)".utf8))
    case .text, .timestamp, .json: return .text("salvor \(bits)")
    }
  }

  // MARK: What is broken

  /// References are proved before anything is written, so that no delete takes rows along that the client did not see.
  private func brokenReference(_ changed: [OverlayRow], _ overlay: RowOverlay) throws -> Broken? {
    var missing: Broken?
    for row in changed {
      let table = catalog.tables[row.table]
      guard let now = row.now else { continue }
      for reference in table.table.references {
        guard let column = table.place(reference.column), !now[column].isNull, row.before?[column] != now[column],
          let parent = catalog.place(of: reference.table), catalog.tables[parent].keyCount == 1
        else { continue }
        guard try overlay.peek(parent, [now[column]]) == nil else { continue }
        missing = missing ?? Broken(text: .missingParent(table, reference, catalog))
        missing?.rows.insert(hash(of: row))
      }
    }
    if let missing { return missing }
    var unseen: Broken?
    var constraint: Broken?
    for row in changed where row.now == nil {
      let parent = catalog.tables[row.table]
      for child in catalog.children[row.table] where try isReferenced(row, by: child, overlay) {
        let name = catalog.tables[child.table].name
        if child.reference.takesRowsAlong {
          let text =
            "Rows of \(name) that the client did not see reference the deleted row of \(parent.name). Look at them first."
          unseen = unseen ?? Broken(text: RefusalText(.conflict, text))
          unseen?.rows.insert(hash(of: row))
        } else {
          let text = "Rows of \(name) still reference the deleted row of \(parent.name). Delete them first."
          constraint = constraint ?? Broken(text: RefusalText(.constraint, text))
          constraint?.rows.insert(hash(of: row))
        }
      }
    }
    return unseen ?? constraint
  }

  /// A row that the set does not take away references the deleted one.
  private func isReferenced(
    _ row: OverlayRow, by child: Catalog.ChildReference, _ overlay: RowOverlay
  ) throws -> Bool {
    let table = catalog.tables[child.table]
    guard let value = row.key.first else { return false }
    // Nil: the application's own, of a foreign key that the schema does not declare.
    let column = table.place(child.reference.column)
    let seed = RowHash(table: table.name)
    var isReferenced = false
    try connection.query(
      "SELECT \(table.keyList("c")) FROM \(table.sql) c WHERE c.\(quoted(child.reference.column)) = ?1", [value]
    ) { found in
      // Where the set has the row, the set says where it points.
      let known = overlay[seed.adding(found.values())]
      isReferenced = known.map { row in column.map { row.now?[$0] == value } ?? (row.now != nil) } ?? true
      return !isReferenced
    }
    return isReferenced
  }

  private func takenBack(
    _ changed: [OverlayRow], _ passedOver: [OverlayRow], since before: Int?, after entry: Int64
  ) throws -> Broken? {
    let rows = try reach.takenBack(of: changed, passedOver: passedOver, since: before, after: entry)
    guard let first = rows.first else { return nil }
    return Broken(text: try reach.refusal(of: first.table), rows: Set(rows.map(hash)))
  }

  /// A foreign key of an adopted table that the schema does not name, or a trigger that waits for the end.
  private func leftBroken() throws -> Broken? {
    guard let error = try connection.unresolved else { return nil }
    if [.trigger, .slow].contains(connection.failure(error)) { return Broken(text: try refusal(error)) }
    return Broken(
      text: RefusalText(
        .constraint, "A foreign key of the server's database is broken by the request. Correct its rows."))
  }

  /// The longest text of a trigger that is passed on.
  private static let messageCharactersMax = 1000

  /// - Parameter table: nil: what is proved at the end names none.
  private func refusal(_ error: SalvorError, of table: String? = nil, _ row: OverlayRow? = nil) throws -> RefusalText {
    // The words of its RAISE, which its author wrote for the person who reads them.
    let isTrigger = connection.failure(error) == .trigger
    let (place, name) = (table.map { "\($0): t" } ?? "T", table.map { "a row of \($0)" } ?? "a row")
    if catalog.withholdsMessages {
      let what = isTrigger ? "trigger" : "constraint"
      return RefusalText(
        .constraint, "A \(what) of the server's database refused \(name). Correct the row.")
    }
    if connection.failure(error) == .value {
      if let row, let table, let misfit = try misfit(row) {
        return RefusalText(
          .notStorable,
          "\(table).\(misfit.column): the server's database cannot store the value as \(misfit.type). Correct it.")
      }
      if let limit = error.context["limit"] {
        return RefusalText(
          .notStorable, "\(place)he server's database cannot store the row: \(limit). Make it smaller.")
      }
      return RefusalText(
        .notStorable, "\(place)he server's database cannot store a value of the row. Correct the value.")
    }
    if connection.failure(error) == .slow {
      return RefusalText(
        .constraint,
        "\(place)he server's database took longer for \(name) than a statement may take there. Send it again, or change it."
      )
    }
    let words = String(error.storeDetail.prefix(Self.messageCharactersMax))
    if isTrigger {
      return RefusalText(.constraint, "\(place)he server's database refused the row: \(words)")
    }
    // The database's own words: names of tables, columns and constraints, no values.
    return RefusalText(.constraint, "\(words). Correct the row.")
  }
}

extension SetWriter {
  /// Of what is new in the row.
  private func misfit(_ row: RowOverlay.Entry) throws -> (column: String, type: String)? {
    guard let now = row.now else { return nil }
    let columns = catalog.tables[row.table].columns
    let places = now.indices.filter { !now[$0].isNull && row.before?[$0] != now[$0] }
    return try connection.misfit(
      in: catalog.tables[row.table].name, places.map { (column: columns[$0].name, value: now[$0]) })
  }
}

extension SalvorError {
  /// The database's own words: of a constraint they name the constraint or its columns.
  var storeDetail: String { context["detail"] ?? message }
}

extension StoreConnection {
  /// Throws where a trigger's `RAISE(ROLLBACK, …)` has ended the upload's own transaction: nothing of the upload is there any
  /// more, so no request can be refused alone.
  func refuseRolledBack(_ error: SalvorError) throws {
    guard !isInTransaction else { return }
    throw SalvorError(
      .storage,
      "A trigger of the server's database rolled the whole upload back (RAISE(ROLLBACK, …)): \(error.storeDetail). Nothing was applied. Write RAISE(ABORT, …) in the trigger instead: it refuses its row alone."
    )
  }
}
