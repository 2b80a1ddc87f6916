import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Brings a database in line with a schema: tables and columns that are missing, capture, adoption of rows that no
/// capture has seen.
struct Opening {
  let connection: SQLiteConnection
  let random: any RandomSource
  let clock: any Clock

  static let ddl = TableDDL.device

  /// In a transaction, with triggers off.
  func open(_ setup: ClientSetup) throws -> (StoreContext, ClientOpening) {
    if let known = try OpenedBefore.find(setup.schema, on: connection) {
      try settleIdentity(setup)
      try known.catalog.clearLeftovers(on: connection)
      let context = StoreContext(
        connection, random: random, clock: clock, schema: known.schema, own: setup.schema, config: known.config,
        catalog: known.catalog)
      return (context, ClientOpening())
    }
    let isNew = try connection.tableShape("salvor_table") == nil
    if try connection.tableShape("salvor_state") != nil { try refuseLaterFormat() }
    try connection.execute(StoreTables.tables)
    try StoreTables.migrate(connection, at: clock.now())
    try settleIdentity(setup)
    let lostLog = LostLog(connection: connection, random: random)
    let hasLostLog = try lostLog.makeAnew()
    let before = try definitions()
    let isUnnumbered = try keepAgreedSchema(setup.schema)
    let delivered = try connection.deliveredConfig()
    let kept = try KeptAdditions(connection)
    let own = delivered == nil ? setup.schema.takingBackNames(of: before) : setup.schema
    let added = delivered == nil ? try kept.beside(own, before, last: connection.lastConfig()) : kept.tables
    let config = delivered ?? SyncConfig(own)
    let schema = delivered == nil && added.isEmpty ? own : config.schema(own: own, added: added)
    let isOlder = try bringLogOver(setup, before)
    try connection.setState(.format, .integer(StoreTables.format))
    if delivered == nil { try write(config, delivered: false) }
    if setup.pauses, isNew {
      // The application makes its tables, or has made them: what is missing afterwards is made then.
      _ = try CaptureCatalog.install([], on: connection)
      try connection.setState(.pausedSince, .integer(clock.now()))
    }
    if try connection.pausedSince() != nil {
      // A migration is under way: the tables are what they are, and are nobody's business until it ends.
      let context = StoreContext(
        connection, random: random, clock: clock, schema: schema, own: setup.schema, config: config,
        catalog: try CaptureCatalog.asTheyAre(on: connection, schema))
      if isOlder { try StoreViews.make(context.catalog, on: connection) }
      return (context, ClientOpening())
    }
    var (context, opening) = try bringInLine(
      schema, own: setup.schema, config, before: before, isOlder: isOlder)
    if hasLostLog { opening.notices.append(try lostLog.settle(context)) }
    // An upload that was drawn with the file that had it was taken by no server.
    if delivered == nil, !added.isEmpty { try UploadChoice(context: context).leaveOutUnsendable() }
    // What a synchronization that was cut has compared says nothing of what was written since.
    if !opening.restoredTriggers.isEmpty { try connection.clearStaged() }
    if isUnnumbered {
      opening.notices.append(
        "The schema file differs from the schema of version \(setup.schema.version) that this device and its server have agreed on, and has the same version. The agreed one stays until the server's changes. Raise the version of the file."
      )
    }
    try connection.note(opening.notices + Self.restored(opening.restoredTriggers), at: clock.now())
    try OpenedBefore.note(context)
    return (context, opening)
  }

  /// The log of a file of format 1. Whether the file is of an earlier format.
  private func bringLogOver(_ setup: ClientSetup, _ before: [Table]) throws -> Bool {
    let format = try connection.state(.format)?.integer ?? 0
    guard format < StoreTables.format, try connection.tableShape("salvor_log") != nil else { return false }
    guard format < 2 else { return true }
    let schema = Schema(tables: before)
    var catalog = try CaptureCatalog.asTheyAre(on: connection, schema)
    try catalog.link(before)
    try catalog.makeLogTables(on: connection)
    let context = StoreContext(
      connection, random: random, clock: clock, schema: schema, own: setup.schema, config: SyncConfig(schema),
      catalog: catalog)
    try FormerLog(context: context).bringOver()
    return true
  }

