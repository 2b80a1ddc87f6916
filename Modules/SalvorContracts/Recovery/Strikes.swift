import SalvorModel
import SalvorStorage
import SalvorWire

/// What happens to a device while it recovers, and when: counted over what it asks of its store and of the network.
package final class Strikes: Sendable {
  package enum Blow: Sendable, Hashable {
    /// The process ends before the n-th call of its store or of the network, whichever comes.
    case kill(Int)
    /// From the n-th writing call of the store on, the disk is full.
    case fillDisk(Int)
    /// From the n-th request on there is no network.
    case loseRequest(Int)
    /// The answer to the n-th request is lost, and the network is gone.
    case loseAnswer(Int)
    /// The server is restored from its copy before the n-th request.
    case restoreServer(Int)
  }

  /// What the device's end of the network does with a request.
  enum Deed: Sendable { case pass, loseAnswer, restoreServer }

  /// Thrown to a process that is no more.
  struct Killed: Error {}

  fileprivate struct State {
    var blow: Blow?
    var calls = 0
    var writes = 0
    var requests = 0
    var hasStruck = false
    var isDead = false
  }

  private let state = Mutex(State())

  package init() {}

  package var hasStruck: Bool { state.withLock { $0.hasStruck } }

  /// Counts anew. Nil: nothing happens from here on.
  package func arm(_ blow: Blow?) { state.withLock { $0 = State(blow: blow) } }

  func storeCall(isWrite: Bool) throws {
    try state.withLock { state in
      try state.call()
      if isWrite { state.writes += 1 }
      guard isWrite, case .fillDisk(let place) = state.blow, state.writes >= place else { return }
      state.hasStruck = true
      throw SalvorError(.storageFull, "The disk is full. Make room, and sync again.")
    }
  }

  func request() throws -> Deed {
    try state.withLock { state in
      try state.call()
      state.requests += 1
      switch state.blow {
      case .loseRequest(let place) where state.requests >= place: break
      case .loseAnswer(let place) where state.requests > place: break
      case .loseAnswer(let place) where state.requests == place:
        state.hasStruck = true
        return .loseAnswer
      case .restoreServer(let place) where state.requests == place:
        state.hasStruck = true
        return .restoreServer
      default: return .pass
      }
      state.hasStruck = true
      throw SalvorError(.unreachable, "The network is gone.")
    }
  }
}

extension Strikes.State {
  /// Every step of the process comes by here.
  fileprivate mutating func call() throws {
    calls += 1
    if case .kill(let place) = blow, calls >= place {
      hasStruck = true
      isDead = true
    }
    if isDead { throw Strikes.Killed() }
  }
}

