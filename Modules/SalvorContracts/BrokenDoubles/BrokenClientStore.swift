import SalvorModel
import SalvorStorage

/// A client's store with one deliberate fault, round any store without one. The suites must catch every one of them.
public actor BrokenClientStore: ClientStore {
  /// What is wrong with the store: one thing at a time. The raw value is the end of a simulation mutant's name.
  public enum Fault: String, Sendable, CaseIterable {
    case losesRefusals, losesAcceptedWrites, resendsUnderNewID, resendsOtherBytes, reusesStamps, settlesAnything
    case sendsEverything, splitsRequests, forgetsGroups, mergesWrites, hidesNotices, carriesTheNewestCommit
    case losesLastChunk, forgetsStaging, keepsOldStaging, losesCursors, ignoresDepartures, ignoresFull
    case dropsAtOnce, dropsNothing, forgetsSubscriptions
    case appliesOneByOne, hidesArchive, hidesDisplaced, dropsDependents
    case capturesEverything, overlooksCaptured
    case keepsSessionsOpen, allowsManySessions, takesAnyPrincipal, writesHalves, adoptsNothing, forgetsTheServer
    // Of recovery.
    case archivesNoLostRows, takesLostForDeleted, keepsCurrent, keepsLostCommits, keepsItsRemoteID, recoversTwice
    case discardsWhatWaits, keepsWhatIsDiscarded, rebuildsEverything, ignoresTheGuard, rehearsesForReal, reportsNoRows
    case trustsTrimmedCursors, namesOnlyTheFirstKeys, overstepsPages, comparesCounts, countsNoRowsOfItsOwn
    case overwritesTheJournal, keepsDamagedJournals, keepsEveryCopy, restoresNothing
    // Of offers: what this device wrote is not known to be its own.
    case forgetsWhatItWrote
    // Of the queue and the error archive.
    case empties, deletesOneByOne, plansForReal, forcesRemovals, removesUnknown, forgetsCauses, hidesRemadeRows
    case retriesNothing, retriesEverything, hidesHistory, hidesNeeds, reappliesNothing, forgetsFailures
    case hidesServerRows
    // Of blobs.
    case forgetsBlobParts, sendsTheNewestBlob, sendsAllBlobs, keepsTakenBackUploads
    // Of parts of rows.
    case passesOverLackingRows
    // Of snapshots.
    case forgetsFileParts, takesAnyFile, takesClosedFiles

    /// Those that `SnapshotContract` catches: the others' suites do not.
    public static let ofSnapshots: Set<Fault> = [.forgetsFileParts, .takesAnyFile, .takesClosedFiles]
  }

  let base: any ClientStore
  let fault: Fault
  /// C as it was before a recovery.
  var keptCurrent: SequenceID?
  private var sequences: [SequenceID: SequenceID] = [:]
  private var stamp: RequestStamp?
  private var newestCommit: Int64 = 0
  private var stagedNames = 0

  /// `base` must keep the contract. It is opened and closed by this store alone.
  public init(_ base: any ClientStore, _ fault: Fault) {
    self.base = base
    self.fault = fault
  }

  /// `takesAnyPrincipal`: returns an empty opening where the base throws `remote-of-another-principal`.
  public func open(_ setup: ClientSetup) async throws -> ClientOpening {
    do {
      return try await base.open(setup)
    } catch let error as SalvorError where error.code == .remoteOfAnother && fault == .takesAnyPrincipal {
      return ClientOpening()
    }
  }

  /// No fault changes it.
  public func close() async { await base.close() }

  /// Five faults change it: what is sent, under which ID, how many sessions there may be, and what a person is told.
  public func beginSession(groups: Set<String>?, room: UploadRoom) async throws -> ClientSession {
    var session: ClientSession
    do {
      session = try await base.beginSession(
        groups: fault == .sendsEverything ? nil : groups, room: fault == .sendsAllBlobs ? UploadRoom() : room)
    } catch let error as SalvorError where error.code == .sessionInUse && fault == .allowsManySessions {
      return ClientSession(state: try await base.status().state)
    }
    if fault == .resendsUnderNewID, let upload = session.upload, upload.isResend {
      let new = SequenceID(from: SystemRandom())
      sequences[new] = upload.sequence
      session.upload?.sequence = new
    }
    if fault == .hidesNotices { session.notices = [] }
    return session
  }

  /// `keepsSessionsOpen`: does nothing.
  public func endSession() async { if fault != .keepsSessionsOpen { await base.endSession() } }

  /// Four faults change the chunk's bytes: new request IDs, one stamp for ever, split requests, a wrong commit.
  public func uploadChunk(after counter: Int64, bytesTarget: Int) async throws -> UploadChunk? {
    guard let chunk = try await base.uploadChunk(after: counter, bytesTarget: bytesTarget) else { return nil }
    switch fault {
    case .resendsOtherBytes: return chunk.restamped()
    case .splitsRequests: return chunk.with(bytes: chunk.bytes.lines { !$0.hasPrefix("{\"request\":") })
    case .carriesTheNewestCommit:
      let newest = newestCommit
      return chunk.with(bytes: chunk.bytes.mapLines { $0.replacingNumber(after: "\"made\":", with: newest) })
    case .reusesStamps:
      let stamp = stamp ?? RequestStamp(from: SystemRandom())
      self.stamp = stamp
      return chunk.with(
        bytes: chunk.bytes.mapLines { $0.hasPrefix("{\"stamp\":") ? "{\"stamp\":\"\(stamp)\"}" : $0 })
    default: return chunk
    }
  }

  /// `losesRefusals`, `dropsDependents`: the base hears of fewer refusals. Two more delete rows or settle too much.
  public func settle(sequence: SequenceID, results: UploadResults) async throws -> SettleReport {
    var results = results
    if fault == .losesRefusals { results.refused = [] }
    if fault == .dropsDependents { results.refused.removeAll { $0.reason == .blocked } }
    let report = try await base.settle(sequence: sequences[sequence] ?? sequence, results: results)
    if fault == .losesAcceptedWrites, results.refused.isEmpty {
      // What was accepted is gone from the rows until it is downloaded.
      for table in try await base.history().tables {
        for row in try await base.rows(of: table.name).suffix(1) {
          try await base.write([.delete(table: table.name, key: table.key(of: row))])
        }
      }
    }
    if fault == .settlesAnything, let next = try await base.beginSession(groups: nil).upload {
      _ = try await base.settle(
        sequence: next.sequence, results: UploadResults(commit: nil, acceptedRequests: 0, refused: []))
      await base.endSession()
    }
    return report
  }

  /// Seven faults falsify the chunk or lose it. `appliesOneByOne`: applies each chunk at once.
  public func stage(_ chunk: StagedChunk) async throws {
    var chunk = chunk
    switch fault {
    case .losesLastChunk where try await base.status().state.stagedPosition != nil: return
    case .ignoresDepartures:
      chunk.bytes = chunk.bytes.lines { !$0.contains("\"deleted\":[[") && !$0.contains("\"left\":[[") }
    case .archivesNoLostRows: chunk.bytes = chunk.bytes.mapLines { $0.replacing("{\"lost\":", with: "{\"deleted\":") }
    case .dropsAtOnce: chunk.bytes = chunk.bytes.mapLines { $0.replacing("\"dropped\":[[", with: "\"left\":[[") }
    case .dropsNothing: chunk.bytes = chunk.bytes.lines { !$0.contains("\"dropped\":[[") }
    case .ignoresFull: chunk.bytes = chunk.bytes.lines { !$0.hasPrefix("{\"full\":") }
    case .keepsOldStaging: chunk.download = "one for all"
    default: break
    }
    try await base.stage(chunk)
    if fault == .appliesOneByOne { _ = try await base.apply(DownloadEnd(groups: [])) }
  }

  /// `keepsOldStaging`: does nothing.
  public func discardStaged() async throws { if fault != .keepsOldStaging { try await base.discardStaged() } }

  /// `losesCursors` moves no cursor, `forgetsStaging` applies no row. `passesOverLackingRows` hides an error.
  public func apply(_ end: DownloadEnd) async throws -> ApplyReport {
    newestCommit = max(newestCommit, end.groups.compactMap { $0.cursor?.number }.max() ?? 0)
    if fault == .forgetsStaging { try await base.discardStaged() }
    var end = end
    if fault == .forgetsSubscriptions {
      for place in end.groups.indices { end.groups[place].subscriptions = ResolvedSubscriptions() }
    }
    var report: ApplyReport
    do {
      report = try await base.apply(fault == .losesCursors ? DownloadEnd(groups: []) : end)
    } catch let error as SalvorError where error.code == .inconsistentDownload && fault == .passesOverLackingRows {
      report = ApplyReport()
    }
    if fault == .hidesDisplaced { report.displaced = [] }
    return report
  }

  /// `adoptsNothing`: no notice, and the tables stay as they are.
  public func adopt(_ config: SyncConfig) async throws -> [String] {
    fault == .adoptsNothing ? [] : try await base.adopt(config)
  }

  /// No fault changes it.
  public func remember(_ terms: HealTerms, heal: HealMode, retention: Int64) async throws -> Bool {
    try await base.remember(terms, heal: heal, retention: retention)
  }

  /// `forgetsTheServer`: does nothing. `takesAnyPrincipal`: returns where the base refuses another principal.
  public func remember(server: ServerID, incarnations: [Incarnation], principal: String) async throws {
    guard fault != .forgetsTheServer else { return }
    do {
      try await base.remember(server: server, incarnations: incarnations, principal: principal)
    } catch let error as SalvorError where error.code == .remoteOfAnother && fault == .takesAnyPrincipal {}
  }

  /// No fault changes it.
  public func history() async throws -> ClientHistory { try await base.history() }

  /// No fault changes it.
  public func setRecoveryRequired(_ reason: RecoveryReason?, message: String) async throws {
    try await base.setRecoveryRequired(reason, message: message)
  }

  /// `hidesArchive`, `hidesDisplaced`: their counts are 0. `keepsCurrent`: the sequence ID of before a recovery.
  public func status() async throws -> ClientStatus {
    var status = try await base.status()
    if fault == .hidesArchive { status.inError = 0 }
    if let keptCurrent { status.state.current = keptCurrent }
    if fault == .hidesDisplaced { status.displaced = 0 }
    return status
  }

  /// `hidesArchive`, `hidesDisplaced`: without those entries. Three more hide history, needs or the server's row.
  public func requests(
    in states: Set<RequestState>, after: RequestID?, limit: Int
  ) async throws -> [QueuedRequest] {
    let found = try await base.requests(in: states, after: after, limit: limit)
    switch fault {
    case .hidesArchive: return found.filter { $0.state != .refused && $0.state != .blocked }
    case .hidesDisplaced: return found.filter { $0.state != .displaced }
    case .hidesHistory, .hidesNeeds, .hidesServerRows: return found.map(blurred)
    default: return found
    }
  }

  /// No fault changes it.
  public func rows(of table: String) async throws -> [Row] { try await base.rows(of: table) }

  /// No fault changes it.
  public func deviceSettings() async throws -> DeviceSettings { try await base.deviceSettings() }

  /// No fault changes it.
  public func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) async throws -> Answer { try await base.changeDeviceSettings(change) }

  /// `capturesEverything`: the groups of all changes ever captured. `overlooksCaptured`: no group.
  public func captured(after counter: Int64) async throws -> CapturedChanges {
    switch fault {
    case .capturesEverything:
      return CapturedChanges(
        counter: try await base.captured(after: counter).counter, groups: try await base.captured(after: 0).groups)
    case .overlooksCaptured: return CapturedChanges(counter: counter)
    default: return try await base.captured(after: counter)
    }
  }

  /// `writesHalves`: one transaction for each write. `forgetsGroups`, `mergesWrites`: other requests come of it.
  public func write(_ writes: [ApplicationWrite]) async throws {
    switch fault {
    case .writesHalves: for write in writes { try await base.write([write]) }
    case .forgetsGroups:
      try await base.write(
        writes.filter { write in
          switch write {
          case .beginRequest, .endRequest: false
          default: true
          }
        })
    case .mergesWrites: try await base.write([.beginRequest(tag: nil)] + writes + [.endRequest])
    default: try await base.write(writes)
    }
  }
}
