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

  /// Everybody who returns has synchronized: what a restore took is there again.
  func judgeHealing() async throws {
    guard history.swarm.has(.heal), let serverStore else { return }
    let versions = try await serverStore.conflicts(after: 0, limit: 10_000, state: nil)
    let judgement = oracle.heal.judge(
      try serverContents(),
      try devices.map { device in
        HealOracle.Device(
          returns: device.hasDatabase && !away.contains(device.number), heal: device.settings.heal ?? "own",
          archive: try device.archiveTextOfRequests())
      }, conflicts: try await conflictText(),
      conflictRows: Set(versions.map { RowName(table: $0.table, key: $0.key.map(literal).joined(separator: ", ")) }))
    if judgement.judged > 0 { coverage.meet("lost rows judged") }
    trace.add("healing: \(judgement.judged) lost rows judged")
    for finding in judgement.findings.prefix(5) { oracle.report(.notHealed, finding.message) }
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
    } catch let error as SalvorError where [.cannotStand, .notFound].contains(error.code) {
      return trace.add("  server: \(shown(error))")
    }
    let after = try serverContents()
    oracle.ran(before, after)
    oracle.purge(name)
    oracle.wrote(nil, before, after)
    trace.add("  server: \(name) is purged")
  }
}
