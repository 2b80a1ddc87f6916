import SalvorModel
import SalvorStorage

extension MemoryServerStore: PurgingServerStore {
  /// Errors: `not-found` where the schema has no such synchronized table. A key that no row has is noted as well.
  public func purge(_ keys: [Key], of table: String) throws -> PurgeReport {
    var state = try swept()
    let names = try rows(keys, of: table, in: state)
    var report = PurgeReport()
    var erased = names
    for name in names {
      let (counts, along) = try state.erase(name)
      report += counts
      erased += along.filter { !erased.contains($0) }
    }
    try note(erased.filter { !state.purged.contains($0) }, isRelease: false, &state)
    report.keys = Int64(state.purgeActs - (try read().purgeActs))
    state.sweep(random: random, time: clock.now())
    write(state)
    return report
  }

  /// Returns how many of the keys were purged. Errors: `not-found` where the schema has no such synchronized table.
  public func releasePurged(_ keys: [Key], of table: String) throws -> Int64 {
    var state = try read()
    let names = try rows(keys, of: table, in: state).filter { state.purged.contains($0) }
    try note(names, isRelease: true, &state)
    write(state)
    return Int64(names.count)
  }

  private func rows(_ keys: [Key], of table: String, in state: ServerState) throws -> [RowName] {
    guard state.schema.synchronized.contains(where: { $0.name == table }) else {
      throw SalvorError(.notFound, "The schema has no synchronized table \(table).", context: ["table": table])
    }
    var seen: Set<RowName> = []
    return keys.map { RowName(table: table, key: $0) }.filter { seen.insert($0).inserted }
  }

  private func note(_ names: [RowName], isRelease: Bool, _ state: inout ServerState) throws {
    database.purgeLedger += names.map { MemoryServerDatabase.PurgeAct(row: $0, isRelease: isRelease) }
    state.purgeActs = database.purgeLedger.count
    if isRelease { state.purged.subtract(names) } else { state.purged.formUnion(names) }
  }
}

extension ServerState {
  /// What a restore has brought back of purged rows goes again.
  mutating func replay(_ ledger: [MemoryServerDatabase.PurgeAct]) {
    guard ledger.count > purgeActs else { return }
    // What stands under a key that may be used again is from before the purge, too.
    var erased = purged
    for act in ledger.dropFirst(purgeActs) {
      if act.isRelease {
        purged.remove(act.row)
      } else {
        purged.insert(act.row)
        erased.insert(act.row)
      }
    }
    purgeActs = ledger.count
    for name in erased { _ = try? eraseAgain(name) }
  }

  /// Rows that need the row have come back with it: they lose their reference where it may be empty, and go where it may not.
  private mutating func eraseAgain(_ name: RowName) throws {
    if tables[name] != nil {
      var runner = StatementRunner(tables, constraints: try Constraints(schema, softForeignKeys: true))
      var seen: Set<RowName> = []
      let changes = try release(name, &runner, &seen)
      try runner.commit()
      unnumbered.formUnion(changes.map(\.name).filter { schema.table($0.table)?.maintained != .client })
      tables = runner.tables
    }
    _ = try erase(name)
  }

  private func release(_ name: RowName, _ runner: inout StatementRunner, _ seen: inout Set<RowName>) throws
    -> [RowChange]
  {
    guard name.key.count == 1, seen.insert(name).inserted else { return [] }
    var changes: [RowChange] = []
    for table in schema.synchronized {
      for reference in table.references
      where reference.table == name.table && [.noAction, .restrict].contains(reference.onDelete) {
        guard let column = table.columnIndex(reference.column) else { continue }
        let isFree = table.columns[column].nullable && !table.primaryKey.contains(reference.column)
        for (key, row) in runner.tables.rows(of: table.name) where row[column] == name.key[0] {
          let below = RowName(table: table.name, key: key)
          if isFree {
            changes += try runner.run(
              .update(table: table.name, key: key, values: [NamedValue(reference.column, .null)]))
          } else if !seen.contains(below) {
            changes += try release(below, &runner, &seen)
            changes += try runner.run(.delete(table: table.name, key: key))
          }
        }
      }
    }
    return changes
  }

  /// Answers with the rows that a foreign key takes along, too: they are erased as this one is.
  mutating func erase(_ name: RowName) throws -> (report: PurgeReport, along: [RowName]) {
    var report = PurgeReport()
    var along: [RowName] = []
    if tables[name] != nil {
      var runner = StatementRunner(tables, constraints: try Constraints(schema, softForeignKeys: true))
      do {
        let changes = try runner.run(.delete(table: name.table, key: name.key))
        try runner.commit()
        let changed = Set(changes.map(\.name).filter { schema.table($0.table)?.maintained != .client })
        unnumbered.formUnion(changed)
        along = changed.filter { $0 != name && runner.tables[$0] == nil }
      } catch {
        throw SalvorError(
          .cannotStand, "A row of \(name.table) cannot be erased: rows that need it are there.",
          context: ["table": name.table])
      }
      tables = runner.tables
      (report.rows, report.along) = (Int64(1 + along.count), Int64(along.count))
    }
    for row in [name] + along { report.conflicts += forget(row) }
    settlings += 1
    remotes = remotes.mapValues { remote in
      var remote = remote
      remote.stagedSequence = nil
      remote.staged = [:]
      for place in (remote.results?.refused ?? []).indices { remote.results?.refused[place].serverRows = [] }
      return remote
    }
    return (report, along)
  }

  /// Returns how many conflict versions that were.
  private mutating func forget(_ name: RowName) -> Int64 {
    let before = conflictVersions.count
    conflictVersions.removeAll { $0.table == name.table && $0.key == name.key }
    healed[name] = nil
    claimedDeletes[name] = nil
    waiting.removeAll { $0.request.changes[0].row == name }
    return Int64(before - conflictVersions.count)
  }
}
