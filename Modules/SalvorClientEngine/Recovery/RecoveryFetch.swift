import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorWire

/// Fetches what a recovery needs: what differs, or everything (docs/architecture/recovery.md, *What is fetched*). Where the
/// payload goes is the caller's: into staging, or into memory for a plan.
struct RecoveryFetch {
  let store: any RecoveringClientStore
  var questions: Questions
  let facts: RecoveryFacts
  let status: ClientStatus
  /// False: all rows come one by one.
  var takesSnapshots = false

  /// The keys of one question to the store.
  private static let keysMax = 2000

  /// What a row means that the server does not have. Where a commit is shared, the versions tell which rows are lost. Where
  /// none is, all of them are, but in one and the same history of which this device has seen nothing that the server still
  /// remembers: there they were deleted, and the tombstones are no longer kept.
  static func absence(_ incident: Incident) -> RecoveryOrder.Absence {
    let (facts, state) = (incident.facts, incident.status.state)
    if incident.parting != nil { return .lost }
    guard [.historyTrimmed, .operatorRequested, .clientRewound].contains(incident.reason), facts.shared == nil,
      state.serverID == facts.server
    else { return .lost }
    return isForgotten(incident) ? .deleted : .lost
  }

  /// The server no longer keeps what it made after all that this device has seen: tombstones, and which requests it settled.
  static func isForgotten(_ incident: Incident) -> Bool {
    let newest = incident.status.state.groups.compactMap { $0.cursor?.number }.max() ?? 0
    return newest < incident.facts.trimmed
  }

  /// `Incident.parting`: the incarnations say where histories parted, however much of the change log is kept.
  static func parting(_ facts: RecoveryFacts, _ history: ClientHistory, _ status: ClientStatus) -> Int64? {
    guard facts.shared == nil, status.state.serverID == facts.server,
      let number = Timeline(facts.incarnations).lastShared(with: history.incarnations, head: facts.head.number)
    else { return nil }
    let newest = (status.state.groups.compactMap(\.cursor) + history.commits).map(\.number).max() ?? 0
    return number < facts.trimmed && number < newest ? number : nil
  }

  mutating func run(
    _ what: RecoveryStep.Fetch, reason: RecoveryReason, config: SyncConfig?,
    _ sink: ([UInt8], String) async throws -> Void
  ) async throws -> (starts: [GroupStart], groups: [GroupState]) {
    switch what {
    case .differences: return try await differences(reason, sink)
    case .everything:
      let tables = try await store.history().tables
      let wanted = Self.everyGroup(withMovedTables(try await store.status()), config, tables).map {
        GroupState(name: $0)
      }
      return ([], try await everything(wanted, config, sink))
    }
  }

  /// The names of the groups that a recovery fetches which fetches everything (`groups(of:in:)`).
  ///
  /// - Parameter tables: the device's.
  static func everyGroup(_ status: ClientStatus, _ config: SyncConfig?, _ tables: [Table]) -> [String] {
    let names = config?.groups.map(\.name) ?? status.state.groups.map(\.name)
    let wanted = groups(of: status, in: config?.entries.map(\.table) ?? tables)
    return wanted.isEmpty ? names : names.filter { wanted.contains($0) }
  }

  /// Those that were synchronized, those that a schema has moved their tables to, and those that their rows reference (decision 2).
  /// Another group that was never synchronized stays so, or comes with the next sync.
  private static func groups(of status: ClientStatus, in tables: [Table]) -> Set<String> {
    let here = status.state.groups.filter { $0.isSynchronized || $0.hasMovedTables }
    return Schema(tables: tables).closure(ofGroups: Set(here.map(\.name)))
  }

  /// `status`, with the groups that the server's schema, adopted since, has moved tables to.
  private func withMovedTables(_ now: ClientStatus) -> ClientStatus {
    let moved = now.state.groups.filter(\.hasMovedTables)
    var status = status
    status.state.groups.removeAll { group in moved.contains { $0.name == group.name } }
    status.state.groups += moved
    return status
  }

  /// By files where the server has them and the device takes them, and what has changed since by rows.
  private mutating func everything(
    _ groups: [GroupState], _ config: SyncConfig?, _ sink: ([UInt8], String) async throws -> Void
  ) async throws -> [GroupState] {
    let subscriptions = try await questions.configuration.resolvedSubscriptions().subscriptions
    let transfer = SnapshotTransfer(configuration: questions.configuration, progress: questions.progress)
    let taking = takesSnapshots ? await transfer.taking : nil
    let answer = try await questions.download(groups, subscriptions: subscriptions, snapshot: taking, sink)
    if answer.offers.isEmpty { return answer.groups }
    var received = false
    var held = SnapshotTaking()
    if try await transfer.fetch(answer.offers, counting: &questions.report, received: &received, as: config) {
      held.held = answer.offers.map {
        SnapshotTaking.Held(group: $0.group, commit: $0.commit, scope: $0.scope)
      }
    }
    return try await questions.download(groups, subscriptions: subscriptions, snapshot: held, sink).groups
  }

