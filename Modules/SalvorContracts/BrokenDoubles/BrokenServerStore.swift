import SalvorModel
import SalvorStorage
import SalvorWire

/// A server's store with one deliberate fault, round any store without one. The suites must catch every one of them.
public actor BrokenServerStore: ServerStore {
  /// What is wrong with the store: one thing at a time. The raw value is the end of a simulation mutant's name.
  public enum Fault: String, Sendable, CaseIterable {
    case dropsRefusals, blocksNothing, appliesResendsTwice, forgetsResults, splitsGroups, seesNoConflicts
    case acceptsOutOfScope, showsOutOfScope, leaksKeys
    case echoes, forgetsTombstones, forgetsDepartures, losesCursors, endsDownloadsEarly, roundsIntegers
    // Of refusals.
    case losesStagedChunks, appliesRefusedRequests, forgetsServerRows, showsServerRowsOutOfScope
    case sendsParentsLast, acceptsChunkGaps, keepsOldStaging, keepsStagingAfterProcess, knowsEveryCursor
    case drawsServerIDAgain, takesAnyPrincipal, forgetsDeletingRemotes, writesHalves, trimsNothing
    case forgetsSubscriptions, dropsNothing, bringsSubscriptionsWhole, forgetsWhatWasSubscribed
    case overlooksGroups, forgetsAuthors, overlooksOtherPrograms, takesUnknownCursors
    // Of conflicts.
    case asksNoPolicy, forgetsConflicts, forgetsTheServersSide, forgetsWhoMadeIt, forgetsPages, forgetsStates
    case showsTheRowOfThen, resolvesTwice, resolvesNothing, resolvesForTheClientAlways, forgetsWhoResolved
    case forgetsSettledConflicts
    // Of offers: takes the last one that comes, turns the order of incarnations round, sees no write after a parting, takes what a
    // waiting change wrote for a part of the offer beneath it, drops what would have to wait.
    case ranksNothing, ordersIncarnationsBackwards, overlooksWrites, putsOffersAfterTheQueue, dropsWaiting
    // Of recovery.
    case answersOutOfScope, answersEveryRow, answersNamedRowsOnly, comparesDigestsAcrossScopes, forgetsLostKeys
    // Of blobs.
    case forgetsBlobParts, leaksBlobs, keepsGivenUpUploads
    case endsRangesEarly, digestsCounts, forgetsTrimming, forgetsDemands, demandsOfEverybody
    // Of parts of rows.
    case givesNoParts, givesPartsUnasked
    // Of snapshots.
    case knowsEveryCommit, makesForEverybody, keepsRemovedFiles, readsFromTheStart, signsAlike
    // Of a database that becomes another one while it is open.
    case hidesReopenings

    /// Those that `SnapshotContract` catches: the others' suites do not.
    public static let ofSnapshots: Set<Fault> = [
      .knowsEveryCommit, .makesForEverybody, .keepsRemovedFiles, .readsFromTheStart, .signsAlike,
    ]

    /// Those that no contract suite asks for: the simulator's swarm `in-place` is there for them.
    public static let ofSimulations: Set<Fault> = [.hidesReopenings]
  }

  let base: any ServerStore
  let fault: Fault
  private var schema = Schema(tables: [])
  private var offersSeen: Int64 = 0

  /// `base` must keep the contract. It is opened and closed by this store alone.
  public init(_ base: any ServerStore, _ fault: Fault) {
    self.base = base
    self.fault = fault
  }

  /// `asksNoPolicy`: the client's side wins in every table. `drawsServerIDAgain`: a new server ID each time.
  public func open(_ setup: ServerSetup) async throws -> ServerOpening {
    schema = setup.schema
    var setup = setup
    if fault == .asksNoPolicy {
      for table in schema.tables { setup.conflictPolicies[table.name] = UniformConflictPolicy(.client) }
    }
    var opening = try await base.open(setup)
    if fault == .drawsServerIDAgain { opening.serverID = ServerID(from: SystemRandom()) }
    return opening
  }

  /// No fault changes it.
  public func close() async { await base.close() }

  /// `knowsEveryCursor`: every cursor counts as known.
  public func admit(_ query: AdmissionQuery) async throws -> Admission {
    var admission = try await base.admit(query)
    if fault == .knowsEveryCursor { admission.cursors = admission.cursors.map { _ in .known } }
    return admission
  }

  /// `takesAnyPrincipal`: returns where the base refuses another principal's remote.
  public func register(_ remote: RemoteID, principal: String) async throws {
    do {
      try await base.register(remote, principal: principal)
    } catch let error as SalvorError where error.code == .remoteOfAnother && fault == .takesAnyPrincipal {}
  }

  /// `acceptsChunkGaps`: returns where the base throws `chunk-missing`; the chunk is lost.
  public func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {
    do {
      try await base.stage(chunk, index: index, remote: remote, sequence: sequence)
    } catch let error as SalvorError where error.code == .chunkMissing && fault == .acceptsChunkGaps {}
  }

  /// `keepsOldStaging`, `keepsStagingAfterProcess`: one chunk where the base has none.
  public func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload {
    let staged = try await base.staged(remote, sequence: sequence)
    switch fault {
    case .keepsOldStaging where staged.chunks == 0: return StagedUpload(chunks: 1, lastCounter: 1, bytes: 1)
    case .keepsStagingAfterProcess where try await base.results(remote, sequence: sequence) != nil:
      return StagedUpload(chunks: 1, lastCounter: 1, bytes: 1)
    default: return staged
    }
  }

  /// `losesStagedChunks`: always nil.
  public func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]? {
    let chunk = try await base.stagedChunk(index, remote: remote, sequence: sequence)
    return fault == .losesStagedChunks ? nil : chunk
  }

  /// `keepsGivenUpUploads`: does nothing.
  public func unstage(_ remote: RemoteID, sequence: SequenceID) async throws {
    if fault != .keepsGivenUpUploads { try await base.unstage(remote, sequence: sequence) }
  }

  /// Falsifies the chunks given, the principal, the refusals or the results. Staged chunks stay as they are.
  public func process(_ upload: ProcessRequest) async throws -> UploadResults {
    var upload = upload
    switch fault {
    case .appliesResendsTwice:
      if try await base.results(upload.remote, sequence: upload.sequence) != nil, let chunks = upload.chunks {
        upload.sequence = SequenceID(from: SystemRandom())
        upload.chunks = chunks.map { $0.restamped() }
      }
    case .splitsGroups:
      upload.chunks = upload.chunks?.map { $0.with(bytes: $0.bytes.lines { !$0.hasPrefix("{\"request\":") }) }
    case .seesNoConflicts:
      upload.chunks = upload.chunks?.map { chunk in
        chunk.with(bytes: chunk.bytes.mapLines { $0.replacingNumber(after: "\"made\":", with: Int64(1) << 50) })
      }
    case .ranksNothing:
      offersSeen += 1
      let shift = offersSeen << 40
      upload.chunks = upload.chunks?.map { $0.mapOffers { LostVersion($0, number: $0.number + shift) } }
    case .ordersIncarnationsBackwards: upload.chunks = upload.chunks?.map { $0.withLostBackwards() }
    case .overlooksWrites:
      let head = try await base.sweep().number
      upload.chunks = upload.chunks?.map {
        $0.mapOffers { LostVersion(incarnation: $0.incarnation, number: $0.number + 1 << 40, parting: head) }
      }
    case .putsOffersAfterTheQueue: upload.chunks = upload.chunks?.map { $0.withoutWritten() }
    case .acceptsOutOfScope: upload.principal.parameters = [:]
    case .appliesRefusedRequests: upload.refused = []
    default: break
    }
    var results = try await base.process(upload)
    for index in results.refused.indices {
      if fault == .forgetsServerRows { results.refused[index].serverRows = [] }
      if fault == .showsServerRowsOutOfScope, [.outOfScope, .rowDeleted].contains(results.refused[index].reason) {
        let row = ServerRow(counter: results.refused[index].counter, values: [NamedValue("id", "seen")])
        results.refused[index].serverRows.append(row)
      }
    }
    if fault == .dropsRefusals {
      results.acceptedRequests += Int64(results.refused.count)
      results.refused = []
    }
    if fault == .blocksNothing {
      results.acceptedRequests += Int64(results.refused.count { $0.reason == .blocked })
      results.refused.removeAll { $0.reason == .blocked }
    }
    if fault == .dropsWaiting, !results.waiting.isEmpty {
      // Gone for good: the device is told that they are settled, and nothing of them is left here.
      if let healing = base as? any HealingServerStore {
        _ = try await healing.rejectOffers(WaitingQuery(remote: upload.remote))
      }
      results.acceptedRequests += results.waiting.reduce(0) { $0 + Int64($1.count) }
      results.waiting = []
    }
    return results
  }

  /// `forgetsResults`: always nil.
  public func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults? {
    fault == .forgetsResults ? nil : try await base.results(remote, sequence: sequence)
  }

  /// Falsifies the request or the page. `endsDownloadsEarly`: the first page says that the download is whole.
  public func page(_ request: PageRequest) async throws -> FeedPage {
    var request = request
    switch fault {
    case .echoes: request.remote = RemoteID(from: SystemRandom())
    case .showsOutOfScope: request.principal.parameters = [:]
    case .losesCursors: request.groups = request.groups.map { GroupState(name: $0.name) }
    case .forgetsSubscriptions: request.subscriptions = nil
    case .givesNoParts: request.takesParts = false
    case .givesPartsUnasked: request.takesParts = true
    case .forgetsWhatWasSubscribed: request.groups = request.groups.map(Self.withoutSubscriptions)
    case .bringsSubscriptionsWhole where request.groups.contains { $0.subscriptions != request.subscriptions }:
      request.groups = request.groups.map { GroupState(name: $0.name) }
    default: break
    }
    var page = try await base.page(request)
    switch fault {
    case .forgetsTombstones: page.bytes = page.bytes.lines { !$0.contains("\"deleted\":[[") }
    case .dropsNothing: page.bytes = page.bytes.lines { !$0.contains("\"dropped\":[[") }
    case .forgetsDepartures: page.bytes = page.bytes.lines { !$0.contains("\"left\":[[") }
    case .roundsIntegers: page.bytes = page.bytes.mapLines { $0.roundingBigIntegers() }
    case .sendsParentsLast where request.position == nil: page.bytes = page.bytes.tablesReversed()
    case .endsDownloadsEarly:
      var last = page
      while let position = last.position {
        var next = request
        next.position = position
        last = try await base.page(next)
      }
      page.position = nil
      page.groups = last.groups
    case .leaksKeys where request.position == nil && request.groups.contains { $0.cursor != nil }:
      page.bytes += try await keysOutside(request)
    default: break
    }
    return page
  }

  private static func withoutSubscriptions(_ group: GroupState) -> GroupState {
    GroupState(name: group.name, cursor: group.cursor, scopeDigest: group.scopeDigest)
  }

  /// Every key that there is, as if it had left.
  private func keysOutside(_ request: PageRequest) async throws -> [UInt8] {
    var writer = DownloadChunkWriter()
    for table in schema.synchronized where !schema.scopeAlternatives(of: table).isEmpty {
      for row in try await base.rows(of: table.name) {
        writer.table(table.name, columns: table.travelling.map(\.name))
        writer.beginKey(.left, version: 1)
        for value in table.key(of: row) { writer.value(value) }
        writer.endRow()
      }
    }
    return writer.finish()
  }

  /// No fault changes it.
  public func sweep() async throws -> Commit { try await base.sweep() }

  /// `overlooksGroups`: the first group alone. `takesUnknownCursors`: no changes where the base knows a cursor no more.
  public func changedGroups(since cursors: [Commit]) async throws -> GroupChanges {
    var found = try await base.changedGroups(since: cursors)
    switch fault {
    case .overlooksGroups: found.changes = found.changes.map { Array($0.prefix(1)) }
    case .forgetsAuthors:
      found.changes = found.changes?.map { change in
        var anonymous = GroupChange(group: change.group)
        anonymous.add(change.newest, by: nil)
        return anonymous
      }
    case .overlooksOtherPrograms: found.changes?.removeAll { $0.author == nil }
    case .takesUnknownCursors: found.changes = found.changes ?? []
    default: break
    }
    return found
  }

  /// No fault changes it.
  public func remotes() async throws -> [RemoteRecord] { try await base.remotes() }

  /// `forgetsDeletingRemotes`: true, and nothing is deleted.
  public func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool {
    fault == .forgetsDeletingRemotes ? true : try await base.deleteRemote(remote, block: block)
  }

  /// `trimsNothing`: does nothing.
  public func trim(before milliseconds: Int64) async throws {
    if fault != .trimsNothing { try await base.trim(before: milliseconds) }
  }

  /// `trimsNothing`: does nothing.
  public func trimSettledConflicts(before milliseconds: Int64) async throws {
    if fault != .trimsNothing { try await base.trimSettledConflicts(before: milliseconds) }
  }

  /// No fault changes it.
  public func forgetStaged(before milliseconds: Int64) async throws {
    try await base.forgetStaged(before: milliseconds)
  }

  /// No fault changes it.
  public func stats() async throws -> ServerStats { try await base.stats() }

  /// No fault changes it.
  public func rows(of table: String) async throws -> [Row] { try await base.rows(of: table) }

  /// `writesHalves`: one transaction for each write, so that a refused write leaves those before it.
  public func write(_ writes: [ApplicationWrite]) async throws {
    guard fault == .writesHalves else { return try await base.write(writes) }
    for write in writes { try await base.write([write]) }
  }
}
