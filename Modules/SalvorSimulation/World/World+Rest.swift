import SalvorClientEngine
import SalvorModel
import SalvorStorage

extension World {
  /// The faults are over: everybody synchronizes until nothing moves any more, and then both sides are compared.
  func comeToRest() async throws {
    await stopServer()
    serverSchema = newestSchema
    try await startServer()
    for device in present {
      await device.endProcess()
      device.closeApplication()
      device.schema = serverSchema
    }
    trace.add("quiet")
    guard try await settle("quiet") else { return }
    // What needs what was accepted comes after it, and waits for him again.
    for _ in 0..<3 {
      guard try await settleOffers() else { break }
      guard try await settle("with what waited accepted") else { return }
    }
    try await judgeHealing()
    if try await rejectOffers() {
      guard try await settle("with what waited in vain rejected") else { return }
    }
    try await compare(strictly: false)
    guard oracle.violations.isEmpty else { return }
    for device in present {
      // In individual mode one entry after the other.
      for _ in 0..<500 { guard try await deleteErrors(device) else { break } }
    }
    trace.add("archives emptied")
    guard try await settle("with empty archives") else { return }
    try await compare(strictly: true)
  }

  /// Rounds of syncs until one moves nothing. False: there was a violation.
  private func settle(_ when: String) async throws -> Bool {
    let roundsMax = 8
    for round in 1...roundsMax {
      var isQuiet = true
      for device in present {
        var report = await sync(device)
        judge(report, device)
        if report.exitCode == 5 { report = await decide(device) }
        let moved = report.uploaded + report.upserts + report.deletes + report.refused + report.displaced
        if moved > 0 || report.recovery != nil || report.error != nil { isQuiet = false }
        try lookAtServer()
        try await audit(device)
        try tellRows()
        guard oracle.violations.isEmpty else { return false }
      }
      if isQuiet { return true }
      if round == roundsMax {
        oracle.report(.stuck, "after \(roundsMax) rounds of syncs something still moves (\(when))")
      }
    }
    return false
  }

  /// A person decides: first what keeps most.
  private func decide(_ device: SimulatedDevice) async -> SyncReport {
    var report = SyncReport()
    for strategy in ["recover-unsynced-changes", "discard-unsynced-changes", "recreate"] {
      report = await recover(device, strategy)
      trace.add("  \(device.name): recover by \(strategy): \(report.error.map { shown($0) } ?? "done")")
      if report.exitCode != 5 && report.error == nil { return report }
    }
    oracle.report(
      .stuck,
      "\(device.name): no recovery by hand ends exit code 5: \(report.error.map { shown($0) } ?? report.outcomeWord)"
    )
    return report
  }

  private func compare(strictly: Bool) async throws {
    for device in present {
      let dirty = try device.dirtyRows()
      if strictly, !dirty.isEmpty {
        oracle.report(
          .stuck, "\(device.name) has unsettled changes for ever: \(dirty.sorted().prefix(3).map(\.description))")
      }
      let waiting = try await device.running().queue().filter { $0.state != .refused && $0.state != .blocked }
      if !waiting.isEmpty {
        oracle.report(.stuck, "\(device.name) never sends \(waiting[0].operation.rawValue) of \(rowName(waiting[0]))")
      }
      let synchronized = Set(device.schema.synchronized.map(\.name))
      let found = try device.contents().filter { synchronized.contains($0.key.table) }
      oracle.compare(device.number, expected: try expected(device), found: found, except: strictly ? [] : dirty)
      for table in device.schema.present where table.hasFlags {
        let rows = try device.flagged(table)
        for name in rows.flagged.symmetricDifference(dirty.intersection(rows.all)).sorted().prefix(2) {
          oracle.report(.report, "\(device.name): the dirty column of row \(name) says what is not so")
        }
      }
      try check(
        device.database(), device.isDangling ? "\(device.name), whose application's REPLACE began it" : device.name)
      try checkArchive(device)
    }
    try check(serverDatabase(), "the server")
  }

  /// Never 5.
  private func check(_ database: any SimulatedDatabase, _ name: String) throws {
    for row in try database.rows("PRAGMA integrity_check") where row[0] != "ok" {
      oracle.report(.damaged, "\(name): \(row[0])")
    }
    for row in try database.rows("PRAGMA foreign_key_check").prefix(1) {
      oracle.report(.damaged, "\(name): a row of \(row[0]) references a row of \(row[2]) that is not there")
    }
  }

  /// Never 7: every entry says which row, what happened, and why.
  private func checkArchive(_ device: SimulatedDevice) throws {
    let query = "SELECT state, reason, \"table\", key, operation, message FROM salvor_error_archive"
    for row in try device.database().rows(query) {
      coverage.meet("archive \(row[0]) \(row[1])")
      if row[1].isNull || row[2].isNull || row[3].isNull || row[4].isNull {
        oracle.report(
          .nameless, "\(device.name): an archive entry says \(row.map(\.description).joined(separator: ", "))")
      }
    }
  }
}
