import SalvorClientEngine
import SalvorContracts
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorWire

extension World {
  func perform(_ step: Step) async throws {
    if let device = step.device, away.contains(device) { return }
    happened.insert(step.name)
    if !Specification.follows(step) { await partFromSpecification(step.name) }
    switch step.action {
    case .write(let number, let statements):
      let moves = try await write(devices[number], statements)
      await specify { try await $0.write(devices[number], moves) }
    case .program(let statements):
      let moves = try program(statements)
      await specify { try await $0.write(nil, moves) }
    case .watch(let number, let groups, let faults, let turns):
      let groups = groups.map { known($0, devices[number]) }
      if groups?.isEmpty != true { try await watch(devices[number], groups, faults, turns) }
    case .syncGroups(let number, let groups, let faults):
      await synchronize(devices[number], known(groups, devices[number]), faults)
    case .writeFault(let number, let statements, let plan):
      try await failWrite(devices[number], statements, plan)
    case .setHome(let number, let region):
      guard try devices[number].isMade() else { return }
      try devices[number].database().execute(
        region.map { "INSERT OR REPLACE INTO salvor_setting VALUES ('home', '\($0)')" }
          ?? "DELETE FROM salvor_setting WHERE name = 'home'")
    case .moveTable(let table, let group): try await move(table, to: group)
    case .uproot(let number, let place): try await uproot(devices[number], place)
    case .sync(let number, let faults, let meanwhile):
      await synchronize(devices[number], faults, meanwhile: meanwhile)
      await specify(number)
    case .hold(let number, let statements, let after, let jobs, let commits):
      try await hold(devices[number], statements, after: after, jobs: jobs, commits: commits)
    case .pair(let a, let b, let faults):
      guard away.isDisjoint(with: [a, b]) else { return }
      await pair(devices[a], devices[b], faults)
    case .leave(let number):
      // Somebody stays.
      if away.count + 1 < devices.count { away.insert(number) }
    case .purge(let place): try await purge(place)
    case .duel(let a, let b, let place): try await duel(a, b, place, step.id)
    case .acceptOffers(let table): try await acceptOffers(WaitingQuery(table: table))
    case .setHeal(let number, let mode):
      await devices[number].endProcess()
      devices[number].settings.heal = mode
      coverage.meet("heal changed")
      oracle.configured(heals())
    case .setTableHeal(let table, let mode):
      guard serverSchema.tables[table].maintained == "dual" else { return }
      await stopServer()
      serverSchema.tables[table].heal = mode
      oracle.configured(heals())
      try await startServer()
    case .paceHealing(let pauses): try await healingStore?.setHealPace(HealPace(isPaused: pauses))
    case .twoProcesses(let number): try await twoProcesses(devices[number])
    case .crash(let number, let call): try await crash(devices[number], call)
    case .restartDevice(let number):
      await devices[number].endProcess()
      devices[number].closeApplication()
    case .restartServer:
      await stopServer()
      try await startServer()
    case .backup(let slot):
      await stopServer()
      try DatabaseFiles.copy(serverPath, to: "\(directory)/backup\(slot).db")
      backups[slot] = serverSchema
      oracle.backedUp(slot)
      try await startServer()
    case .restore(let slot, let sideFile, let inPlace): try await restore(slot, sideFile: sideFile, inPlace: inPlace)
    case .replaceServer:
      await stopServer()
      platform.letGo(serverPath)
      DatabaseFiles.remove(serverPath, others: [DatabaseFiles.side])
      serverDisk?.forget()
      try await startServer()
      oracle.serverWentBack(to: try serverContents())
    case .trim: await server?.engine.trim(retentionMilliseconds: 0)
    case .wait(let hours): schedule.advance(milliseconds: Int64(hours) * 3_600_000)
    case .clockJump(let number, let hours):
      devices[number].clock.jump(milliseconds: Int64(hours) * 3_600_000)
    case .resolveConflicts(let keepServer): try await resolveConflicts(keepServer: keepServer)
    case .evolveServer(let table):
      guard serverSchema.tables[table].maintained != "client", serverSchema.tables[table].extras.isEmpty else { return }
      await stopServer()
      serverSchema.tables[table].extras = [.init(name: "extra", declaration: "text?")]
      serverSchema.version += 1
      try await startServer()
    case .changeSchema(let change): try await changeSchema(change, number: step.id)
    default: try await performOnDevice(step)
    }
  }

