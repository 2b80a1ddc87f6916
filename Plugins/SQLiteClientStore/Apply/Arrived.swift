import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What has arrived whole, before it takes its place: every row in a twin of its table, their references proved among the twins.
///
/// All that looks at every row is done here, without the write lock: nobody else writes in twins. What then remains is what the
/// application wrote into the tables meanwhile: its rows move into the twins, and the server's rows beneath them become their bases.
struct Arrived {
  private let twins: [(table: CapturedTable, twin: TableTwin)]
  let upserts: Int64

  /// Nil: nothing has. Throws `NotAhead` where it cannot take its place like that.
  init?(_ context: StoreContext) throws {
    let connection = context.connection
    guard let upserts = try connection.state(.arriving)?.integer else { return nil }
    guard let standing = try Arrival.standing(context), context.files.isEmpty else { throw NotAhead() }
    self.upserts = upserts
    twins = standing.sorted { $0.key < $1.key }.compactMap { number, twin in
      context.catalog.table(number: number).map { ($0, twin) }
    }
    try prove(context)
  }

  /// Every reference of a row that came is to a row that came.
  private func prove(_ context: StoreContext) throws {
    let proof = try ReferenceProof(context, TouchedRows(context))
    for rule in proof.rules {
      guard let child = twins.first(where: { $0.table.number == rule.capturedChild?.number }) else { continue }
      let isSet = rule.childColumns.map { "x.\(quoted($0)) IS NOT NULL" }.joined(separator: " AND ")
      var condition = isSet
      if let parent = twins.first(where: { $0.table.number == rule.capturedParent?.number }) {
        let terms = zip(rule.parentColumns, rule.childColumns).map { "p.\(quoted($0)) = x.\(quoted($1))" }
        condition +=
          " AND NOT EXISTS (SELECT 1 FROM \(parent.twin.name) p WHERE \(terms.joined(separator: " AND ")))"
      }
      guard
        try context.connection.integer("SELECT 1 FROM \(child.twin.name) x WHERE \(condition) LIMIT 1") == nil
      else { throw NotAhead() }
    }
  }

  func contains(_ table: CapturedTable) -> Bool { twins.contains { $0.table.number == table.number } }

  /// In the transaction that applies the download. Answers with the new bases of rows that have requests.
  func takePlace(_ rows: WorkingRows, _ context: StoreContext) throws -> [(table: CapturedTable, row: SlotRow)] {
    let connection = context.connection
    guard let standing = try Arrival.standing(context), standing.count == twins.count else { throw NotAhead() }
    var bases: [(table: CapturedTable, row: SlotRow)] = []
    for (table, twin) in twins {
      if rows.firing.contains(table.number) { throw NotAhead() }
      bases += try makeRoom(table, twin, rows, context).map { (table, $0) }
      try context.forgetDigest(of: table)
    }
    try TableTwin.exchange(twins.map(\.twin), on: connection)
    return bases
  }

  /// Rows with requests go over as they are shown; what the server has in their place is answered.
  private func makeRoom(
    _ table: CapturedTable, _ twin: TableTwin, _ rows: WorkingRows, _ context: StoreContext
  ) throws -> [SlotRow] {
    let connection = context.connection
    var bases: [SlotRow] = []
    var shown: Int64 = 0
    let columns = table.columns.indices.map(table.tableColumn).joined(separator: ", ")
    let find = "SELECT \(columns) FROM \(twin.name) x WHERE \(context.keyCondition(table))"
    let delete = "DELETE FROM \(twin.name) AS x WHERE \(context.keyCondition(table))"
    try rows.index.eachRow(of: table) { key in
      let isShown = try context.currentRow(table, key) != nil
      if isShown { shown += 1 }
      guard let base = try connection.rows(find, key).first else { return }
      bases.append(base)
      try connection.run(delete, key)
      if !isShown { try rows.touched.removed(table, key) }
    }
    let count = try connection.integer("SELECT count(*) FROM \(quoted(table.name))") ?? 0
    // Rows that no capture knows.
    guard count == shown else { throw NotAhead() }
    guard count > 0, let shape = try connection.tableShape(table.name) else { return bases }
    let names = quotedList(shape.columns.map(\.name))
    do {
      try connection.run("INSERT INTO \(twin.name) (\(names)) SELECT \(names) FROM \(quoted(table.name))")
    } catch let error as SalvorError where error.isConstraintViolation {
      // A unique value of the application's is another row's at the server.
      throw NotAhead()
    }
    return bases
  }
}