  private mutating func differences(
    _ reason: RecoveryReason, _ sink: ([UInt8], String) async throws -> Void
  ) async throws -> (starts: [GroupStart], groups: [GroupState]) {
    let tables = try await store.history().tables
    let now = try await store.status()
    let unknown = unknown(beside: tables, ofVersion: now.state.schemaVersion)
    let groups = Self.groups(of: withMovedTables(now), in: tables)
    var starts = try await store.recoveryStarts(shared: facts.shared, trimmed: facts.trimmed)
      .filter { groups.contains($0.name) }
    starts += groups.subtracting(starts.map(\.name)).sorted().map { GroupStart(name: $0, commit: nil) }
    // A person wants the device's rows compared, whatever the history says.
    if reason == .operatorRequested || facts.shared == nil {
      starts = starts.map { GroupStart(name: $0.name, commit: nil) }
    }
    // Where the principal sees other rows than when the cursor was made, no log tells which have come or gone.
    let digests = Dictionary(status.state.groups.map { ($0.name, $0.scopeDigest) }) { first, _ in first }
    starts = starts.map { start in
      digests[start.name] == facts.scopes[start.name] ? start : GroupStart(name: start.name, commit: nil)
    }
    let compared = Set(starts.filter { $0.commit == nil }.map(\.name))
    for table in tables where compared.contains(table.group) {
      var comparison = TableComparison(store: store, questions: questions)
      try await comparison.run(table.name, columns: table.travelling.map(\.name), sink)
      questions = comparison.questions
    }
    for table in unknown.values.sorted(by: { $0.name < $1.name }) where compared.contains(table.group) {
      // One range whose digest no rows have: all keys.
      let all = RangePage(columns: [], ranges: [RangeDigest(last: nil, count: -1, digest: "")], isLast: true)
      try await lose(try await store.differences(from: all, after: nil, of: table.name), unknown, sink)
    }
    var place: Int64 = 0
    while let (queries, next) = try await store.changedKeys(after: starts, place: place, limit: Self.keysMax) {
      try await questions.rows(queries.filter { unknown[$0.table] == nil }, sink)
      try await lose(queries, unknown, sink)
      place = next
    }
    // What has been subscribed to since is brought by the next sync: here both sides mean the same rows.
    let had = Dictionary(status.state.groups.filter(\.isSynchronized).map { ($0.name, $0.subscriptions) }) { $1 }
    let wanted = try await questions.configuration.resolvedSubscriptions().subscriptions
    let schema = Schema(tables: tables)
    let states = try await questions.download(
      starts.map { start in
        GroupState(
          name: start.name, cursor: start.commit ?? facts.head, scopeDigest: facts.scopes[start.name],
          subscriptions: had[start.name] ?? schema.subscriptions(ofNewGroup: start.name, beside: had) ?? wanted)
      }, sink
    ).groups
    return (starts, states)
  }

  /// Tables of this device's schema that the server does not have, by name: it was put back together with an older one. A table that a
  /// schema of the device's version or a later one has renamed or dropped is not there any more.
  private func unknown(beside known: [Table], ofVersion version: Int64) -> [String: Table] {
    let own = questions.configuration.schema
    guard own.version > version else { return [:] }
    let names = Set(known.map { $0.name.folded })
    let unknown = own.synchronized.filter { table in
      !names.contains(table.name.folded) && known.table(formerly: table.name) == nil
        // The device has it under its name of before, until its server's schema renames it.
        && !table.renamedFrom.contains { names.contains($0.folded) }
    }
    return Dictionary(unknown.map { ($0.name, $0) }) { first, _ in first }
  }

  /// Answers in the server's place that it has none of these rows: they are lost there, and offered when it knows their table.
  private func lose(
    _ queries: [RowQuery], _ unknown: [String: Table], _ sink: ([UInt8], String) async throws -> Void
  ) async throws {
    var writer = DownloadChunkWriter()
    for query in queries where !query.keys.isEmpty {
      guard let table = unknown[query.table] else { continue }
      writer.table(table.name, columns: table.travelling.map(\.name))
      for key in query.keys {
        writer.beginKey(.lost, version: nil)
        for value in key { writer.value(value) }
        writer.endRow()
      }
    }
    if writer.byteCount > 0 { try await sink(writer.finish(), "rows") }
  }
}