  /// Says which triggers were put back.
  static func restored(_ triggers: [String]) -> [String] {
    triggers.isEmpty
      ? []
      : [
        "Triggers of Salvor were missing or altered and were put back: \(triggers.joined(separator: ", ")). What was written meanwhile is found by comparing with the server."
      ]
  }

  private func refuseLaterFormat() throws {
    let format = try connection.state(.format)?.integer ?? 0
    guard format <= StoreTables.format else {
      throw SalvorError(
        .schemaRefused,
        "The database was written by a later version of Salvor (format \(format), this one knows \(StoreTables.format)). Update Salvor on this device."
      )
    }
  }

  /// A server has agreed to the schema that this database was synchronized with. A later file of the application's adds to it alone: what
  /// that renames or drops comes with the server's schema (decision 187). One that nobody has given a new version adds nothing (decision 243): true.
  private func keepAgreedSchema(_ own: Schema) throws -> Bool {
    guard try connection.state(.configDelivered)?.integer != 1, try connection.state(.server) != nil,
      let agreed = try connection.lastConfig(), own.version >= agreed.schemaVersion
    else { return false }
    let isUnnumbered = own.version == agreed.schemaVersion
    if isUnnumbered {
      // What the tables give back is no part of their form: the server's word for it comes with its next SyncConfig.
      var same = own
      for place in same.tables.indices {
        let known = agreed.entries.first { $0.table.name == same.tables[place].name }?.table
        same.tables[place].heal = known?.heal ?? same.tables[place].heal
      }
      if SyncConfig(same).digest == agreed.digest { return false }
    }
    try connection.setState(.configDelivered, .integer(1))
    return isUnnumbered
  }

  /// The synchronized tables as they were defined last.
  private func definitions() throws -> [Table] {
    try connection.rows("SELECT definition FROM salvor_sync_config ORDER BY place").compactMap { row in
      try row[0].string.map { try TableDefinition.table(JSONValue(parsing: Array($0.utf8))) }
    }
  }

