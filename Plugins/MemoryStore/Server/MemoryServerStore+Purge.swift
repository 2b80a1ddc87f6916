import SalvorModel
import SalvorStorage

extension MemoryServerStore: PurgingServerStore {
  public func purge(_ keys: [Key], of table: String) throws -> PurgeReport {
    var state = try swept()
    let names = try rows(keys, of: table, in: state)
    var report = PurgeReport()
    for name in names { report += try state.erase(name) }
    try note(names.filter { !state.purged.contains($0) }, isRelease: false, &state)
    report.keys = Int64(state.purgeActs - (try read().purgeActs))
    state.sweep(random: random, time: clock.now())
    write(state)
    return report
  }

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
    for act in ledger.dropFirst(purgeActs) {
      if act.isRelease { purged.remove(act.row) } else { purged.insert(act.row) }
    }
    purgeActs = ledger.count
    for name in purged { _ = try? erase(name) }
  }

  mutating func erase(_ name: RowName) throws -> PurgeReport {
    var report = PurgeReport()
    if tables[name] != nil {
      var runner = StatementRunner(tables, constraints: try Constraints(schema, softForeignKeys: true))
      do {
        let changes = try runner.run(.delete(table: name.table, key: name.key))
        try runner.commit()
        unnumbered.formUnion(
          changes.map(\.name).filter { schema.table($0.table)?.maintained != .client })
      } catch {
        throw SalvorError(
          .cannotStand, "A row of \(name.table) cannot be erased: rows that need it are there.",
          context: ["table": name.table])
      }
      tables = runner.tables
      report.rows = 1
    }
    let before = conflictVersions.count
    conflictVersions.removeAll { $0.table == name.table && $0.key == name.key }
    report.conflicts = Int64(before - conflictVersions.count)
    healed[name] = nil
    claimedDeletes[name] = nil
    waiting.removeAll { $0.request.changes[0].row == name }
    settlings += 1
    remotes = remotes.mapValues { remote in
      var remote = remote
      remote.stagedSequence = nil
      remote.staged = [:]
      for place in (remote.results?.refused ?? []).indices { remote.results?.refused[place].serverRows = [] }
      return remote
    }
    return report
  }
}
