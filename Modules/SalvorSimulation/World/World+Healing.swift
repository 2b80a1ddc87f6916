import SalvorModel
import SalvorServerEngine
import SalvorStorage

extension World {
  /// Devices that come to the end of the history.
  var present: [SimulatedDevice] { devices.filter { $0.hasDatabase && !away.contains($0.number) } }

  /// Rows with changes on devices that the server was not seen to have.
  func waitingRows() throws -> Set<RowName> {
    try devices.reduce(into: []) { rows, device in rows.formUnion(try device.dirtyRows()) }
  }

  var healingStore: (any HealingServerStore)? { serverStore as? any HealingServerStore }

  /// Conflict versions that wait for a person, as far as devices sent them.
  func openVersions() async throws -> [ConflictVersion] {
    guard history.swarm.has(.consent) else { return [] }
    return try await serverStore?.conflicts(after: 0, limit: 10_000, state: .open) ?? []
  }

  /// Two devices write one row, the second knowing the first's value.
  func duel(_ a: Int, _ b: Int, _ place: Int, _ step: Int) async throws {
    guard away.isDisjoint(with: [a, b]) else { return }
    await synchronize(devices[a], NetworkFaults(), meanwhile: [])
    guard devices[a].hasDatabase else { return }
    let tables = Set(serverSchema.synchronized.filter { $0.maintained != "server" }.map(\.name))
    let rows = try devices[a].contents().filter { tables.contains($0.key.table) }.sorted { $0.key < $1.key }
    guard !rows.isEmpty else { return }
    let (name, row) = rows[place % rows.count]
    guard let table = serverSchema.table(name.table) else { return }
    let key = zip(table.keyColumns, row).map { "\($0) = \(literal($1))" }.joined(separator: " AND ")
    for number in [a, b] {
      await synchronize(devices[number], NetworkFaults(), meanwhile: [])
      try await write(devices[number], ["UPDATE \(name.table) SET note = 'd\(number).\(step).9\(number)' WHERE \(key)"])
      await synchronize(devices[number], NetworkFaults(), meanwhile: [])
    }
  }

  /// The operator accepts what waits for him.
  func acceptOffers(_ query: WaitingQuery) async throws {
    guard let healingStore else { return }
    let before = try serverContents()
    let count: Int64
    do { count = try await healingStore.acceptOffers(query) } catch let error as SalvorError
      where error.code == .storageBusy
    {
      // The server reopens what another copy was put into, and he accepts it another day.
      return trace.add("  server: \(shown(error))")
    }
    if count > 0 { coverage.meet("offers accepted") }
    trace.add("  server: \(count) offers accepted")
    let after = try serverContents()
    if before != after { try lookAtServer() }
  }

  /// Nothing that could be settled waits any more. True: something was.
  func settleOffers() async throws -> Bool {
    guard history.swarm.has(.heal), let healingStore else { return false }
    // What a pause alone held goes on as soon as that ends, and its devices have to hear of it, too.
    guard try await !healingStore.waitingOffers().isEmpty else { return false }
    try await healingStore.setHealPace(HealPace())
    try lookAtServer()
    try await acceptOffers(WaitingQuery())
    return true
  }

  /// What waits for a row that nobody brings is given up. True: something was.
  func rejectOffers() async throws -> Bool {
    guard history.swarm.has(.heal), let healingStore else { return false }
    let count = try await healingStore.rejectOffers(WaitingQuery())
    if count > 0 { coverage.meet("offers that wait for a parent") }
    trace.add("  server: \(count) offers rejected")
    return count > 0
  }

  /// Everybody who returns has synchronized: what a restore took is there again.
  func judgeHealing() async throws {
    guard history.swarm.has(.heal), let serverStore else { return }
    let versions = try await serverStore.conflicts(after: 0, limit: 10_000, state: nil)
    let judgement = oracle.heal.judge(
      try serverContents(),
      try devices.map { device in
        HealOracle.Device(
          returns: device.hasDatabase && !away.contains(device.number), heal: heal(of: device),
          archive: try device.archiveTextOfRequests())
      }, conflicts: try await conflictText(),
      settled: versions.flatMap { $0.server.row ?? [] }.map { literal($0.value) }.joined(separator: "\n"),
      kept: keptValues(versions))
    if judgement.judged > 0 { coverage.meet("lost rows judged") }
    trace.add("healing: \(judgement.judged) lost rows judged")
    for finding in judgement.findings.prefix(5) { oracle.report(.notHealed, finding.message) }
  }

  /// What a device may give back of each table: the stricter of its own word and the schema's.
  private func heal(of device: SimulatedDevice) -> [String: HealMode] {
    let own = device.settings.heal.flatMap { HealMode(rawValue: $0) } ?? .own
    return Dictionary(
      uniqueKeysWithValues: serverSchema.tables.map { table in
        (table.name, own.stricter(or: table.heal.flatMap { HealMode(rawValue: $0) } ?? .all))
      })
  }

  func heals() -> [[String: HealMode]] { devices.map(heal) }

  /// The values that stand beside each row, by the place of their column. A delete has none.
  private func keptValues(_ versions: [ConflictVersion]) -> [RowName: [Int: [Value]]] {
    var kept: [RowName: [Int: [Value]]] = [:]
    for version in versions {
      let name = RowName(table: version.table, key: version.key.map(literal).joined(separator: ", "))
      let columns = serverSchema.table(version.table)?.columnList(serverSchema).map(\.name) ?? []
      kept[name, default: [:]].merge(
        version.client.columns.compactMap { column in
          columns.firstIndex(of: column.name).map { ($0, [column.new]) }
        }, uniquingKeysWith: +)
    }
    return kept
  }

  /// An operator purges one of the server's rows.
  func purge(_ place: Int) async throws {
    let before = try serverContents()
    let rows = before.filter { serverSchema.table($0.key.table)?.maintained != "server" }.sorted { $0.key < $1.key }
    guard !rows.isEmpty, let server else { return }
    let (name, row) = rows[place % rows.count]
    let keyCount = serverSchema.table(name.table)?.keyColumns.count ?? 1
    do {
      _ = try await server.engine.purge([Array(row.prefix(keyCount))], of: name.table)
    } catch let error as SalvorError where [.cannotStand, .notFound, .storageBusy].contains(error.code) {
      // Busy: the server reopens what another copy was put into, and he tries it another day.
      return trace.add("  server: \(shown(error))")
    }
    let after = try serverContents()
    oracle.ran(before, after)
    // What goes with it by a foreign key is erased as it is (decision 233).
    for gone in Set(before.keys.filter { after[$0] == nil } + [name]).sorted() { oracle.purge(gone) }
    oracle.wrote(nil, before, after)
    trace.add("  server: \(name) is purged")
  }
}