  /// The tables as the schema says, captured.
  ///
  /// - Parameters:
  ///   - before: the tables as they were defined.
  ///   - adopts: the schema is the server's, delivered just now.
  ///   - isOlder: the file is of an earlier format, and has the triggers of that.
  ///   - resumes: triggers were taken away on purpose, and what was written meanwhile is found by their snapshot.
  func bringInLine(
    _ schema: Schema, own: Schema, _ config: SyncConfig, before: [Table], adopts: Bool = false, isOlder: Bool = false,
    resumes: Bool = false
  ) throws -> (StoreContext, ClientOpening) {
    var opening = ClientOpening()
    let former = try FormerCapture(before, schema, on: connection)
    try former.letMarkedRowsGo(random: random, clock: clock)
    var following = SchemaFollowing(connection, random: random, clock: clock, schema: schema, before: before)
    try following.run()
    var constraints = try ConstraintFollowing(connection, schema, before: before)
    var comparison = try SchemaComparison(schema, with: connection, ddl: Self.ddl)
    comparison.refusals.removeAll { $0.isConstraint && constraints.tables.contains($0.table) }
    comparison.refusals = try refusals(of: comparison)
    try comparison.check()
    for addition in comparison.additions {
      switch addition {
      case .table(let table): opening.createdTables.append(table.name)
      case .column(let column, let table): opening.addedColumns.append("\(table.name).\(column.name)")
      }
    }
    let returned = try returnedTables(comparison.additions)
    var returning = try ReturningColumns(comparison.additions, delivered: adopts ? schema : nil, on: connection)
    try comparison.apply(to: connection, schema: schema, ddl: Self.ddl)
    try constraints.run()
    opening.notices =
      following.notices + constraints.notices
      + returned.sorted().map {
        "The table \($0) was not there any more. It was made anew; the server's rows come with the next sync, and what had not been sent of it is gone."
      }
    // Before there are triggers: SQLite reads all of them again for each column that is added.
    try widenHistory(schema)
    opening.notices += try returning.takeRenamed(schema)
    let (catalog, changes) = try CaptureCatalog.install(schema.synchronized, on: connection)
    // Those of a table that was renamed or made anew are put back on purpose.
    opening.restoredTriggers = following.hasChanged || !constraints.remade.isEmpty ? [] : changes.restoredTriggers
    try removeTriggers(besides: catalog)
    try fillNewColumns(comparison.additions, catalog)
    let new = schema.parentsFirst(schema.synchronized).compactMap { table in
      // Nobody but the server may say what is in its own tables: it does so with the first download (decision 244).
      table.maintained == .server
        ? nil
        : catalog.table(table.name).flatMap { changes.newTables.contains($0.name) ? Adoption.Subject(table: $0) : nil }
    }
    opening.adoptedRows += try Adoption(connection).adopt(new)
    let named = resumes ? [] : former.namedColumns(catalog, besides: comparison.additions)
    try StoreViews.make(catalog, on: connection)
    try connection.setState(.schemaVersion, .integer(schema.version))
    let context = StoreContext(
      connection, random: random, clock: clock, schema: schema, own: own, config: config, catalog: catalog)
    context.triesConstraints = !constraints.notices.isEmpty
    // New columns alter the triggers, too; a file of an earlier format has those of its own.
    var widened = Set(
      comparison.additions.compactMap { if case .column(_, let table) = $0 { table.name } else { nil } })
    if isOlder { widened.formUnion(catalog.tables.map(\.name)) }
    let intact = Set(catalog.tables.filter(former.isIntact).map(\.name))
    let ownDoing = catalog.tables.filter {
      intact.contains($0.name) || (changes.altered.contains($0.name) && widened.contains($0.name))
    }
    opening.restoredTriggers.removeAll { name in ownDoing.contains { name.hasSuffix("_\($0.number)") } }
    if !resumes {
      opening.adoptedRows += try UnprovenTables(context).mark(
        changes.unproven.filter { table in
          !intact.contains(table) && !constraints.remade.contains(table) && !following.uncaptured.contains(table)
            && (!changes.altered.contains(table) || !(following.hasChanged || widened.contains(table)))
        }, servers: returned)
    }
    opening.notices += try returning.forgetValues(context)
    try former.capture(named, context)
    opening.adoptedRows += try UnprovenTables(context).mark(former.newlyMarked(catalog, besides: comparison.additions))
    if try adopts || connection.state(.server) != nil {
      // The server's rows have the default that the column had when the server got it, whichever file brings the column here.
      let doubtful = constraints.redefaulted.union(
        comparison.additions.compactMap { addition in
          guard case .column(let column, let table) = addition, let value = column.defaultValue, !value.isNull else {
            return nil
          }
          return table.name
        })
      try UnprovenTables(context).mark(doubtful.sorted(), servers: doubtful)
    }
    if adopts {
      // What a device had in a table before the server took it over is the server's to say (decision 244). In a group that came already no
      // download says which rows the server does not have.
      let known = Set(before.map { $0.name.folded })
      let taken = try catalog.tables.filter { table in
        guard let now = schema.table(table.name), now.maintained == .server else { return false }
        return try !([now.name] + now.renamedFrom).contains { known.contains($0.folded) }
          && connection.integer("SELECT 1 FROM \(quoted(table.name)) LIMIT 1") != nil
      }
      try UnprovenTables(context).takeServers(taken)
    }
    opening.notices += catalog.tables.filter { changes.newTables.contains($0.name) }.flatMap(\.keyNotices)
    opening.notices += try ownTableNotices(changes.newTables.filter { !opening.createdTables.contains($0) }, schema)
    let keyless = try context.rowsWithoutKey(in: catalog.tables.filter { changes.newTables.contains($0.name) })
    for (table, count) in keyless.sorted(by: { $0.key < $1.key }) {
      opening.notices.append(
        "\(table): \(count) rows have no key and are not synchronized. Give them one (salvor status counts those that are left)."
      )
    }
    try context.noteErrorValues()
    opening.notices += try KeptAdditions(connection).note(context)
    try KeptFlags.note(schema, on: connection)
    // A trigger can note that the log changed, and makes no row for it.
    if try connection.state(.logGeneration) == nil { try context.noteLogChange() }
    return (context, opening)
  }

