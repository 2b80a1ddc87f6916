import SalvorModel
import SalvorStorage
import SalvorWire

/// The faults of a recovery. The store without one must recover.
extension BrokenClientStore: RecoveringClientStore {
  /// The base's. Empty where the base does not recover.
  public nonisolated var location: String { (base as? any RecoveringClientStore)?.location ?? "" }

  private var recovering: any RecoveringClientStore {
    get throws {
      guard let store = base as? any RecoveringClientStore else {
        throw SalvorError(.usage, "The store that is to be broken does not recover. Give one that does.")
      }
      return store
    }
  }

  private func falsified(_ order: RecoveryOrder) -> RecoveryOrder {
    var order = order
    switch fault {
    case .recoversTwice: order.id += " \(RequestStamp(from: SystemRandom()))"
    case .ignoresTheGuard: order.removedShareMax = nil
    case .keepsLostCommits: order.shared = order.absence == .lost ? Int64.max : order.shared
    case .discardsWhatWaits: order.requests = .discard
    case .keepsWhatIsDiscarded: order.requests = .keep
    case .keepsItsRemoteID: order.remoteID = nil
    case .rebuildsEverything: if order.rebuild != .nothing { order.rebuild = .everything }
    case .takesLostForDeleted: order.absence = .deleted
    // Nor is it offered later.
    case .forgetsWhatItWrote: if order.heal == .own { order.takesOffers = false }
    default: break
    }
    return order
  }

  /// Changes the order by the fault. `keepsCurrent`: `status` goes on showing the current sequence ID of before.
  public func recover(_ order: RecoveryOrder) async throws -> RecoveryReport {
    if fault == .keepsCurrent { keptCurrent = try await base.status().state.current }
    return try await recovering.recover(falsified(order))
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func tablesToCompare(groups: Set<String>) async throws -> [TableDigest] {
    try await recovering.tablesToCompare(groups: groups)
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func examine(repairing order: RecoveryOrder?) async throws -> Examination {
    try await recovering.examine(repairing: order)
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func dirtyRows(of table: String) async throws -> Int64 { try await recovering.dirtyRows(of: table) }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func digest(of table: String) async throws -> TableDigest { try await recovering.digest(of: table) }

  /// `rehearsesForReal`: the payload goes into staging, where an `apply` would find it.
  public func keepForRehearsal(_ payload: [UInt8]) async throws {
    guard fault == .rehearsesForReal else { return try await recovering.keepForRehearsal(payload) }
    try await base.stage(StagedChunk(download: "rehearsal", bytes: payload, position: ""))
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func forgetRehearsal() async throws { try await recovering.forgetRehearsal() }

  /// `rehearsesForReal`: recovers, so that the database is changed.
  public func rehearse(_ order: RecoveryOrder) async throws -> RecoveryReport {
    fault == .rehearsesForReal ? try await recovering.recover(order) : try await recovering.rehearse(order)
  }

  /// `countsNoRowsOfItsOwn`: always 0.
  public func rowsMadeHere() async throws -> Int64 {
    fault == .countsNoRowsOfItsOwn ? 0 : try await recovering.rowsMadeHere()
  }

  /// `trustsTrimmedCursors`: takes it that the server has trimmed nothing.
  public func recoveryStarts(shared: Commit?, trimmed: Int64) async throws -> [GroupStart] {
    try await recovering.recoveryStarts(shared: shared, trimmed: fault == .trustsTrimmedCursors ? 0 : trimmed)
  }

  /// `namesOnlyTheFirstKeys`: nil after the first page. `overstepsPages`: the keys of one change more than `limit`.
  public func changedKeys(
    after starts: [GroupStart], place: Int64, limit: Int
  ) async throws -> (queries: [RowQuery], place: Int64)? {
    guard var page = try await recovering.changedKeys(after: starts, place: place, limit: limit) else { return nil }
    if fault == .namesOnlyTheFirstKeys, place > 0 { return nil }
    if fault == .overstepsPages, let more = try await recovering.changedKeys(after: starts, place: page.place, limit: 1)
    {
      page = (page.queries + more.queries, more.place)
    }
    return page
  }

  /// `comparesCounts`: only ranges whose row counts differ; equal counts with other values are passed over.
  public func differences(from page: RangePage, after: Key?, of table: String) async throws -> [RowQuery] {
    let found = try await recovering.differences(from: page, after: after, of: table)
    guard fault == .comparesCounts else { return found }
    return found.filter { query in
      page.ranges.first { $0.last == query.range?.last }.map { $0.count != Int64(query.keys.count) } ?? true
    }
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func recoveries(limit: Int) async throws -> [RecoveryReport] { try await recovering.recoveries(limit: limit) }

  /// `reportsNoRows`: only the lines about requests; those about rows are left out.
  public func recoveryItems(_ id: String, after place: Int64, limit: Int) async throws -> [RecoveryItem] {
    fault == .reportsNoRows
      ? try await recovering.recoveryItems(id, after: place, limit: limit).filter { $0.request != nil }
      : try await recovering.recoveryItems(id, after: place, limit: limit)
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func journal() async throws -> [UInt8]? { try await recovering.journal() }

  /// `overwritesTheJournal`: the end of a longer journal of before stays behind the new one.
  public func setJournal(_ bytes: [UInt8]?) async throws {
    var bytes = bytes
    // Written over the old one, whose end stays.
    if fault == .overwritesTheJournal, let new = bytes, let old = try await recovering.journal() {
      bytes = new + old.dropFirst(new.count)
    }
    try await recovering.setJournal(bytes)
  }

  /// `keepsDamagedJournals`: does nothing, and answers with an empty name.
  public func setJournalAside() async throws -> String {
    fault == .keepsDamagedJournals ? "" : try await recovering.setJournalAside()
  }

  /// `keepsEveryCopy`: each copy gets an ID of its own, so that none takes the place of an earlier one.
  public func makeCopy(id: String, reason: String) async throws -> Backup {
    try await recovering.makeCopy(
      id: fault == .keepsEveryCopy ? "\(id) \(RequestStamp(from: SystemRandom()))" : id, reason: reason)
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func setAside(id: String, reason: String) async throws -> Backup {
    try await recovering.setAside(id: id, reason: reason)
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func backups() async throws -> [Backup] { try await recovering.backups() }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func deleteBackup(_ id: String) async throws -> Bool { try await recovering.deleteBackup(id) }

  /// `restoresNothing`: returns without an error, and the database is as it was.
  public func restoreBackup(_ id: String, copyID: String) async throws -> Backup? {
    fault == .restoresNothing ? nil : try await recovering.restoreBackup(id, copyID: copyID)
  }
}
