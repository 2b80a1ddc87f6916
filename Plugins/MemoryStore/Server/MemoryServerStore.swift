import ContentHash
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// The executable specification of a server's store: everything in memory, every rule decided row by row in the order
/// of the semantics page. For tests and small demonstrations; nothing is kept when the process ends.
public actor MemoryServerStore: ServerStore {
  let database: MemoryServerDatabase
  let random: any RandomSource
  let clock: any Clock
  let limits: Limits
  let atWork: BlobsAtWork
  private var opening: ServerOpening?
  /// How conflicts are settled, by table.
  private var policies: [String: any ConflictPolicy] = [:]
  private var reviewsOffers = false

  /// Reads nothing: `open` does.
  ///
  /// - Parameters:
  ///   - database: outlives the store; another store on it is the same server started anew.
  ///   - limits: bounds uploads, blobs and remotes.
  public init(
    _ database: MemoryServerDatabase = MemoryServerDatabase(), random: any RandomSource = SystemRandom(),
    clock: any Clock = SystemClock(), limits: Limits = Limits()
  ) {
    self.limits = limits
    atWork = BlobsAtWork(limits)
    self.database = database
    self.random = random
    self.clock = clock
  }

  /// Makes the database at the first opening, and takes over rows that are there. An open store with the same schema
  /// returns the opening of before. Errors: `schema-refused` where the schema differs by more than additions.
  public func open(_ setup: ServerSetup) throws -> ServerOpening {
    if let opening, opening.serverID == database.state?.serverID, database.state?.schema == setup.schema {
      return opening
    }
    _ = try Constraints(setup.schema, softForeignKeys: true)
    policies = [:]
    for table in setup.schema.synchronized { policies[table.name] = try setup.conflictPolicy(of: table) }
    var state = database.state ?? newState(setup.schema)
    var opening = ServerOpening(serverID: state.serverID, incarnation: IncarnationID(from: random))
    if database.state == nil {
      opening.createdTables = setup.schema.tables.map(\.name).filter { database.existingRows[$0] == nil }
      opening.adoptedRows = database.existingRows.values.reduce(0) { $0 + Int64($1.count) }
    } else {
      state.follow(setup.schema)
      let difference = try SchemaDifference(
        from: state.schema, to: setup.schema, mustStay: state.schema.synchronized.map(\.name), code: .schemaRefused)
      difference.apply(to: &state.tables)
      for index in state.commits.indices {
        if var tables = state.commits[index].tables {
          difference.apply(to: &tables)
          state.commits[index].tables = tables
        }
      }
      opening.createdTables = difference.newTables
      opening.addedColumns = difference.newColumns.map { "\($0.table).\($0.column.name)" }
      state.schema = setup.schema
    }
    if let side = database.sideFile {
      opening.isRestored =
        side.head.number > state.head.number || !state.incarnations.contains { $0.id == side.incarnation }
    }
    state.incarnations.append(Incarnation(id: opening.incarnation, firstCommit: state.head.number + 1))
    self.opening = opening
    state.replay(database.purgeLedger)
    // What was written while no server ran.
    state.sweep(random: random, time: clock.now())
    reviewsOffers = setup.reviewsOffers
    try settleWaiting(in: &state)
    write(state)
    return opening
  }

  private func newState(_ schema: Schema) -> ServerState {
    let serverID = ServerID(from: random)
    var tables = MemoryTables()
    for table in schema.tables {
      for row in database.existingRows[table.name] ?? [] {
        tables[RowName(table: table.name, key: table.key(of: row))] = row
      }
    }
    let zero = Commit(number: 0, id: CommitID(unchecked: serverID.text))
    return ServerState(
      schema: schema, serverID: serverID, tables: tables,
      commits: [ServerState.CommitRecord(commit: zero, time: clock.now(), changed: [], tables: tables)])
  }

  /// The database keeps its content. Calls on the content throw `storage` until `open`.
  public func close() { opening = nil }

  func read() throws -> ServerState {
    guard opening != nil, let state = database.state else {
      throw SalvorError(.storage, "The database is not open. Open it first.")
    }
    return state
  }

  func write(_ state: ServerState) {
    database.state = state
    if let opening {
      database.sideFile = MemoryServerDatabase.SideFile(incarnation: opening.incarnation, head: state.head)
    }
  }

  /// The state with everything numbered that other programs have committed.
  func swept() throws -> ServerState {
    var state = try read()
    state.sweep(random: random, time: clock.now())
    return state
  }

  /// Numbers first what other programs have committed.
  public func admit(_ query: AdmissionQuery) throws -> Admission {
    let state = try swept()
    write(state)
    let remote = state.remotes[query.remote]
    var admission = Admission(
      remote: remote?.record,
      previousIsOlder: query.previous.map { previous in remote?.olderSequences[previous] != nil } ?? false,
      cursors: query.cursors.map { finding($0, in: state) },
      lastShared: lastShared(query, in: state), head: state.head,
      incarnations: state.timeline.untold(after: query.incarnation))
    admission.waitingOffers = Int64(
      state.waiting.count { $0.remote == query.remote && $0.request.changes[0].operation != .delete })
    admission.waitingDeletes = Int64(
      state.waiting.count { $0.remote == query.remote && $0.request.changes[0].operation == .delete })
    admission.settlings = state.settlings
    return admission
  }

  private func lastShared(_ query: AdmissionQuery, in state: ServerState) -> Commit? {
    let listed = query.commits.filter { finding($0, in: state) == .known }.max { $0.number < $1.number }
    guard let number = state.timeline.lastShared(with: query.incarnations, head: state.head.number),
      number > listed?.number ?? 0, number >= state.trimmed,
      !query.commits.contains(where: { $0.number <= number && finding($0, in: state) == .unknown })
    else { return listed }
    return state.commits[Int(number)].commit
  }

  /// Of commits that are trimmed the IDs are forgotten, too.
  private func finding(_ cursor: Commit, in state: ServerState) -> CursorFinding {
    if cursor.number < state.trimmed { return .trimmed }
    let place = Int(clamping: cursor.number)
    return state.commits.indices.contains(place) && state.commits[place].commit == cursor ? .known : .unknown
  }

  /// A remote that was deleted is registered anew. Errors: `remote-blocked`, `remote-of-another`, and the quota's where
  /// the principal has `principalRemotesMax` remotes.
  public func register(_ remote: RemoteID, principal: String) throws {
    var state = try read()
    if var known = state.remotes[remote] {
      if known.record.isBlocked {
        throw SalvorError(.remoteBlocked, "This remote ID is blocked. Ask the administrator.")
      }
      guard known.record.principal.isSameName(as: principal) else {
        throw SalvorError(.remoteOfAnother, "This remote ID belongs to another principal. Use a database of your own.")
      }
      if known.record.isDeleted { try requireRoom(for: principal, in: state) }
      known.record.isDeleted = false
      state.remotes[remote] = known
    } else {
      try requireRoom(for: principal, in: state)
      state.remotes[remote] = ServerState.Remote(
        record: RemoteRecord(
          id: remote, principal: principal, isBlocked: false, isDeleted: false, sequence: nil,
          registered: clock.now(), lastUpload: nil))
    }
    write(state)
  }

  private func requireRoom(for principal: String, in state: ServerState) throws {
    let own = state.remotes.values.count { $0.record.principal.isSameName(as: principal) && !$0.record.isDeleted }
    if own >= limits.principalRemotesMax { throw SalvorError.remoteQuota(limits) }
  }

  private func registered(_ remote: RemoteID, in state: ServerState) throws -> ServerState.Remote {
    guard let found = state.remotes[remote], !found.record.isDeleted else {
      throw SalvorError(.notFound, "This remote ID is not registered. Register it first.")
    }
    return found
  }

  /// A chunk of another sequence discards the chunks that are staged. Errors: `not-found` where the remote is not
  /// registered, `chunk-missing` where the chunk does not follow those before it, and the quotas' (`uploadChunksMax`,
  /// `principalStagedBytesMax`).
  public func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) throws {
    var state = try read()
    var known = try registered(remote, in: state)
    if known.stagedSequence != sequence {
      known.stagedSequence = sequence
      known.staged = [:]
    }
    let before = known.staged.keys.filter { $0 < index }.max()
    let followsOn = before.map { $0 == index - 1 && known.staged[$0]!.lastCounter < chunk.firstCounter } ?? (index == 0)
    guard followsOn else {
      throw SalvorError(
        .chunkMissing, "Chunk \(index) does not follow the chunks before it. Send the missing ones first.")
    }
    guard index < limits.uploadChunksMax else { throw SalvorError.chunkQuota(limits) }
    known.staged[index] = chunk
    known.stagedTime = clock.now()
    state.remotes[remote] = known
    let own = state.remotes.values.filter { $0.record.principal.isSameName(as: known.record.principal) }
    let bytes = own.reduce(0) { sum, remote in remote.staged.values.reduce(sum) { $0 + $1.bytes.count } }
    guard bytes <= limits.principalStagedBytesMax else {
      let mine = known.staged.values.reduce(0) { $0 + $1.bytes.count }
      throw SalvorError.stagingQuota(limits, others: Int64(bytes - mine))
    }
    write(state)
    atWork.goesOn(remote, now: clock.now())
  }

  /// Does nothing where another sequence is staged, or none.
  public func unstage(_ remote: RemoteID, sequence: SequenceID) throws {
    var state = try read()
    atWork.ended(remote)
    guard state.remotes[remote]?.stagedSequence == sequence else { return }
    state.remotes[remote]?.stagedSequence = nil
    state.remotes[remote]?.staged = [:]
    write(state)
  }

  /// All zero where another sequence is staged, or none.
  public func staged(_ remote: RemoteID, sequence: SequenceID) throws -> StagedUpload {
    guard let known = try read().remotes[remote], known.stagedSequence == sequence else { return StagedUpload() }
    return StagedUpload(
      chunks: known.staged.count, lastCounter: known.staged.values.map(\.lastCounter).max() ?? 0,
      bytes: known.staged.values.reduce(0) { $0 + Int64($1.bytes.count) },
      isWhole: known.staged[known.staged.count - 1]?.isLast == true)
  }

  /// Nil where no such chunk is staged.
  public func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) throws -> [UInt8]? {
    guard let known = try read().remotes[remote], known.stagedSequence == sequence else { return nil }
    return known.staged[index]?.bytes
  }

  /// A sequence that was processed last returns its results again. Errors: `not-found` where the remote is not
  /// registered, `chunk-missing` where the upload is not whole.
  public func process(_ upload: ProcessRequest) throws -> UploadResults {
    var state = try swept()
    var known = try registered(upload.remote, in: state)
    if known.record.sequence == upload.sequence, let results = known.results { return results }
    if let stored = known.record.sequence,
      upload.previous.map({ $0 != stored }) ?? false || known.olderSequences[upload.sequence] != nil
    {
      throw SalvorError.lateUpload(upload.remote)
    }
    let chunks = try upload.chunks ?? stagedChunks(known, upload.sequence)
    let blobs = UploadedBlobs(principal: upload.principal, state: state, limits: limits)
    atWork.goesOn(upload.remote, now: clock.now())
    var upload = upload
    upload.refused += try blobs.tooLarge(in: chunks.map(\.bytes))
    var lost: [LostNeighbours] = []
    let requests = try UploadDecoding.requests(
      in: chunks.map(\.bytes), schema: state.schema, blobs: blobs, lost: &lost)
    state.note(lost)

    let results = try apply(
      requests, of: upload, OfferIntake(reviews: reviewsOffers, isPaused: state.pace.isPaused), to: &state)
    if let older = known.record.sequence { known.olderSequences[older] = clock.now() }
    known.record.sequence = upload.sequence
    known.record.lastUpload = clock.now()
    known.results = results
    known.stagedSequence = nil
    known.staged = [:]
    state.remotes[upload.remote] = known
    for reference in blobs.used { state.blobs[upload.principal.name]?[reference.hash] = nil }
    // It may have brought what others wait for.
    try settleWaiting(in: &state)
    write(state)
    atWork.ended(upload.remote)
    return results
  }

  /// Processes requests on the state.
  func apply(
    _ requests: [Request], of upload: ProcessRequest, _ intake: OfferIntake, to state: inout ServerState
  ) throws -> UploadResults {
    var processing = try UploadProcessing(
      requests, of: upload, on: state, policies: policies, time: clock.now(),
      incarnation: opening?.incarnation, intake: intake)
    processing.run()
    let touched = processing.touched
    let changedBack = processing.changed.filter { state.tables[$0] != nil && processing.tables[$0] != nil }
    let changed = processing.tables.differences(from: state.tables).union(changedBack).union(processing.gone)
    state.tables = processing.tables
    state.keep(processing.kept)
    let commit = state.commit(
      changed, by: intake.purpose == .upload ? upload.remote : nil, healed: processing.healedEntries,
      offeredBy: upload.remote, random: random, time: clock.now())
    state.healed = processing.healed
    state.claimedDeletes = processing.claimedDeletes
    state.number(commit)
    _ = state.commit(touched, by: nil, touchedFor: upload.remote, random: random, time: clock.now())

    var results = UploadResults(
      commit: commit, acceptedRequests: 0, refused: [], healed: processing.healedOffers,
      superseded: processing.supersededOffers)
    var budget = ServerRowBudget()
    var waiting: [Int64] = []
    for (index, request) in requests.enumerated() {
      switch processing.outcomes[index] {
      case .accepted(let inConflict)?:
        results.acceptedRequests += 1
        if inConflict { results.conflicts += 1 }
        let wasKept = state.conflictVersions.contains { $0.request == request.id && $0.settlement == nil }
        if wasKept || processing.isKept(request.id) { results.kept.append(request.firstCounter) }
        state.settle(request, nil, time: clock.now())
      case .refused(let reason, let message, let status, let blockedBy)?:
        var refusal = Refusal(
          counter: request.firstCounter, stamp: request.stamp, reason: reason, message: message, status: status,
          blockedBy: blockedBy)
        state.settle(request, refusal, time: clock.now())
        refusal.serverRows = processing.serverRows(of: request, &budget)
        results.refused.append(refusal)
      case .waiting?: waiting.append(request.firstCounter)
      case nil: throw SalvorError(.failed, "A request was left undecided. Report this as a fault.")
      }
    }
    results.waiting = UploadResults.ranges(waiting.sorted())
    results.kept.sort()
    state.hold(processing, by: upload.remote, upload.principal, time: clock.now())
    return results
  }

  private func stagedChunks(_ known: ServerState.Remote, _ sequence: SequenceID) throws -> [UploadChunk] {
    let chunks = known.staged.sorted { $0.key < $1.key }.map(\.value)
    guard known.stagedSequence == sequence, chunks.last?.isLast == true else {
      throw SalvorError(
        .chunkMissing,
        "The upload is not staged whole, and its session has ended. Begin again: the answer says which chunks are there."
      )
    }
    return chunks
  }

  /// Nil where `sequence` is not the remote's last one.
  public func results(_ remote: RemoteID, sequence: SequenceID) throws -> UploadResults? {
    guard let known = try read().remotes[remote], known.record.sequence == sequence else { return nil }
    return known.results
  }

  /// Numbers first what other programs have committed.
  public func page(_ request: PageRequest) throws -> FeedPage {
    let state = try swept()
    write(state)
    var feed = try Feed(request, on: state, limits)
    return try feed.page()
  }

  /// Numbers what other programs have committed, and returns the newest commit.
  public func sweep() throws -> Commit {
    let state = try swept()
    write(state)
    return state.head
  }

  /// Numbers first what other programs have committed. `changes` is nil where a cursor is not known or trimmed.
  public func changedGroups(since cursors: [Commit]) throws -> GroupChanges {
    let state = try swept()
    write(state)
    guard let oldest = cursors.map(\.number).min() else { return GroupChanges(head: state.head, changes: []) }
    guard cursors.allSatisfy({ finding($0, in: state) == .known }) else {
      return GroupChanges(head: state.head, changes: nil)
    }
    let changes = state.schema.groups.compactMap { group -> GroupChange? in
      var change = GroupChange(group: group.name)
      // A touch is told to nobody: it is in the answer that its sender got.
      for commit in state.commits where commit.commit.number > oldest && commit.touchedFor == nil {
        let isOfGroup = commit.changed.contains { state.schema.table($0.table)?.group == group.name }
        if isOfGroup { change.add(commit.commit.number, by: commit.remote) }
      }
      return change.newest > 0 ? change : nil
    }
    return GroupChanges(head: state.head, changes: changes)
  }

  /// In the order of their IDs, with those that are deleted.
  public func remotes() throws -> [RemoteRecord] {
    try read().remotes.values.map(\.record).sorted { $0.id.text < $1.id.text }
  }

  /// False where nothing changes: the remote is not known, or deleted and as blocked as `block` says.
  public func deleteRemote(_ remote: RemoteID, block: Bool) throws -> Bool {
    var state = try read()
    guard var known = state.remotes[remote], !known.record.isDeleted || block != known.record.isBlocked else {
      return false
    }
    if let sequence = known.record.sequence { known.olderSequences[sequence] = clock.now() }
    known.record.sequence = nil
    known.ownAfter = state.head.number
    known.record.isDeleted = true
    known.record.isBlocked = block
    known.record.resetDemand = nil
    known.results = nil
    known.stagedSequence = nil
    known.staged = [:]
    state.remotes[remote] = known
    write(state)
    return true
  }

  /// The newest commit always stays.
  ///
  /// - Parameter milliseconds: since 1970.
  public func trim(before milliseconds: Int64) throws {
    var state = try swept()
    try settle(state.waiting.filter { $0.time < milliseconds }, .givingUp, in: &state)
    // The newest commit is always kept: a cursor there is in step.
    for index in state.commits.indices.dropLast() where state.commits[index + 1].time < milliseconds {
      state.commits[index].tables = nil
    }
    state.settled = state.settled.filter { $0.value.time >= milliseconds }
    state.forgetHealed()
    state.remotes = state.remotes.mapValues { remote in
      var remote = remote
      remote.olderSequences = remote.olderSequences.filter { $0.value >= milliseconds }
      return remote
    }
    state.blobs = state.blobs.mapValues { $0.filter { $0.value.time >= milliseconds } }
    state.conflictVersions.removeAll { version in version.resolution.map { $0.time < milliseconds } ?? false }
    write(state)
  }

  /// Removes versions that a policy settled.
  ///
  /// - Parameter milliseconds: since 1970, compared with the time of the client's change.
  public func trimSettledConflicts(before milliseconds: Int64) throws {
    var state = try read()
    state.conflictVersions.removeAll { $0.settlement != nil && $0.client.time < milliseconds }
    write(state)
  }

  /// Forgets uploads of which no chunk has come since then.
  ///
  /// - Parameter milliseconds: since 1970.
  public func forgetStaged(before milliseconds: Int64) throws {
    var state = try read()
    for (id, remote) in state.remotes where remote.stagedTime < milliseconds {
      state.remotes[id]?.stagedSequence = nil
      state.remotes[id]?.staged = [:]
    }
    write(state)
  }

  /// Deleted remotes are not counted. Staged bytes are those of chunks and of blobs.
  public func stats() throws -> ServerStats {
    let state = try read()
    return ServerStats(
      serverID: state.serverID, head: state.head,
      remotes: Int64(state.remotes.values.filter { !$0.record.isDeleted }.count),
      logEntries: state.commits.reduce(0) { $0 + ($1.tables == nil ? 0 : Int64($1.changed.count)) },
      stagedBytes: state.remotes.values.reduce(0) { sum, remote in
        sum + remote.staged.values.reduce(0) { $0 + Int64($1.bytes.count) }
      } + state.blobs.values.reduce(0) { sum, blobs in blobs.values.reduce(sum) { $0 + Int64($1.bytes.count) } },
      openConflicts: Int64(state.conflictVersions.count { $0.state == .open }))
  }

  /// In the order of the primary key; empty where the schema has no such table.
  public func rows(of table: String) throws -> [Row] { try read().tables.sortedRows(of: table) }

  /// Writes as a program beside Salvor: the next look numbers what was written. One transaction: where a write breaks a
  /// constraint, none is done.
  public func write(_ writes: [ApplicationWrite]) throws {
    var state = try read()
    var runner = StatementRunner(state.tables, constraints: try Constraints(state.schema, softForeignKeys: true))
    for write in writes {
      for change in try runner.run(write) where state.schema.table(change.name.table)?.maintained != .client {
        state.unnumbered.insert(change.name)
      }
    }
    try runner.commit()
    state.tables = runner.tables
    write(state)
  }
}

extension MemoryServerStore: HealingServerStore {}