  /// The application has taken columns or tables away while the store was open. In a transaction, with triggers off.
  ///
  /// - Returns: notices.
  func follow(_ context: StoreContext) throws -> [String] {
    let (now, opening) = try bringInLine(
      context.schema, own: context.own, context.config, before: try definitions())
    context.catalog = now.catalog
    return opening.notices + Self.restored(opening.restoredTriggers)
  }

  /// Ends a migration of the application's own. In a transaction, with triggers off.
  func resume(_ context: StoreContext) throws -> (StoreContext, CaptureResumption) {
    try CapturePause(context: context).refuseLosses()
    let (resumed, opening) = try bringInLine(
      context.schema, own: context.own, context.config, before: try definitions(), resumes: true)
    var resumption = try CapturePause(context: resumed).end()
    resumption.inserts += opening.adoptedRows
    resumption.added = opening.createdTables + opening.addedColumns
    try OpenedBefore.note(resumed)
    return (resumed, resumption)
  }

  private func settleIdentity(_ setup: ClientSetup) throws {
    if let owner = try connection.text(.principal), !owner.isEmpty {
      guard setup.principal.isEmpty || setup.principal.isSameName(as: owner) else { throw Self.ofAnother() }
    } else if !setup.principal.isEmpty {
      try connection.setState(.principal, setup.principal)
    }
    if try connection.state(.remote) == nil {
      try connection.setState(.remote, (setup.remoteID ?? RemoteID(from: random)).text)
    }
    if try connection.state(.fileStamp) == nil { try connection.setState(.fileStamp, hexadecimal(random.bytes(16))) }
    if try connection.integer("SELECT 1 FROM salvor_stamp LIMIT 1") == nil {
      try connection.run(
        "INSERT INTO salvor_stamp (first_seq, stamp) VALUES (1, ?1)", .text(RequestStamp(from: random).text))
    }
  }

  static func ofAnother() -> SalvorError {
    SalvorError(.remoteOfAnother, "This database belongs to another principal. Open a database of your own.")
  }

  // MARK: Rows and columns

  /// Whole rows in the log get the default of a column that is new.
  private func fillNewColumns(_ additions: [SchemaComparison.Addition], _ catalog: CaptureCatalog) throws {
    for case .column(let column, let table) in additions {
      guard let value = column.defaultValue, let captured = catalog.table(table.name),
        let slot = captured.columns.firstIndex(where: { $0.name.folded == column.name.folded })
      else { continue }
      try connection.fillColumn(slot, of: captured, value)
    }
  }

  /// A column that was never synchronized is the application's own: it stays, and says nothing to the server.
  func refusals(of comparison: SchemaComparison) throws -> [SchemaComparison.Refusal] {
    try comparison.refusals.filter { try !$0.isUnnamed || wasSynchronized($0) }
  }

  private func wasSynchronized(_ refusal: SchemaComparison.Refusal) throws -> Bool {
    guard let column = refusal.column, try connection.tableShape("salvor_column") != nil else { return false }
    return try connection.integer(
      "SELECT EXISTS (SELECT 1 FROM salvor_column c JOIN salvor_table t ON t.id = c.t WHERE t.name = ?1 COLLATE NOCASE AND c.name = ?2 COLLATE NOCASE)",
      .text(refusal.table), .text(column)) == 1
  }

  /// Synchronized tables that somebody has dropped since: their rows were not deleted one by one.
  private func returnedTables(_ additions: [SchemaComparison.Addition]) throws -> Set<String> {
    var found: Set<String> = []
    guard try connection.tableShape("salvor_table") != nil else { return found }
    for case .table(let table) in additions where table.maintained != .client {
      let isKnown = try connection.integer(
        "SELECT EXISTS (SELECT 1 FROM salvor_table WHERE name = ?1 COLLATE NOCASE)", .text(table.name))
      if isKnown == 1 { found.insert(table.name) }
    }
    return found
  }