  private func performOnDevice(_ step: Step) async throws {
    switch step.action {
    case .copyDevice(let number, let slot):
      let device = devices[number]
      guard device.hasDatabase else { return }
      await device.endProcess()
      device.closeApplication()
      let path = "\(directory)/\(device.name)-\(slot).copy"
      try DatabaseFiles.copy(device.path, to: path, others: [DatabaseFiles.identity, DatabaseFiles.journal])
      device.copies[slot] = .init(path: path, account: oracle.account(of: number))
    case .putBack(let number, let slot, let identity):
      guard let copy = devices[number].copies[slot] else { return }
      await place(copy.path, at: devices[number], account: copy.account, identity: identity)
    case .clone(let from, let to, let identity):
      let source = devices[from]
      guard source.hasDatabase, source.settings.principal == devices[to].settings.principal else { return }
      await source.endProcess()
      source.closeApplication()
      devices[to].schema = source.schema
      // Who copies a machine copies its configuration: requests that one of the two joins are others to the server.
      devices[to].settings.optimises = source.settings.optimises
      oracle.cloned(from)
      await place(source.path, at: devices[to], account: oracle.account(of: from), identity: identity)
    case .dropTriggers(let number):
      guard devices[number].hasDatabase else { return }
      let database = try devices[number].database()
      for row in try database.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'salvor%'") {
        try database.execute("DROP TRIGGER \"\(row[0])\"")
      }
      oracle.lostTriggers(number)
    case .evolveDevice(let number):
      guard devices[number].schema != serverSchema else { return }
      await devices[number].endProcess()
      devices[number].closeApplication()
      devices[number].schema = serverSchema
      try await open(devices[number])
    case .verify(let number):
      guard devices[number].hasDatabase else { return }
      let parted: Set<ErrorCode> = [.recoveryRequired, .uploadFailedAtServer, .schemaIncompatible, .massDeletion]
      // It asks for a synchronization first where a table has come into another group.
      let moved: Set<ErrorCode> = happened.contains("moveTable") ? [.inconsistentDownload] : []
      try await expecting(devices[number], allowing: parted.union([.usage]).union(moved)) {
        _ = try await $0.verify()
      }
      // It sends what waits first.
      await specify { try await $0.act(devices[number]) { _ = try await $0.verify() } }
    case .disk(let number, let atServer, let plan):
      try await failDisk(devices[number], atServer: atServer, plan)
    case .migrate(let number, let statement, let pauses):
      try await migrate(devices[number], statement, pauses: pauses)
    case .rebuild(let number, let table, let kind, let pauses):
      try await rebuild(devices[number], table, kind, pauses: pauses, number: step.id)
    case .look(let number): try await look(devices[number])
    case .subscribe(let number, let target, let region):
      guard devices[number].hasDatabase else { return }
      let table = try called(target, devices[number])
      let choose: @Sendable (SalvorClient) async throws -> Void = { client in
        let choice = region.map { $0 == "setting:home" ? .setting("home") : Subscription.Choice.value(.text($0)) }
        _ = try await client.subscribe(table, choice.map { ["region": $0] } ?? [:])
      }
      try await expecting(devices[number], allowing: withoutTable, choose)
      await specify { try await $0.act(devices[number], choose) }
    case .unsubscribe(let number, let target, let region):
      guard devices[number].hasDatabase else { return }
      let table = try called(target, devices[number])
      let giveUp: @Sendable (SalvorClient) async throws -> Void = { client in
        do {
          guard let region else { return _ = try await client.unsubscribe(allOf: table) }
          try await client.unsubscribe(table, ["region": .value(.text(region))])
        } catch let error as SalvorError where error.code == .notFound {}
      }
      try await expecting(devices[number], allowing: withoutTable, giveUp)
      await specify { try await $0.act(devices[number], giveUp) }
    default: try await performOnQueue(step)
    }
  }

  private func performOnQueue(_ step: Step) async throws {
    switch step.action {
    case .deleteErrors(let number): try await deleteErrors(devices[number])
    case .deleteKept(let number):
      try await remove(devices[number]) { _ in .allKept }
    case .withdraw(let number):
      try await remove(devices[number]) { client in
        try await client.queue().last { $0.state == .queued }.map { .withdraw($0.id) }
      }
    case .retryErrors(let number):
      try await expecting(devices[number], allowing: [.outcomeUnknown, .notFound]) { _ = try await $0.retry() }
    case .reapplyKept(let number):
      try await expecting(devices[number], allowing: [.cannotStand, .outcomeUnknown]) { client in
        guard let entry = try await client.errorArchive().first(where: { $0.state == .kept }) else { return }
        for change in try await client.request(entry.id) {
          let note = self.newestSchema.table(called: change.table)?.everyName(of: "note") ?? ["note"]
          for value in change.after where note.contains(value.name) {
            if let note = value.value.string { self.oracle.reapplied(self.rowName(change), note) }
          }
        }
        let before = try self.devices[number].contents()
        _ = try await client.reapply(entry.id)
        let after = try self.devices[number].contents()
        self.oracle.ran(before, after)
        self.oracle.captured(number, before, after)
      }
    case .recover(let number, let strategy):
      let device = devices[number]
      let report = await recover(device, strategy)
      judge(
        report, device, allowing: [.recoveryRequired, .usage, .notFound, .uploadFailedAtServer, .schemaIncompatible])
    case .deleteRemote(let number):
      guard let remote = try await remote(of: devices[number]) else { return }
      _ = try await server?.engine.delete(remote: remote)
    case .demandReset(let number):
      guard let remote = try await remote(of: devices[number]) else { return }
      _ = try await server?.engine.demandReset(of: remote)
    default: return
    }
  }

  // MARK: Synchronizing

  /// - Parameter groups: those that are synchronized alone; nil: all.
  func synchronize(
    _ device: SimulatedDevice, groups: Set<String>? = nil, _ faults: NetworkFaults, meanwhile: [String]
  ) async {
    network.setFaults(faults, of: device.name, generator.derived(1))
    let report: SyncReport
    let before = try? Before(device)
    let (start, counted) = (schedule.now, network.counts)
    if meanwhile.isEmpty {
      report = await sync(device, groups: groups)
    } else {
      let jobs = generator.below(60)
      report = await withTaskGroup(of: SyncReport?.self) { group in
        group.addTask { await self.sync(device) }
        group.addTask {
          for _ in 0..<jobs { await Task.yield() }
          if device.hasDatabase { _ = try? await self.write(device, meanwhile) }
          return nil
        }
        var report = SyncReport()
        for await result in group { if let result { report = result } }
        return report
      }
    }
    network.setFaults(nil, of: device.name)
    // Each exchange may take its time, and a server that is busy is waited for a minute at most (semantics 4).
    let counts = network.counts
    let most = 60_000 + (counts.exchanges - counted.exchanges) * 25_000 + (counts.busy - counted.busy) * 61_000
    if schedule.now - start > most {
      oracle.report(.stuck, "\(device.name) synchronizes for \((schedule.now - start) / 1000) s")
    }
    if report.snapshots > 0 { coverage.meet("group by file") }
    judge(report, device, isPart: groups != nil, isFaulty: !faults.isSound)
    if let before, meanwhile.isEmpty { judgeReport(report, device, before, isPart: groups != nil) }
  }

  /// A device before it synchronizes.
  private struct Before {
    var archived: Set<String>
    var contents: Contents

    init(_ device: SimulatedDevice) throws {
      archived = try device.archived()
      contents = try device.contents()
    }
  }

  /// What the report says is what a person finds.
  private func judgeReport(_ report: SyncReport, _ device: SimulatedDevice, _ before: Before, isPart: Bool) {
    // What this very sync sent is there, also where its row left the device at once.
    try? lookAtServer()
    guard report.error == nil, let after = try? device.archived() else { return }
    // What is refused may be displaced at once, by what came down with the refusal; it is in the archive all the same.
    let count = after.subtracting(before.archived).count
    // What was refused as erased leaves nothing behind, and a notice says so.
    let isErased = report.notices.contains { $0.contains("erased for good") }
    if report.recovery == nil, report.refused > count, !isErased {
      oracle.report(.report, "\(device.name): the report says \(report.refused) refused, the archive has \(count) more")
    }
    guard report.recovery.map({ $0.strategy == "rewind" || $0.strategy.hasPrefix("recover-") }) ?? true else {
      return oracle.deletes.forget(device.number)
    }
    // Deletes are remembered for so long, and not over a trimmed history.
    let isRemembered = !history.swarm.has(.trim) && schedule.now - startTime < 80 * 86_400_000
    // Of the other groups it may not have heard.
    if !isPart {
      oracle.deletesAfterSync(
        device.number, before.contents, (try? device.contents()) ?? [:],
        byComparing: report.recovery != nil, recovered: isRemembered && report.recovery?.reason == .serverRestored
      ) { ((try? device.archivedDeletes()) ?? []).union((try? heldDeletes()) ?? []) }
    }
    oracle.lost(device.number, before.contents, (try? device.contents()) ?? [:]) {
      ((try? device.archiveText()) ?? "") + ((try? heldVersions()) ?? "")
    }
  }

  /// The values of the server's conflict versions: what was offered and could not stand, as a unique value that is taken, is there.
  private func heldVersions() throws -> String {
    try serverDatabase().rows("SELECT client FROM salvor_conflict").map(\.[0].description).joined(separator: "\n")
  }

  /// The deletes that devices have offered, and that the server holds: until its operator consents, or as a conflict version
  /// beside a row that was written since.
  private func heldDeletes() throws -> Set<RowName> {
    let query = ["salvor_heal_waiting", "salvor_conflict"].map {
      "SELECT \"table\", key FROM \($0) WHERE operation = 'delete'"
    }
    let held = try serverDatabase().rows(query.joined(separator: " UNION "))
    return Set(
      try held.map { row in
        let key = try JSONValue(parsing: Array((row[1].string ?? "").utf8)).array?.compactMap(\.rowValue) ?? []
        return rowName(row[0].string ?? "", key)
      })
  }

  func sync(_ device: SimulatedDevice, groups: Set<String>? = nil) async -> SyncReport {
    do {
      let report = await keepToken(device, try device.running().attemptSync(groups: groups))
      if mutant == .forgottenDeletes { try? device.database().execute("DELETE FROM salvor_history WHERE deleted = 1") }
      return report
    } catch {
      oracle.report(.unexpected, "\(device.name): \(shown(error))")
      return SyncReport()
    }
  }

  /// - Parameter byHand: a person asked for it.
  func keepToken(_ device: SimulatedDevice, _ report: SyncReport, byHand: Bool = false) -> SyncReport {
    if let recovery = report.recovery {
      if !byHand, !mayRecover(recovery.reason) {
        oracle.report(
          .unexpected,
          "\(device.name) recovers, \(recovery.reason.rawValue), and nothing has happened that is a reason for it")
      }
      oracle.forgetOrigins()
      coverage.meet("recovery \(recovery.reason.rawValue) by \(recovery.strategy)")
      device.token = recovery.token
    }
    return report
  }

  /// Whether something of the history so far is a reason to recover for.
  private func mayRecover(_ reason: RecoveryReason) -> Bool {
    func happened(_ names: String...) -> Bool { !self.happened.isDisjoint(with: names) }
    // What a power cut takes of a device is what a copy that is put back lacks.
    let wentBack = happened("restore", "replaceServer", "putBack", "clone", "disk", "writeFault")
    return switch reason {
    case .serverRestored, .serverReplaced, .clientRewound: wentBack
    case .historyTrimmed: wentBack || happened("trim", "wait")
    case .operatorRequested: happened("demandReset", "recover")
    case .schemaIncompatible:
      happened("evolveServer", "evolveDevice", "migrate", "disk", "writeFault", "changeSchema", "rebuild")
    case .localCorruption: happened("disk", "writeFault")
    }
  }

  private func pair(_ a: SimulatedDevice, _ b: SimulatedDevice, _ faults: NetworkFaults) async {
    network.setFaults(faults, of: a.name, generator.derived(1))
    network.setFaults(faults, of: b.name)
    let reports = await withTaskGroup(of: (Int, SyncReport).self) { group in
      for device in [a, b] { group.addTask { (device.number, await self.sync(device)) } }
      var reports: [Int: SyncReport] = [:]
      for await (number, report) in group { reports[number] = report }
      return reports
    }
    for device in [a, b] {
      network.setFaults(nil, of: device.name)
      if let report = reports[device.number] {
        judge(report, device, isFaulty: !faults.isSound, allowing: [.sessionInUse])
      }
    }
  }

  private func twoProcesses(_ device: SimulatedDevice) async throws {
    let other = try device.makeClient()
    let reports = await withTaskGroup(of: SyncReport.self) { group in
      group.addTask { await self.sync(device) }
      group.addTask { await self.keepToken(device, other.attemptSync()) }
      var reports: [SyncReport] = []
      for await report in group { reports.append(report) }
      return reports
    }
    await other.close()
    for report in reports { judge(report, device, allowing: [.sessionInUse, .storageBusy, .overloaded]) }
  }

  /// The process ends while it synchronizes: nothing that it asks for is done any more.
  private func crash(_ device: SimulatedDevice, _ call: Int) async throws {
    await device.endProcess()
    let strikes = Strikes()
    strikes.arm(.kill(call))
    let client = try device.makeClient(strikes)
    let report = await client.attemptSync()
    await client.close()
    coverage.meet(strikes.hasStruck ? "crash" : "crash missed")
    trace.add("  \(device.name): \(strikes.hasStruck ? "killed" : "ended") \(shown(report))")
    if !strikes.hasStruck { judge(keepToken(device, report), device) }
  }

  func recover(_ device: SimulatedDevice, _ strategy: String?) async -> SyncReport {
    do {
      return await keepToken(
        device, try device.running().recover(strategy: strategy, token: device.token), byHand: true)
    } catch {
      oracle.report(.unexpected, "\(device.name): \(shown(error))")
      return SyncReport()
    }
  }

  // MARK: Judging

  /// Errors that nothing in the history is a reason for.
  ///
  /// - Parameter isPart: some groups were synchronized, and not all.
  func judge(
    _ report: SyncReport, _ device: SimulatedDevice, isPart: Bool = false, isFaulty: Bool = false,
    allowing allowed: Set<ErrorCode> = []
  ) {
    trace.add("  \(device.name): \(shown(report))")
    for notice in report.notices { trace.add("  \(device.name): \(notice.replacingAll(directory, ""))") }
    coverage.meet("outcome \(report.outcomeWord)")
    if report.refused > 0 { coverage.meet("refused") }
    if report.conflicts > 0 { coverage.meet("conflicts") }
    if report.displaced > 0 { coverage.meet("displaced") }
    guard let error = report.error else { return isPart ? () : oracle.synchronized(device.number) }
    coverage.meet("error \(error.code.rawValue)")
    if error.message.isEmpty { oracle.report(.nameless, "\(device.name): \(error.code.rawValue) without a word") }
    var expected: Set<ErrorCode> = [.recoveryRequired, .uploadFailedAtServer, .massDeletion, .schemaIncompatible]
    if isFaulty { expected.formUnion([.unreachable, .timeout, .overloaded, .sessionInUse, .sessionUnknown]) }
    guard !expected.union(allowed).union(ofItself).contains(error.code) else { return }
    oracle.report(.unexpected, "\(device.name) synchronizes: \(shown(error))")
  }

  /// Two files with one remote ID, or an older one put back: it waits for what the other has left open.
  ///
  /// A group in which no table is any more is none.
  private var ofItself: Set<ErrorCode> {
    Set(happened.isDisjoint(with: ["clone", "putBack"]) ? [] : [.sessionInUse])
      .union(happened.isDisjoint(with: ["moveTable", "changeSchema"]) ? [] : [.usage]).union(isBehind)
  }

  private func shown(_ report: SyncReport) -> String {
    let counts = "up \(report.uploaded) down \(report.upserts)/\(report.deletes) refused \(report.refused)"
    let more = "conflicts \(report.conflicts) displaced \(report.displaced) trips \(report.roundTrips)"
    let recovery = report.recovery.map { " \($0.reason.rawValue) by \($0.strategy)" } ?? ""
    return "\(report.outcomeWord) \(counts) \(more)\(recovery)\(report.error.map { " " + shown($0) } ?? "")"
  }

  func expecting(
    _ device: SimulatedDevice, allowing allowed: Set<ErrorCode>, _ body: (SalvorClient) async throws -> Void
  ) async throws {
    guard device.hasDatabase else { return }
    do {
      try await body(try device.running())
    } catch let error as SalvorError {
      trace.add("  \(device.name): \(shown(error))")
      coverage.meet("error \(error.code.rawValue)")
      if !allowed.union(ofItself).contains(error.code) { oracle.report(.unexpected, "\(device.name): \(shown(error))") }
    }
  }

  // MARK: The queue and the archive

  func rowName(_ change: QueuedRequest) -> RowName {
    rowName(change.table, change.key)
  }

  private func rowName(_ table: String, _ key: [Value]) -> RowName {
    RowName(table: newestSchema.table(called: table)?.name ?? table, key: key.map(literal).joined(separator: ", "))
  }

  /// A table as the device has it, or a group.
  private func called(_ target: String, _ device: SimulatedDevice) throws -> String {
    try names(in: device.database())?.tables[target]?.name ?? target
  }

  /// What a device says of a table that a version of its schema has dropped.
  private var withoutTable: Set<ErrorCode> { happened.contains("changeSchema") ? [.notFound, .usage] : [] }

  /// The first entry, and what has to go with it; false: there was none.
  @discardableResult
  func deleteErrors(_ device: SimulatedDevice) async throws -> Bool {
    try await remove(device) { client in
      let entries = try await client.errorArchive().filter { $0.state != .kept }
      guard let entry = entries.first else { return nil }
      return try await client.deletion(of: entry.id)
    }
  }

  /// What the report of a removal names is what a person wanted gone.
  @discardableResult
  func remove(
    _ device: SimulatedDevice, _ what: (SalvorClient) async throws -> RequestRemoval?
  ) async throws -> Bool {
    var isRemoved = false
    try await expecting(device, allowing: [.outcomeUnknown, .notFound]) { client in
      guard let removal = try await what(client) else { return }
      let report = try await client.remove(removal)
      let values = report.requests.flatMap { $0.changes.flatMap { $0.after + $0.before } }
      oracle.withdrawn(device.number, values.map { "'\($0.value)'" }.joined(separator: " "))
      trace.add("  \(device.name): \(report.requests.count) requests removed")
      isRemoved = !report.requests.isEmpty
    }
    return isRemoved
  }

  // MARK: Files

  private func restore(_ slot: Int, sideFile: Bool, inPlace: Bool) async throws {
    guard backups[slot] != nil else { return }
    let waiting = try waitingRows()
    let versions = try await openVersions()
    if inPlace {
      try await overwrite(with: slot)
    } else {
      await stopServer()
      platform.letGo(serverPath)
      DatabaseFiles.remove(serverPath, others: sideFile ? [] : [DatabaseFiles.side])
      if mutant == .forgottenLedger { Files.remove(serverPath + DatabaseFiles.ledger) }
      serverDisk?.forget()
      try DatabaseFiles.copy("\(directory)/backup\(slot).db", to: serverPath)
      takeBackSchema(of: slot)
      try await startServer()
    }
    // A server that runs meets what was put into its file here.
    let kept = Set(try await openVersions().map(\.request))
    oracle.restored(
      slot, to: try serverContents(), waiting: waiting, held: try devices.map { Set(try $0.contents().keys) })
    oracle.heal.lost(versions.filter { !kept.contains($0.request) })
    coverage.meet(inPlace ? "restore in place" : sideFile ? "restore" : "restore without side file")
  }

  /// The server goes on, and so do its connections.
  private func overwrite(with slot: Int) async throws {
    try lookAtServer()
    let copy = "\(directory)/restoring.db"
    // The copy itself stays as it is.
    try DatabaseFiles.copy("\(directory)/backup\(slot).db", to: copy)
    try platform.overwrite(serverPath, copy)
    platform.letGo(copy)
    DatabaseFiles.remove(copy)
    // Purged rows are there until the server looks.
    if happened.contains("purge") { _ = try await serverStore?.sweep() }
  }

  private func place(
    _ path: String, at device: SimulatedDevice, account: Oracle.Account, identity: Bool
  ) async {
    await device.endProcess()
    device.closeApplication()
    platform.letGo(device.path)
    device.disk?.forget()
    DatabaseFiles.remove(device.path, others: [DatabaseFiles.journal] + (identity ? [] : [DatabaseFiles.identity]))
    try? DatabaseFiles.copy(path, to: device.path, others: [DatabaseFiles.journal])
    device.token = nil
    oracle.wentBack(device.number, to: account)
  }

  private func remote(of device: SimulatedDevice) async throws -> RemoteID? {
    guard device.hasDatabase else { return nil }
    return try await device.running().status().state.remoteID
  }

  private func resolveConflicts(keepServer: Bool) async throws {
    guard let serverStore, let engine = server?.engine else { return }
    for version in try await serverStore.conflicts(after: 0, limit: 100, state: .open) {
      for column in version.client.columns where !keepServer {
        for row in [rowName(version.table, version.key)] {
          for note in notes(in: "\(column)") { oracle.resolved(row, note) }
        }
      }
      do {
        _ = try await engine.resolveConflict(version.id, keep: keepServer ? .server : .client, by: "operator")
      } catch let error as SalvorError where [.conflictResolved, .conflictUnresolvable].contains(error.code) {
        trace.add("  server: \(shown(error))")
      }
      try lookAtServer()
    }
  }

  private func notes(in text: String) -> [String] {
    text.split { !($0.isLetter || $0.isNumber || $0 == ".") }.map(String.init).filter { $0.contains(".") }
  }
}

extension SyncReport {
  var outcomeWord: String { outcome?.rawValue ?? "failed" }
}
