import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Tables whose triggers were missing or altered (semantics 3): what was written meanwhile is not in the log. They are
/// compared with the server before their next download (`UnprovenCapture`).
///
/// Tables whose rows nobody but the server knows (`servers`) are compared alike, and take what it has: one that was dropped
/// here, one that got a column whose default is not what the server's rows have, and one of which rows were left out (`IncompleteTables`).
struct UnprovenTables {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) { self.context = context }

  func names() throws -> Set<String> {
    Set(try connection.rows("SELECT name FROM salvor_unproven").compactMap { $0[0].string })
  }

  /// Those that take what the server has.
  func servers() throws -> Set<String> {
    Set(try connection.rows("SELECT name FROM salvor_unproven WHERE servers = 1").compactMap { $0[0].string })
  }

  /// The others, by number: what was written into them is found by comparing.
  func changedHere() throws -> Set<Int64> {
    let names = try names().subtracting(servers())
    return Set(names.compactMap { context.catalog.table($0)?.number })
  }

  /// The tables that reference these, at whatever distance.
  func referencing(_ tables: Set<Int64>) -> Set<Int64> {
    var found: Set<Int64> = []
    var count = -1
    while count != found.count {
      count = found.count
      for table in context.catalog.tables {
        let parents = (context.table(table)?.references ?? []).compactMap { context.catalog.table($0.table)?.number }
        if parents.contains(where: { tables.contains($0) || found.contains($0) }) { found.insert(table.number) }
      }
    }
    return found
  }

  /// What was written into the table while its triggers were away is still to be found, whatever its name is now.
  static func rename(_ old: String, to new: String, on connection: SQLiteConnection) throws {
    try connection.run(
      "UPDATE OR IGNORE salvor_unproven SET name = ?1 WHERE name = ?2 COLLATE NOCASE", .text(new), .text(old))
    try connection.run("DELETE FROM salvor_unproven WHERE name = ?1 COLLATE NOCASE", .text(old))
  }

  /// They take what the server has: rows of theirs were left out.
  func takeServers(_ tables: some Sequence<CapturedTable>) throws {
    for table in tables {
      try connection.run(
        "INSERT INTO salvor_unproven (name, servers) VALUES (?1, 1) ON CONFLICT (name) DO NOTHING", .text(table.name))
    }
  }

  func prove(_ tables: some Sequence<CapturedTable>) throws {
    for table in tables {
      try connection.run("DELETE FROM salvor_unproven WHERE name = ?1", .text(table.name))
      try connection.run("UPDATE salvor_column SET unknown = NULL WHERE t = ?1 AND unknown = 1", .integer(table.number))
    }
  }

  // MARK: Columns whose values nobody here knows

  /// The column is here again, and what its rows have in it says nothing: they take what the server has, whatever else the
  /// comparison finds in them. What waits in it went with it. In a transaction.
  ///
  /// - Returns: how many changes that waited wrote it.
  @discardableResult
  func forgetValues(of slot: Int, in table: CapturedTable) throws -> Int64 {
    guard let definition = context.table(table),
      try connection.groupStates(context.schema.groups).first(where: { $0.name == definition.group })?.isSynchronized
        == true
    else { return 0 }
    if try !names().contains(definition.name) {
      try connection.run("UPDATE salvor_column SET unknown = NULL WHERE t = ?1 AND unknown = 1", .integer(table.number))
    }
    try mark([table.name], servers: [table.name])
    try connection.run(
      "UPDATE salvor_column SET unknown = 1 WHERE t = ?1 AND slot = ?2", .integer(table.number), .integer(Int64(slot)))
    return try forgetChanges(of: slot, in: table)
  }

  private func forgetChanges(of slot: Int, in table: CapturedTable) throws -> Int64 {
    var count: Int64 = 0
    var empty: [Int64] = []
    let index = try LogIndex(context)
    try index.eachRow(of: table) { key in
      for step in try index.timeline(table, key).steps {
        guard case .update(let news) = step.change, news[slot] != nil else { continue }
        count += 1
        if news.count == 1 { empty.append(step.seq) }
      }
    }
    guard count > 0 else { return 0 }
    try context.takeOut(empty)
    let (word, bit) = ("m\(slot / LogMask.bitsPerColumn)", Int64(1) << Int64(slot % LogMask.bitsPerColumn))
    for (name, isUpdate) in [("salvor_log", "op IN \(StoreContext.updateOperations)"), ("salvor_value", "1")] {
      try connection.run(
        "UPDATE \(name) SET \(word) = \(word) & ~\(bit), v\(slot) = NULL WHERE t = ?1 AND \(isUpdate) AND \(word) & \(bit)",
        .integer(table.number))
    }
    try context.noteLogChange()
    return count
  }

  /// In a transaction. Of a group that was never synchronized every row that the log does not have is one that only this
  /// device has: nothing need be compared. While an upload is under way, nobody knows which of its rows the server has, and as what:
  /// the first download tells (`UnprovenCapture`).
  ///
  /// - Parameter servers: which of them take what the server has.
  /// - Returns: such rows, which are queued inserts now.
  @discardableResult
  func mark(_ names: [String], servers: Set<String> = []) throws -> Int64 {
    guard !names.isEmpty else { return 0 }
    let groups = try connection.groupStates(context.schema.groups)
    let tables = context.schema.parentsFirst(context.schema.synchronized).compactMap { definition in
      context.catalog.table(definition.name).flatMap { names.contains($0.name) ? (definition, $0) : nil }
    }
    for (_, table) in tables.reversed() { try mend(table) }
    let isUnderWay = try connection.state(.current) != nil
    var adopted: [CapturedTable] = []
    for (definition, table) in tables {
      try context.forgetDigest(of: table)
      let isSynchronized = groups.first { $0.name == definition.group }?.isSynchronized == true
      // A table that a schema moves to a new group has rows that the server knows: they come whole with the group.
      if !isSynchronized, !servers.contains(table.name), definition.maintained == .dual { adopted.append(table) }
      guard isSynchronized || isUnderWay else { continue }
      try connection.run(
        "INSERT INTO salvor_unproven (name, servers) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET servers = min(servers, excluded.servers)",
        .text(definition.name), .integer(servers.contains(table.name) ? 1 : 0))
    }
    if adopted.isEmpty { return 0 }
    let index = try LogIndex(context)
    return try Adoption(connection).adopt(
      adopted.map { table in
        Adoption.Subject(table: table, isLogged: index.contains(table) { table.tableColumn(table.keySlots[$0]) })
      })
  }

  /// Before a recovery, in tables that come as sets of keys: a mark that was set while nobody looked is a delete that waits, or the set
  /// of keys would bring the row again each time. Whether the server has the row, the recovery finds. Other tables are told by the feed. In a
  /// transaction.
  func takeMarks() throws {
    let unproven = try changedHere()
    let spreading = MarkSpreading(connection)
    // What is below is taken along as it is then.
    for definition in context.schema.parentsFirst(context.schema.synchronized).reversed() {
      guard definition.download == .keySet, let table = context.catalog.table(definition.name),
        unproven.contains(table.number), let deleted = table.deletedFlag
      else { continue }
      let index = try LogIndex(context)
      let keys = table.keySlots.map(table.tableColumn).joined(separator: ", ")
      let isLogged = index.contains(table) { table.tableColumn(table.keySlots[$0]) }
      let marked = try connection.rows(
        "SELECT \(keys) FROM \(quoted(table.name)) x WHERE \(CapturedTable.isSet(deleted, "x"))\(table.andHasKey(table.tableColumn)) AND NOT \(isLogged)"
      )
      for key in marked {
        guard let row = try context.markedRow(table, key), try LogIndex(context).entries(table, key).isEmpty else {
          continue
        }
        try spreading.take(table, key) { try context.writeLog([try context.deletion(of: row, table)]) }
      }
    }
  }

  // MARK: Rows whose changes do not fit any more

  /// A row that was changed here, and deleted or made again while nobody looked: its changes are cut to what is left of
  /// them, also those under way to the server, whose values went with the row: the same upload says less then. What the
  /// server made of the rest, comparing finds. One that was marked is deleted.
  private func mend(_ table: CapturedTable) throws {
    let index = try LogIndex(context)
    var unfit: [(key: Key, entries: [LogEntry])] = []
    var marked: [(key: Key, row: SlotRow)] = []
    try index.eachRow(of: table) { key in
      let entries = try index.entries(table, key)
      if entries.isEmpty { return }
      let row = try context.currentRow(table, key)
      if (try? context.timeline(table, key, row, entries)) != nil { return }
      if let row = try markedRow(table, key, under: entries) {
        marked.append((key, row))
      } else {
        unfit.append((key, entries))
      }
    }
    for (key, row) in marked {
      try MarkSpreading(connection).take(table, key) { try context.writeLog([try context.deletion(of: row, table)]) }
    }
    guard !unfit.isEmpty else { return }
    // Nobody knows what changes wrote whose row is gone. That it is gone is found by comparing.
    let counter = try connection.lastCounter()
    for (key, entries) in unfit { try UnfitRows(context: context).cut(entries, key: key, table, areAll: true) }
    try context.keepCounter(counter)
    try context.forgetEmptyRequests()
    try context.noteLogChange()
  }

  /// The row that the changes made, with a mark: it is deleted.
  private func markedRow(_ table: CapturedTable, _ key: Key, under entries: [LogEntry]) throws -> SlotRow? {
    guard let row = try context.markedRow(table, key),
      (try? context.timeline(table, key, row, entries)) != nil
    else { return nil }
    return row
  }
}

extension StoreContext {
  /// The slots of the table's columns whose values nobody here knows (`UnprovenTables`).
  func unknownSlots(of table: CapturedTable) throws -> Set<Int> {
    Set(
      try connection.rows(
        "SELECT slot FROM salvor_column WHERE t = ?1 AND unknown = 1 AND EXISTS (SELECT 1 FROM salvor_unproven WHERE name = ?2 COLLATE NOCASE)",
        .integer(table.number), .text(table.name)
      ).compactMap { $0[0].integer.map { Int($0) } })
  }
}