  private func widenHistory(_ schema: Schema) throws {
    let width = max(1, schema.synchronized.map(\.primaryKey.count).max() ?? 1)
    let found = try connection.tableShape("salvor_history")?.columns.map(\.name) ?? []
    for place in 0..<width where !found.contains("v\(place)") {
      try connection.execute("ALTER TABLE salvor_history ADD COLUMN v\(place)")
    }
  }

  /// Tables that are no longer synchronized are plain tables again.
  private func removeTriggers(besides catalog: CaptureCatalog) throws {
    let ours = Set(
      catalog.tables.flatMap { table in
        let triggers = CaptureTriggers(table)
        return triggers.triggers.map(\.name) + [triggers.replacingTrigger.name]
      } + CaptureCatalog.groupTriggers.map(\.name) + StoreTables.triggers)
    for row in try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'salvor\\_%' ESCAPE '\\'")
    {
      if let name = row[0].string, !ours.contains(name) { try connection.execute("DROP TRIGGER \(quoted(name))") }
    }
    let views = Set(catalog.tables.map(\.replacing))
    for row in try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'view' AND name LIKE 'salvor\\_replacing\\_%' ESCAPE '\\'")
    {
      if let name = row[0].string, !views.contains(name) { try connection.execute("DROP VIEW \(quoted(name))") }
    }
  }

  // MARK: SyncConfig

  func write(_ config: SyncConfig, delivered: Bool) throws {
    let rows = config.entries.enumerated().map { place, entry -> [Value] in
      [
        .integer(Int64(place)), .text(entry.table.name), .text(TableDefinition.json(entry.table).text),
        .text(entry.fetchPath), entry.uploadPath.map { .text($0) } ?? .null,
        entry.parameterName.map { .text($0) } ?? .null, .text(entry.upsertStatement), .text(entry.deleteStatement),
        .integer(entry.fetchOrder), .integer(entry.uploadOrder), .integer(entry.upsertOrder),
        .integer(entry.deleteOrder), entry.dirtyQuery.map { .text($0) } ?? .null, .text(entry.keyQuery),
      ]
    }
    // An opening that changes nothing writes nothing: a plan leaves the file as it was.
    if try connection.rows("SELECT * FROM salvor_sync_config ORDER BY place") != rows {
      try connection.run("DELETE FROM salvor_sync_config")
      for row in rows {
        try connection.run(
          "INSERT INTO salvor_sync_config VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)", row)
      }
    }
    let head = (config.json.members ?? []).filter { $0.key != "tables" }
    try connection.setState(.configHead, JSONValue.object(head).text)
    try connection.setState(.configDelivered, .integer(delivered ? 1 : 0))
  }

  /// Takes a delivered SyncConfig. Destructive differences that no rule declares throw `schema-incompatible`, and one that lacks what a later
  /// one has brought `schema-ahead`.
  func adopt(_ config: SyncConfig, _ context: StoreContext) throws -> (StoreContext, notices: [String]) {
    let added = try KeptAdditions(connection).tables
    let schema = config.schema(own: context.own, added: added)
    if let error = config.isBehind(context.schema, own: context.own, added: added) { throw error }
    for table in context.schema.synchronized {
      let now = schema.tables.table(formerly: table.name)
      if schema.dropped.contains(table.name) || now?.maintained ?? .client != .client { continue }
      throw SalvorError(
        .schemaIncompatible,
        "The server does not synchronize the table \(table.name) any more. Recover, or change the server's schema.",
        context: ["table": table.name])
    }
    do {
      let groups = Dictionary(
        uniqueKeysWithValues: context.catalog.tables.map { ($0.number, context.group(of: $0.number)) })
      let (adopted, opening) = try bringInLine(
        schema, own: context.own, config, before: try definitions(), adopts: true)
      // Before its text is kept: what fails here takes all of it back.
      try DeliveredStatements.check(config, connection)
      try write(config, delivered: true)
      try noteMoves(from: groups, adopted)
      try UploadChoice(context: adopted).leaveOutUnsendable()
      try OpenedBefore.note(adopted)
      return (adopted, opening.notices)
    } catch let error as SalvorError where error.code == .schemaRefused {
      throw SalvorError(.schemaIncompatible, error.message, context: error.context)
    }
  }

