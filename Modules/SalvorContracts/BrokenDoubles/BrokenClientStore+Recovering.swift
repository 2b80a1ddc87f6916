import SalvorModel
import SalvorStorage
import SalvorWire

/// The faults of a recovery. The store without one must recover.
extension BrokenClientStore: RecoveringClientStore {
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
    case .forgetsWhatItWrote: if order.heal == .own { order.heal = .off }
    default: break
    }
    return order
  }

  public func recover(_ order: RecoveryOrder) async throws -> RecoveryReport {
    if fault == .keepsCurrent { keptCurrent = try await base.status().state.current }
    return try await recovering.recover(falsified(order))
  }

  public func tablesToCompare(groups: Set<String>) async throws -> [TableDigest] {
    try await recovering.tablesToCompare(groups: groups)
  }

  public func examine(repairing order: RecoveryOrder?) async throws -> Examination {
    try await recovering.examine(repairing: order)
  }

  public func dirtyRows(of table: String) async throws -> Int64 { try await recovering.dirtyRows(of: table) }

  public func digest(of table: String) async throws -> TableDigest { try await recovering.digest(of: table) }

  public func keepForRehearsal(_ payload: [UInt8]) async throws {
    guard fault == .rehearsesForReal else { return try await recovering.keepForRehearsal(payload) }
    try await base.stage(StagedChunk(download: "rehearsal", bytes: payload, position: ""))
  }

  public func forgetRehearsal() async throws { try await recovering.forgetRehearsal() }

  public func rehearse(_ order: RecoveryOrder) async throws -> RecoveryReport {
    fault == .rehearsesForReal ? try await recovering.recover(order) : try await recovering.rehearse(order)
  }

  public func rowsMadeHere() async throws -> Int64 {
    fault == .countsNoRowsOfItsOwn ? 0 : try await recovering.rowsMadeHere()
  }

  public func recoveryStarts(shared: Commit?, trimmed: Int64) async throws -> [GroupStart] {
    try await recovering.recoveryStarts(shared: shared, trimmed: fault == .trustsTrimmedCursors ? 0 : trimmed)
  }

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

  public func differences(from page: RangePage, after: Key?, of table: String) async throws -> [RowQuery] {
    let found = try await recovering.differences(from: page, after: after, of: table)
    guard fault == .comparesCounts else { return found }
    return found.filter { query in
      page.ranges.first { $0.last == query.range?.last }.map { $0.count != Int64(query.keys.count) } ?? true
    }
  }

  public func recoveries(limit: Int) async throws -> [RecoveryReport] { try await recovering.recoveries(limit: limit) }

  public func recoveryItems(_ id: String, after place: Int64, limit: Int) async throws -> [RecoveryItem] {
    fault == .reportsNoRows
      ? try await recovering.recoveryItems(id, after: place, limit: limit).filter { $0.request != nil }
      : try await recovering.recoveryItems(id, after: place, limit: limit)
  }

  public func journal() async throws -> [UInt8]? { try await recovering.journal() }

  public func setJournal(_ bytes: [UInt8]?) async throws {
    var bytes = bytes
    // Written over the old one, whose end stays.
    if fault == .overwritesTheJournal, let new = bytes, let old = try await recovering.journal() {
      bytes = new + old.dropFirst(new.count)
    }
    try await recovering.setJournal(bytes)
  }

  public func setJournalAside() async throws -> String {
    fault == .keepsDamagedJournals ? "" : try await recovering.setJournalAside()
  }

  public func makeCopy(id: String, reason: String) async throws -> Backup {
    try await recovering.makeCopy(
      id: fault == .keepsEveryCopy ? "\(id) \(RequestStamp(from: SystemRandom()))" : id, reason: reason)
  }

  public func setAside(id: String, reason: String) async throws -> Backup {
    try await recovering.setAside(id: id, reason: reason)
  }

  public func backups() async throws -> [Backup] { try await recovering.backups() }

  public func deleteBackup(_ id: String) async throws -> Bool { try await recovering.deleteBackup(id) }

  public func restoreBackup(_ id: String) async throws {
    if fault != .restoresNothing { try await recovering.restoreBackup(id) }
  }
}
