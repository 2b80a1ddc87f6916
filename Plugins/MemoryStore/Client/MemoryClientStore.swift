import ContentHash
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// The executable specification of a client's store: bases and full new values in memory, and the view made anew from
/// them after every move (semantics 2). For tests and small demonstrations; nothing is kept when the process ends.
public actor MemoryClientStore: ClientStore {
  let database: MemoryClientDatabase
  let random: any RandomSource
  let clock: any Clock
  let limits: Limits
  var isOpen = false
  /// Snapshots that were examined: the next `apply`, or a recovery, takes them over.
  var files: [(offer: SnapshotOffer, file: MemorySnapshotFile)] = []
  var refusesSnapshots = false

  /// Reads nothing: `open` does.
  ///
  /// - Parameters:
  ///   - database: outlives the store; another store on it is the same device started anew.
  ///   - limits: of these the store looks at `blobReferenceBytesMin`.
  public init(
    _ database: MemoryClientDatabase = MemoryClientDatabase(), random: any RandomSource = SystemRandom(),
    clock: any Clock = SystemClock(), limits: Limits = Limits()
  ) {
    self.limits = limits
    self.database = database
    self.random = random
    self.clock = clock
  }

  // MARK: Opening

  /// Makes the database at the first opening, with a remote ID of `setup` or a random one. Errors: `storage-corrupt`
  /// after `damage`, `remote-of-another` for another principal, `schema-refused` where the schema differs by more than
  /// additions.
  public func open(_ setup: ClientSetup) throws -> ClientOpening {
    guard !database.isDamaged else {
      throw SalvorError(.storageCorrupt, "The database is damaged: restore it from a copy, or recover.")
    }
    var opening = ClientOpening()
    _ = try Constraints(setup.schema, softForeignKeys: false)
    if var state = database.state {
      try belong(&state, to: setup.principal)
      // A later file than the one that a server has agreed to: what it renames or drops comes with the server's schema.
      if state.serverID != nil, setup.schema.version > state.config.schemaVersion { state.isConfigDelivered = true }
      if !state.isConfigDelivered { state.config = SyncConfig(setup.schema) }
      let added = state.added(beside: setup.schema)
      state.own = setup.schema
      let schema =
        state.isConfigDelivered || !added.isEmpty
        ? state.config.schema(own: setup.schema, added: added) : setup.schema
      opening = try bringInLine(&state, schema, code: .schemaRefused)
      database.state = state
    } else {
      var state = ClientContent(
        schema: setup.schema, own: setup.schema, config: SyncConfig(setup.schema), principal: setup.principal,
        remoteID: setup.remoteID ?? RemoteID(from: random),
        stamp: RequestStamp(from: random))
      adoptExistingRows(&state, &opening)
      state.noteTime(clock.now())
      database.state = state
      database.identityFile = identity(of: state)
    }
    isOpen = true
    return opening
  }

  /// A queue is never sent as another principal. Empty: it is not known yet.
  private func belong(_ state: inout ClientContent, to principal: String) throws {
    if principal.isEmpty || principal.isSameName(as: state.principal) { return }
    guard state.principal.isEmpty else {
      throw SalvorError(.remoteOfAnother, "This database belongs to another principal. Open a database of your own.")
    }
    state.principal = principal
  }

  private func adoptExistingRows(_ state: inout ClientContent, _ opening: inout ClientOpening) {
    var found: [Table] = []
    for table in state.schema.tables {
      guard let rows = database.existingRows[table.name] else {
        opening.createdTables.append(table.name)
        continue
      }
      for row in rows { state.view[RowName(table: table.name, key: table.key(of: row))] = row }
      // Nobody but the server may say what is in its own tables: it does so with the first download (decision 244).
      if table.maintained == .server {
        for row in rows { state.bases[RowName(table: table.name, key: table.key(of: row))] = row }
      }
      guard table.maintained == .dual else { continue }
      opening.adoptedRows += Int64(rows.count)
      found.append(table)
    }
    state.adopt(found)
    state.showFlags(in: &state.view, outstanding: state.outstanding)
  }

  /// Applies an additive difference to every row that is kept.
  private func bringInLine(_ state: inout ClientContent, _ schema: Schema, code: ErrorCode) throws -> ClientOpening {
    state.letMarkedRowsGo(schema)
    state.follow(schema)
    let mustStay = code == .schemaIncompatible ? state.schema.synchronized.map(\.name) : []
    let difference = try SchemaDifference(from: state.schema, to: schema, mustStay: mustStay, code: code)
    difference.apply(to: &state.bases)
    difference.apply(to: &state.view)
    difference.apply(to: &state.aside)
    for (name, column) in difference.newColumns where schema.table(name)?.travelling.contains(column) == true {
      for index in state.requests.indices {
        for place in state.requests[index].changes.indices {
          let change = state.requests[index].changes[place]
          guard change.row.table == name, change.operation != .update else { continue }
          let value = column.defaultValue ?? .null
          state.requests[index].changes[place].columns.append(
            change.operation == .insert
              ? ChangedColumn(name: column.name, old: .null, new: value)
              : ChangedColumn(name: column.name, old: value, new: .null))
        }
      }
    }
    state.schema = schema
    var opening = ClientOpening()
    opening.createdTables = difference.newTables
    opening.addedColumns = difference.newColumns.map { "\($0.table).\($0.column.name)" }
    return opening
  }

  /// Ends this store's session. The database keeps its content; calls on the content throw `storage` until `open`.
  public func close() {
    endSession()
    isOpen = false
  }

  func read() throws -> ClientContent {
    guard isOpen, let state = database.state else {
      throw SalvorError(.storage, "The database is not open. Open it first.")
    }
    return state
  }

  func constraints(_ state: ClientContent) throws -> Constraints {
    try Constraints(state.schema, softForeignKeys: false)
  }

  // MARK: Identity

  private func identity(of state: ClientContent) -> MemoryClientDatabase.Identity {
    MemoryClientDatabase.Identity(
      remoteID: state.remoteID, previous: state.previous, current: state.current, stamp: state.identityStamp)
  }

  /// Writes the database, then the identity file.
  func writeIdentity(_ state: inout ClientContent) {
    state.identityStamp = max(state.identityStamp, database.identityFile?.stamp ?? 0) + 1
    database.state = state
    database.identityFile = identity(of: state)
  }

  // MARK: Upload

  /// Errors: `session-in-use` while another store has a session of this database.
  public func beginSession(groups: Set<String>?, room: UploadRoom) throws -> ClientSession {
    var state = try read()
    guard database.takeSession(ObjectIdentifier(self)) else {
      throw SalvorError(
        .sessionInUse, "Another session of this database is under way. Wait until it has ended.",
        retryAfterMilliseconds: 1000)
    }
    var notices: [String] = []
    if state.splitOpenGroup() {
      notices.append("A request that was left open was closed and split into single requests.")
      state.noteTime(clock.now())
    }
    state.lookAgain(bytesMax: Int64(limits.blobBytesMax))
    let heldBefore = state.blockedCounters
    if let current = state.current {
      for index in state.requests.indices where state.requests[index].state == .sent {
        state.requests[index].state = .unknownOutcome
      }
      database.state = state
      let upload = PendingUpload(
        sequence: current, isResend: true, lastCounter: state.outgoing.map(\.lastCounter).max() ?? 0)
      return ClientSession(
        state: self.state(of: state), upload: upload, notices: notices, held: heldBefore, takesParts: true,
        heldDeletes: state.heldDeletes)
    }
    let before = state.displacedCounters
    state.offerWithheld()
    if state.staged.isEmpty {
      let leaving = Set(state.leaving.keys)
      _ = state.removeLeaving()
      let gone = leaving.subtracting(state.leaving.keys)
      notices += state.leaveOut(try constraints(state)) { gone.contains($0) }.notices
    }
    let (outgoing, joined) = try state.chooseOutgoing(
      groups, UploadBudget(bytesMin: limits.blobReferenceBytesMin, room: room), try constraints(state))
    let displaced = state.displacedCounters.subtracting(before)
    let held = state.blockedCounters
    let blocked = held.subtracting(heldBefore)
    guard !outgoing.isEmpty else {
      database.state = state
      return ClientSession(
        state: self.state(of: state), notices: notices, joined: joined, blocked: blocked, held: held,
        displaced: displaced, takesParts: true, heldDeletes: state.heldDeletes)
    }
    let sequence = SequenceID(from: random)
    state.outgoing = outgoing
    state.current = sequence
    state.upload = UploadStatus(sequence: sequence, since: clock.now())
    writeIdentity(&state)
    let upload = PendingUpload(
      sequence: sequence, isResend: false, lastCounter: outgoing.map(\.lastCounter).max() ?? 0)
    return ClientSession(
      state: self.state(of: state), upload: upload, notices: notices, joined: joined, blocked: blocked,
      held: held, displaced: displaced, takesParts: true, heldDeletes: state.heldDeletes)
  }

  /// Does nothing where this store has no session.
  public func endSession() { database.endSession(ObjectIdentifier(self)) }

  public func uploadChunk(after counter: Int64, bytesTarget: Int) throws -> UploadChunk? {
    let state = try read()
    return UploadEncoding(
      leaving: state.leaving, schema: state.schema,
      blobs: BlobSink(bytesMin: limits.blobReferenceBytesMin), lost: state.lostIncarnations, order: state.lostOrder
    ).chunk(
      of: state.outgoing, after: counter, bytesTarget: bytesTarget)
  }

  /// Throws where `sequence` is not the upload under way.
  public func takeBackUpload(_ sequence: SequenceID) throws {
    var state = try read()
    guard state.current == sequence else { throw SalvorError.noSuchUpload }
    state.takeUploadBack()
    writeIdentity(&state)
  }

  /// Throws where `sequence` is not the upload under way.
  public func settle(sequence: SequenceID, results: UploadResults) throws -> SettleReport {
    var state = try read()
    guard state.current == sequence else { throw SalvorError.noSuchUpload }
    var report = state.settle(results, at: clock.now())
    if let previous = state.previous { state.olderSequences.insert(previous, at: 0) }
    state.previous = sequence
    state.current = nil
    state.stamp = RequestStamp(from: random)
    state.release()
    report.displaced = try state.remake(try constraints(state)).sorted { $0.counter < $1.counter }
    writeIdentity(&state)
    return report
  }

  // MARK: Download

  /// A chunk of another download discards the chunks that are staged.
  public func stage(_ chunk: StagedChunk) throws {
    var state = try read()
    if state.stagedDownload != chunk.download {
      state.staged = []
      state.leftOutBlobs?.notices = []
    }
    state.stagedDownload = chunk.download
    var chunk = chunk
    chunk.bytes = try state.taken(of: chunk.bytes, bytesMax: Int64(limits.blobBytesMax))
    state.staged.append(chunk)
    database.state = state
  }

  public func discardStaged() throws {
    var state = try read()
    state.staged = []
    state.stagedDownload = nil
    database.state = state
  }

  /// An empty download with the groups' present cursors changes nothing.
  public func apply(_ end: DownloadEnd) throws -> ApplyReport {
    var state = try read()
    let isSame = end.groups.allSatisfy { group in
      state.groups[group.name]?.cursor == group.cursor && state.groups[group.name]?.scopeDigest == group.scopeDigest
    }
    if state.staged.isEmpty && isSame {
      state.confirm(end.groups)
      database.state = state
      return ApplyReport()
    }
    let taken = try filePayloads(end, state)
    let arrivals = try state.arrivals(in: taken + state.staged.map(\.bytes))
    var report = state.takeBases(arrivals, keepsDropped: true)
    report.snapshots = Int64(taken.count)
    state.remember(arrivals, cameWhole: state.groups(of: arrivals.full), as: end.groups)
    state.rememberCompared(arrivals, as: end.groups)
    try state.dropStaleChildren(try constraints(state), downloaded: Set(end.groups.map(\.name)), isRecovery: false)
    state.toCompare.subtract(state.staged.compactMap(\.compared))
    let (left, isToCompare) = state.leaveOut(try constraints(state), of: arrivals)
    report.isToCompare = isToCompare
    report.leftOut = Int64(left.count)
    report.leftOutNotices = left.noticesByTable
    report.notices += left.notices + (state.leftOutBlobs?.notices ?? [])
    state.leftOutBlobs?.notices = []
    state.staged = []
    state.blobs = [:]
    state.stagedDownload = nil
    report.displaced = try state.remake(try constraints(state), afterDownload: true)
    state.forgetGivenBack(arrivals)
    database.state = state
    if !files.isEmpty { closeSnapshots(removing: true) }
    return report
  }

  // MARK: The rest

  /// Errors: `schema-incompatible` where the config differs by more than additions; the store is as before then. Always
  /// returns an empty list.
  @discardableResult
  public func adopt(_ config: SyncConfig) throws -> [String] {
    var state = try read()
    let added = state.config.added(in: state.schema)
    let schema = config.schema(own: state.own, added: added)
    if let error = config.isBehind(state.schema, own: state.own, added: added) { throw error }
    let current = state.current
    _ = try Constraints(schema, softForeignKeys: false)
    let groups = state.schema.synchronized.map { ($0.name, $0.group) }
    _ = try bringInLine(&state, schema, code: .schemaIncompatible)
    // Rows without a version came with their table's former group.
    for (name, group) in groups {
      guard let now = state.schema.tables.table(formerly: name)?.group, now != group,
        let whole = state.wholeSince[group]
      else { continue }
      state.wholeSince[now] = max(state.wholeSince[now] ?? 0, whole)
      state.groups[now, default: GroupState(name: now)].hasMovedTables = true
    }
    state.isConfigDelivered = true
    state.config = config
    state.leaveOutUnsendable()
    if state.current == current { database.state = state } else { writeIdentity(&state) }
    return []
  }

  /// Errors: `remote-of-another` where the database belongs to another principal.
  public func remember(server: ServerID, incarnations: [Incarnation], principal: String) throws {
    var state = try read()
    try belong(&state, to: principal)
    state.serverID = server
    state.remember(incarnations)
    database.state = state
  }

  public func remember(_ terms: HealTerms, heal: HealMode, retention: Int64) async throws -> Bool {
    var state = try read()
    if state.incarnations.contains(where: { $0.id == terms.incarnation }) { state.met.insert(terms.incarnation) }
    defer { database.state = state }
    state.withdrawn.removeAll { terms.withdrawn.contains($0) }
    let wants = state.asksAboutDeletes(terms) || state.wantsWithheld(heal)
    let waiting = Int64(state.requests.count { $0.isHeldByServer })
    var asked = terms
    asked.floor = nil
    let isAsked = state.healAsked?.terms == asked && state.healAsked?.waiting == waiting
    guard terms.waiting < waiting, !isAsked, waiting <= 1000 || terms.waiting <= waiting / 2 else {
      return wants
    }
    state.healAsked = (asked, waiting)
    state.healDue = true
    return true
  }

  public func history() throws -> ClientHistory {
    let state = try read()
    return ClientHistory(
      olderSequences: state.olderSequences, incarnations: state.incarnations, commits: state.commits,
      tables: state.config.entries.map(\.table))
  }

  /// Nil for `reason` clears the message as well.
  public func setRecoveryRequired(_ reason: RecoveryReason?, message: String) throws {
    var state = try read()
    state.recoveryRequired = reason
    state.recoveryMessage = reason == nil ? nil : message
    database.state = state
  }

  public func deviceSettings() throws -> DeviceSettings { try read().settings }

  /// Keeps the settings as `change` leaves them; where `change` throws, the settings stay as they were.
  public func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) throws -> Answer {
    var state = try read()
    let answer = try change(&state.settings)
    database.state = state
    return answer
  }

  /// The groups of tables with a change of a greater counter that is in the queue, the archive or an open group.
  public func captured(after counter: Int64) throws -> CapturedChanges {
    let state = try read()
    if counter > state.counter {
      return CapturedChanges(counter: state.counter, groups: Set(state.schema.groups.map(\.name)))
    }
    let changes = state.requests.flatMap(\.changes) + (state.openGroup?.statements.flatMap { $0 } ?? [])
    return CapturedChanges(
      counter: state.counter,
      groups: Set(changes.filter { $0.counter > counter }.compactMap { state.schema.table($0.row.table)?.group }))
  }

  public func status() throws -> ClientStatus {
    let state = try read()
    func count(_ states: Set<RequestState>) -> Int64 { Int64(state.requests.count { states.contains($0.state) }) }
    var status = ClientStatus(
      state: self.state(of: state), queued: count([.queued, .sent, .unknownOutcome]),
      inError: count([.refused, .blocked]), displaced: count([.displaced]), kept: count([.kept]))
    status.upload = state.upload
    status.waiting = state.waitingCount
    status.lastRefused =
      state.requests.filter { $0.state == .refused }
      .max { ($0.lastAttempt ?? 0, $0.firstCounter) < ($1.lastAttempt ?? 0, $1.firstCounter) }?.id
    return status
  }

  private func state(of content: ClientContent) -> ClientState {
    var state = ClientState(
      remoteID: content.remoteID, principal: content.principal, serverID: content.serverID,
      previous: content.previous, current: content.current,
      groups: content.config.groups.map { content.groups[$0.name] ?? GroupState(name: $0.name) },
      schemaVersion: content.config.schemaVersion, configDigest: content.config.digest,
      stagedDownload: content.stagedDownload, stagedPosition: content.staged.last?.position,
      recoveryRequired: content.recoveryRequired, recoveryMessage: content.recoveryMessage,
      isOlderThanIdentityFile: (database.identityFile?.stamp ?? 0) > content.identityStamp)
    state.stagedRows = content.staged.last?.rows
    state.serverInitiated = content.schema.serverInitiated
    state.incarnation = content.incarnations.last?.id
    state.withdrawn = content.withdrawn
    return state
  }

  /// Entries of one request stay together: `limit` is overstepped rather than a request cut.
  public func requests(
    in states: Set<RequestState>, after: RequestID?, limit: Int
  ) throws -> [QueuedRequest] {
    let state = try read()
    let listing = RequestListing(state, now: clock.now())
    var found: [QueuedRequest] = []
    var isPast = after == nil
    for request in state.requests {
      if isPast, states.contains(request.state), found.count < limit { found += listing.entries(of: request) }
      if request.id == after { isPast = true }
    }
    return found
  }

  /// In the order of the primary key, as the application sees them; empty where the schema has no such table.
  public func rows(of table: String) throws -> [Row] { try read().view.sortedRows(of: table) }

  /// Writes as the application, with capture. One transaction: where a write breaks a constraint, none is done.
  public func write(_ writes: [ApplicationWrite]) throws {
    var state = try read()
    var runner = StatementRunner(state.view, constraints: try constraints(state))
    for write in writes {
      switch write {
      case .beginRequest(let tag): state.beginGroup(tag: tag)
      case .endRequest: state.endGroup()
      default: state.capture(try runner.run(write), &runner)
      }
    }
    try runner.commit()
    state.view = runner.tables
    state.noteTime(clock.now())
    database.state = state
  }
}