  /// What waits of a table that is in another group from here on was made on its former group's rows. Those without a version came
  /// with that group: a server that was put back to before the move may have lost them.
  private func noteMoves(from groups: [Int64: String], _ context: StoreContext) throws {
    for table in context.catalog.tables {
      let now = context.group(of: table.number)
      guard let group = groups[table.number], group != now else { continue }
      try connection.run(
        """
        INSERT INTO salvor_group (name, whole, moved) SELECT ?1, coalesce(whole, number), 1 FROM salvor_group
          WHERE name = ?2 AND coalesce(whole, number) IS NOT NULL
        ON CONFLICT (name) DO UPDATE SET whole = max(coalesce(whole, number, 0), excluded.whole), moved = 1
        """, .text(now), .text(group))
      try connection.run(
        "INSERT OR REPLACE INTO salvor_former_group (t, until_seq, grp) VALUES (?1, ?2, ?3)", .integer(table.number),
        .integer(try connection.lastCounter()), .text(group))
    }
  }
}

extension SQLiteConnection {
  /// Whole rows in the log, and what is stored beside it, have the default of a column that is new.
  func fillColumn(_ slot: Int, of table: CapturedTable, _ value: Value) throws {
    let isDelete = "op IN \(StoreContext.deleteOperations)"
    let deletes = "seq IN (SELECT seq FROM salvor_log WHERE \(isDelete))"
    for (name, isWhole) in [("salvor_log", isDelete), ("salvor_value", deletes), ("salvor_base", "there = 1")] {
      try run("UPDATE \(name) SET v\(slot) = ?1 WHERE t = ?2 AND \(isWhole)", value, .integer(table.number))
    }
  }

  /// The SyncConfig that the server delivered; nil: none yet.
  func deliveredConfig() throws -> SyncConfig? {
    try state(.configDelivered)?.integer == 1 ? lastConfig() : nil
  }

  /// The SyncConfig that the tables were brought in line with last.
  func lastConfig() throws -> SyncConfig? {
    guard let head = try text(.configHead) else { return nil }
    var members = try JSONValue(parsing: Array(head.utf8)).members ?? []
    let tables = try rows(
      "SELECT definition, fetch_path, upload_path, parameter_name, upsert_statement, delete_statement, fetch_order, upload_order, upsert_order, delete_order, dirty_query, key_query FROM salvor_sync_config ORDER BY place"
    ).map { row -> JSONValue in
      func text(_ value: Value) -> JSONValue { value.string.map(JSONValue.string) ?? .null }
      func number(_ value: Value) -> JSONValue { .integer(value.integer ?? 0) }
      return [
        "definition": try JSONValue(parsing: Array((row[0].string ?? "").utf8)),
        "fetchPath": text(row[1]), "uploadPath": text(row[2]), "parameterName": text(row[3]),
        "upsertStatement": text(row[4]), "deleteStatement": text(row[5]), "fetchOrder": number(row[6]),
        "uploadOrder": number(row[7]), "upsertOrder": number(row[8]), "deleteOrder": number(row[9]),
        "dirtyQuery": text(row[10]), "keyQuery": text(row[11]),
      ]
    }
    members.append(JSONValue.Member("tables", .array(tables)))
    return try SyncConfig(.object(members))
  }
}

extension StoreContext {
  /// The synchronized tables have the columns that are captured.
  var hasItsColumns: Bool {
    get throws {
      try catalog.tables.allSatisfy { table in
        guard let shape = try connection.tableShape(table.name) else { return false }
        return table.columns.allSatisfy { shape.column($0.name) != nil }
      }
    }
  }
}
