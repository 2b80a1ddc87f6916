import SalvorClientEngine
import SalvorModel

/// Disks that fail, and what an application does with its own tables.
extension World {
  /// A device synchronizes, and a disk does what was planned for it.
  func failDisk(_ device: SimulatedDevice, atServer: Bool, _ plan: MachineDisk.Plan) async throws {
    guard let disk = atServer ? serverDisk : device.disk else { return }
    await device.endProcess()
    try device.prepare()
    device.closeApplication()
    platform.letGo(device.path)
    let token = device.token
    disk.arm(plan)
    let report = await sync(device)
    let struck = disk.struck
    disk.arm(nil)
    coverage.meet("disk \(plan.fault.rawValue)\(atServer ? " of the server" : "")\(struck == 0 ? " missed" : "")")
    let storage: Set<ErrorCode> = [.storage, .storageFull, .storageBusy]
    guard disk.isDead else {
      return judge(report, device, isFaulty: atServer, allowing: struck == 0 ? [] : storage)
    }
    if atServer {
      await stopServer()
      platform.letGo(serverPath)
      try disk.revive()
      try await startServer()
      judge(report, device, isFaulty: true, allowing: storage)
      return
    }
    device.token = token
    try await powerUp(device, disk)
  }

  private func powerUp(_ device: SimulatedDevice, _ disk: MachineDisk) async throws {
    trace.add("  \(device.name): no power")
    await device.endProcess()
    device.closeApplication()
    platform.letGo(device.path)
    try disk.revive()
    try await open(device)
    // What was not synced may have been the triggers.
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'salvor%'"
    if try device.database().rows(triggers) == [[.integer(0)]] { oracle.lostTriggers(device.number) }
  }

  /// The device's disk fails during a transaction of the application's: all of it is there then, or nothing.
  func failWrite(_ device: SimulatedDevice, _ statements: [String], _ plan: MachineDisk.Plan) async throws {
    if try !device.isMade() { try await open(device) }
    guard let disk = device.disk, try device.isMade() else { return }
    let statements = try adapted(statements, device.database())
    let (before, waited) = (try device.contents(), try device.dirtyRows())
    let database = try device.database()
    // A power cut may take with it what Salvor wrote before: nothing of that has to be synced.
    let isSynced = generator.chance(50)
    if isSynced { _ = try database.rows("PRAGMA wal_checkpoint") }
    // What it comes to is seen first, without a fault.
    try database.execute("BEGIN IMMEDIATE")
    var refused: Set<Int> = []
    for (place, sql) in statements.enumerated() {
      oracle.runs(sql)
      do { try database.execute(sql) } catch { refused.insert(place) }
    }
    guard database.isInTransaction else { return }
    let whole = try device.contents()
    try database.execute("ROLLBACK")
    disk.arm(plan)
    var isDone = false
    do {
      try database.execute("BEGIN IMMEDIATE")
      for (place, sql) in statements.enumerated() {
        do { try database.execute(sql) } catch  where refused.contains(place) && database.isInTransaction {}
      }
      try database.execute("COMMIT")
      isDone = true
    } catch {
      trace.add("  \(device.name): \(shown(error))")
      if !disk.isDead, database.isInTransaction { try? database.execute("ROLLBACK") }
    }
    coverage.meet("write \(plan.fault.rawValue)\(disk.struck == 0 ? " missed" : "")")
    disk.arm(nil)
    if disk.isDead { try await powerUp(device, disk) }
    let after = try device.contents()
    if after != whole, isDone || isSynced && after != before {
      oracle.report(
        isDone ? .disappeared : .halfApplied,
        "\(device.name): \(plan.fault.rawValue) left something else of a transaction than all or nothing")
    }
    oracle.ran(before, after)
    try noteWrites(device, statements, before, waited)
  }

  func migrate(_ device: SimulatedDevice, _ statement: String, pauses: Bool) async throws {
    guard device.hasDatabase else { return }
    try await expecting(device, allowing: [.usage, .recoveryRequired]) { client in
      if pauses { _ = try await client.pauseCapture() }
      do {
        for statement in try self.adapted([statement], device.database()) { try device.database().execute(statement) }
      } catch {
        self.trace.add("  \(device.name): \(self.shown(error))")
      }
      if pauses { _ = try await client.resumeCapture() }
    }
  }

  /// What shows something and changes nothing.
  func look(_ device: SimulatedDevice) async throws {
    try await expecting(device, allowing: []) { client in
      let status = try await client.status()
      self.trace.add("  \(device.name): \(status.queued) queued")
      for entry in try await client.queue() + client.errorArchive() where entry.table.isEmpty {
        self.oracle.report(.nameless, "\(device.name): a request names no table")
      }
      for recovery in try await client.recoveries() { _ = try await client.recoveryItems(recovery.id) }
      _ = try await client.backups()
      _ = try await client.notes()
    }
  }
}