/// A client's store that is struck, round any that recovers.
package actor StruckStore: RecoveringClientStore {
  private let base: any RecoveringClientStore
  private let strikes: Strikes

  package init(_ base: any RecoveringClientStore, _ strikes: Strikes) {
    self.base = base
    self.strikes = strikes
  }

  package nonisolated var location: String { base.location }

  private func read() throws -> any RecoveringClientStore {
    try strikes.storeCall(isWrite: false)
    return base
  }

  private func write() throws -> any RecoveringClientStore {
    try strikes.storeCall(isWrite: true)
    return base
  }

  package func open(_ setup: ClientSetup) async throws -> ClientOpening { try await write().open(setup) }
  /// What the operating system closes after a process, too.
  package func close() async { await base.close() }
  package func endSession() async { await base.endSession() }

  package func takeBackUpload(_ sequence: SequenceID) async throws { try await write().takeBackUpload(sequence) }
  package func beginSession(groups: Set<String>?, room: UploadRoom) async throws -> ClientSession {
    try await write().beginSession(groups: groups, room: room)
  }
  package func uploadChunk(after counter: Int64, bytesTarget: Int) async throws -> UploadChunk? {
    try await read().uploadChunk(after: counter, bytesTarget: bytesTarget)
  }
  package func settle(sequence: SequenceID, results: UploadResults) async throws -> SettleReport {
    try await write().settle(sequence: sequence, results: results)
  }
  package func stage(_ chunk: StagedChunk) async throws { try await write().stage(chunk) }
  package func discardStaged() async throws { try await write().discardStaged() }
  package func apply(_ end: DownloadEnd) async throws -> ApplyReport { try await write().apply(end) }
  package func adopt(_ config: SyncConfig) async throws -> [String] { try await write().adopt(config) }
  package func remember(_ terms: HealTerms, heal: HealMode, retention: Int64) async throws -> Bool {
    try await write().remember(terms, heal: heal, retention: retention)
  }

  package func remember(server: ServerID, incarnations: [Incarnation], principal: String) async throws {
    try await write().remember(server: server, incarnations: incarnations, principal: principal)
  }
  package func history() async throws -> ClientHistory { try await read().history() }
  package func setRecoveryRequired(_ reason: RecoveryReason?, message: String) async throws {
    try await write().setRecoveryRequired(reason, message: message)
  }
  package func status() async throws -> ClientStatus { try await read().status() }
  package func requests(in states: Set<RequestState>, after: RequestID?, limit: Int) async throws -> [QueuedRequest] {
    try await read().requests(in: states, after: after, limit: limit)
  }
  package func plan(_ removal: RequestRemoval) async throws -> RemovalReport { try await read().plan(removal) }
  package func remove(_ removal: RequestRemoval) async throws -> RemovalReport { try await write().remove(removal) }
  package func retry(_ ids: Set<RequestID>?) async throws -> RetryReport { try await write().retry(ids) }
  package func reapply(_ kept: RequestID) async throws -> RequestID? { try await write().reapply(kept) }
  package func optimiseQueue() async throws -> Int { try await write().optimiseQueue() }
  package func request(_ id: RequestID) async throws -> [QueuedRequest] { try await read().request(id) }
  package func noteUploadFailure(_ failure: UploadFailure) async throws { try await write().noteUploadFailure(failure) }
  package func deviceSettings() async throws -> DeviceSettings { try await read().deviceSettings() }
  package func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) async throws -> Answer { try await write().changeDeviceSettings(change) }
  package func captured(after counter: Int64) async throws -> CapturedChanges {
    try await read().captured(after: counter)
  }
  package func outgoingBlob(_ blob: OutgoingBlob, from offset: Int64, count: Int) async throws -> [UInt8] {
    try await read().outgoingBlob(blob, from: offset, count: count)
  }
  package func missingBlobs(limit: Int) async throws -> [MissingBlob] { try await read().missingBlobs(limit: limit) }
  package func stageBlob(_ part: [UInt8], of reference: BlobReference, at offset: Int64) async throws -> Int64 {
    try await write().stageBlob(part, of: reference, at: offset)
  }
  package func rows(of table: String) async throws -> [Row] { try await read().rows(of: table) }
  package func write(_ writes: [ApplicationWrite]) async throws { try await write().write(writes) }

  package func recoveryStarts(shared: Commit?, trimmed: Int64) async throws -> [GroupStart] {
    try await read().recoveryStarts(shared: shared, trimmed: trimmed)
  }
  package func changedKeys(after starts: [GroupStart], place: Int64, limit: Int) async throws -> (
    queries: [RowQuery], place: Int64
  )? {
    try await read().changedKeys(after: starts, place: place, limit: limit)
  }
  package func differences(from page: RangePage, after: Key?, of table: String) async throws -> [RowQuery] {
    try await read().differences(from: page, after: after, of: table)
  }
  package func recover(_ order: RecoveryOrder) async throws -> RecoveryReport { try await write().recover(order) }
  package func tablesToCompare(groups: Set<String>) async throws -> [TableDigest] {
    try await read().tablesToCompare(groups: groups)
  }
  package func examine(repairing order: RecoveryOrder?) async throws -> Examination {
    try await write().examine(repairing: order)
  }
  package func dirtyRows(of table: String) async throws -> Int64 { try await read().dirtyRows(of: table) }
  package func digest(of table: String) async throws -> TableDigest { try await read().digest(of: table) }
  package func keepForRehearsal(_ payload: [UInt8]) async throws { try await read().keepForRehearsal(payload) }
  package func forgetRehearsal() async throws { try await read().forgetRehearsal() }
  package func rehearse(_ order: RecoveryOrder) async throws -> RecoveryReport { try await read().rehearse(order) }
  package func rowsMadeHere() async throws -> Int64 { try await read().rowsMadeHere() }
  package func recoveries(limit: Int) async throws -> [RecoveryReport] { try await read().recoveries(limit: limit) }
  package func recoveryItems(_ id: String, after place: Int64, limit: Int) async throws -> [RecoveryItem] {
    try await read().recoveryItems(id, after: place, limit: limit)
  }
  package func journal() async throws -> [UInt8]? { try await read().journal() }
  package func setJournal(_ bytes: [UInt8]?) async throws { try await write().setJournal(bytes) }
  package func setJournalAside() async throws -> String { try await write().setJournalAside() }
  package func makeCopy(id: String, reason: String) async throws -> Backup {
    try await write().makeCopy(id: id, reason: reason)
  }
  package func setAside(id: String, reason: String) async throws -> Backup {
    try await write().setAside(id: id, reason: reason)
  }
  package func backups() async throws -> [Backup] { try await read().backups() }
  package func deleteBackup(_ id: String) async throws -> Bool { try await write().deleteBackup(id) }
  package func restoreBackup(_ id: String, copyID: String) async throws -> Backup? {
    try await write().restoreBackup(id, copyID: copyID)
  }
}
