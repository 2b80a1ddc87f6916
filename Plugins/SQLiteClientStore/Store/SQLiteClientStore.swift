import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import SnapshotFiles

/// The remote database in a SQLite file (semantics 2 to 5): the application's tables with capture triggers on them, and
/// Salvor's own tables beside. See README.md.
///
/// All work is on one connection, on the store's own queue. Foreign keys and triggers are off on it but for `write`.
public actor SQLiteClientStore: ClientStore {
  private nonisolated let queue = SQLiteQueue("client-store")
  /// The store's own serial queue: a call that waits for the disk blocks no thread of the cooperative pool.
  public nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

  let path: String
  let random: any RandomSource
  let clock: any Clock
  let limits: Limits
  /// The key of an encrypted file, asked for at each opening.
  var makeKey: (@Sendable () throws -> String)?
  var context: StoreContext?
  /// As it was last opened.
  private var setup: ClientSetup?
  /// The store was open, and opening it again failed, e.g. because another connection held the database. The next call opens it.
  private var isInterrupted = false
  var lock: SessionLock?
  /// The lock is held over sessions and recoveries.
  var hasTurn = false
  /// As it was last opened: what another process did to it since is found by these.
  var openedFile: FileIdentity?
  var openedAs: Opened?
  var quiet: QuietSession?
  var uploadPlan: UploadPlan? { didSet { outgoing = nil } }
  /// The blob of the upload that was asked for last: its parts are asked for one after the other.
  var outgoing: (reference: BlobReference, content: [UInt8])?
  var ahead: ApplyAhead?
  var arrival: Arrival?
  var aheadNumber = 0
  /// Examined, for the download that is applied next.
  var snapshots: [OpenedSnapshot] = []
  /// What their rows refer to was not asked for yet.
  var wantsBlobsOfFiles = false
  /// What a killed process left of them was looked for.
  var hasLookedForFiles = false
  /// One could not be used: groups come by rows until the database is opened again.
  var refusesSnapshots = false
  /// A download whose pages could not be kept: what follows of it is of no use.
  var lostDownload: String?
  /// The schema as capture was last found whole.
  var checkedSchema: Int64 = -1
  /// The last one that `captured` has told of.
  var toldSchema: Int64 = -1
  /// The file in the place of this one that a watching client was told of last.
  var toldFile: FileIdentity?
  /// Where there is no file to put it beside.
  var journalInMemory: [UInt8]?

  /// - Parameters:
  ///   - path: of the database file, or a link to it; `:memory:` for tests (no identity file, no lock between processes).
  ///   - limits: of these the store looks at `blobReferenceBytesMin`.
  ///   - key: of an encrypted file, for an SQLite that can encrypt; asked for at each opening. Nil: the file is plain.
  public init(
    path: String, random: any RandomSource = SystemRandom(), clock: any Clock = SystemClock(),
    limits: Limits = Limits(),
    key: (@Sendable () throws -> String)? = nil
  ) {
    makeKey = key
    self.limits = limits
    self.path = PrivateFile.followingLinks(path)
    self.random = random
    self.clock = clock
  }

  nonisolated var isFile: Bool { !path.hasPrefix(":") && !path.isEmpty }

  // MARK: Opening

  /// Makes a missing file and turns write-ahead logging on. Opening again closes the connection of before. Throws where
  /// the file was detached and `setup` does not say that it may be attached again.
  public func open(_ setup: ClientSetup) throws -> ClientOpening {
    let wasOpen = context != nil || isInterrupted
    closeNow()
    isInterrupted = wasOpen
    let connection = try connect()
    let mark = DetachmentMark(database: path)
    if isFile, mark.isThere, !setup.reattaches, try connection.isDetached() {
      connection.close()
      throw DetachmentMark.refusal
    }
    // A file of Salvor's own can give space back (`giveBackSpace`); the application's keeps to what it is.
    if try connection.integer("PRAGMA page_count") == 0 { try connection.execute("PRAGMA auto_vacuum = INCREMENTAL") }
    try connection.pragma("journal_mode", "WAL")
    // Uploads and large downloads look rows up in the order of keys drawn at random: 16 MB hold the upper pages.
    try connection.pragma("cache_size", "-16384")
    try connection.pragma("synchronous", "NORMAL")
    try connection.set("foreign_keys", false)
    connection.triggersEnabled = false
    let (context, report) = try takeIn(setup, connection)
    if isFile { try mark.remove() }
    if isFile, lock == nil { lock = SessionLock(database: path) }
    openedFile = FileIdentity(path)
    try compareIdentity(context)
    isInterrupted = false
    return report
  }

  private func takeIn(_ setup: ClientSetup, _ connection: SQLiteConnection) throws -> (StoreContext, ClientOpening) {
    let opening = Opening(connection: connection, random: random, clock: clock)
    let (context, report) = try connection.transaction { try opening.open(setup) }
    self.context = context
    self.setup = setup
    checkedSchema = try connection.schemaVersion()
    openedAs = try Opened(connection)
    return (context, report)
  }

  /// The file's content was replaced under the connection.
  func reopen(_ setup: ClientSetup, _ connection: SQLiteConnection) throws {
    context = nil
    isInterrupted = true
    _ = try takeIn(setup, connection)
    isInterrupted = false
  }

  /// Opens the database where opening it again has failed (`isInterrupted`).
  func openIfInterrupted() throws {
    if isInterrupted, let setup { _ = try open(setup) }
  }

  func openedSetup() throws -> ClientSetup {
    guard let setup else { throw SalvorError(.storage, "The database \(path) is not open. Open it first.") }
    return setup
  }

  /// Gives the turn back and closes the connection. Safe twice.
  public func close() {
    giveTurn()
    closeNow()
  }

  /// Who has the turn keeps it: a recovery opens the database again.
  func closeNow() {
    try? giveUpAhead()
    if !hasTurn {
      lock?.release()
      lock = nil
    }
    uploadPlan = nil
    // It counts what its connection saw.
    quiet = nil
    arrival = nil
    context?.connection.close()
    context = nil
    isInterrupted = false
    checkedSchema = -1
  }

  /// For all but the steps of a download: what is applied ahead makes room first. Throws `capture-paused` during a
  /// migration of the application's own.
  func opened() throws -> StoreContext {
    let context = try openedEvenPaused()
    guard try context.connection.pausedSince() == nil else { throw Self.paused }
    return context
  }

  func openedEvenPaused() throws -> StoreContext {
    try openIfInterrupted()
    try giveUpAhead()
    let context = try current()
    // Another process may have detached the database.
    if try context.connection.schemaVersion() != checkedSchema, try context.connection.isDetached() {
      throw DetachmentMark.refusal
    }
    return context
  }

  private static var paused: SalvorError {
    SalvorError(
      .capturePaused,
      "Capture is paused for a migration of the application's own (salvor status says since when). End it with salvor capture resume."
    )
  }

  func current() throws -> StoreContext {
    guard let context else { throw SalvorError(.storage, "The database \(path) is not open. Open it first.") }
    return context
  }

  // MARK: Identity

  /// An identity file of this very file that names an upload the database does not know: it went back in time.
  func compareIdentity(_ context: StoreContext) throws {
    let connection = context.connection
    guard isFile else { return }
    guard let file = IdentityFile(path: IdentityFile.path(of: path)) else { return try writeIdentity(context) }
    let newest = file.current ?? file.previous
    let known =
      try newest.map { newest in
        try [connection.text(.previous), connection.text(.current)].contains(newest.text)
          || connection.integer("SELECT 1 FROM salvor_sequence WHERE sequence = ?1", .text(newest.text)) != nil
      } ?? false
    guard file.stamp == (try connection.text(.fileStamp)) else {
      // A recovery gives a database another stamp, and whoever puts a copy back knows that it is older.
      if !known, try connection.state(.wentBack) == nil {
        try connection.transaction { try connection.note([Self.another(file)], at: clock.now()) }
      }
      return try writeIdentity(context)
    }
    if !known, newest != nil, try connection.state(.wentBack) == nil {
      try connection.transaction { try connection.setState(.wentBack, .integer(1)) }
    }
  }

  private static func another(_ file: IdentityFile) -> String {
    let unsent =
      switch file.unsent {
      case nil: "How many of its requests were not sent is not known."
      case 0?: "No request of it waited when it last synchronized."
      case let count?: "\(count) of its changes were not sent when it last synchronized."
      }
    return
      "There was a database here, remote ID \(file.remote): this file is another one, or lost what Salvor kept in it. \(unsent) If that was a mistake, stop the application and put the database back from a copy; otherwise this one is synchronized as a new one."
  }

  func writeIdentity(_ context: StoreContext) throws {
    guard isFile, let remote: RemoteID = try context.connection.identifier(.remote) else { return }
    let file = IdentityFile(
      remote: remote, previous: try context.connection.identifier(.previous),
      current: try context.connection.identifier(.current), stamp: try context.connection.text(.fileStamp) ?? "",
      unsent: try context.connection.integer(
        "SELECT count(*) FROM salvor_log WHERE op IN \(StoreContext.changeOperations)"),
      isEncrypted: context.connection.isEncrypted)
    try file.write(to: IdentityFile.path(of: path))
  }

  // MARK: Session

  /// Takes the lock beside the database file, until `endSession`. Errors: `session-in-use` where another process or
  /// store has it.
  public func beginSession(groups: Set<String>?, room: UploadRoom) throws -> ClientSession {
    let context = try opened()
    lostDownload = nil
    try lock?.take()
    do {
      try removeLeftOverFiles(context)
      if let quiet, groups == nil, try quiet.stillHolds(context.connection) { return quiet.session }
      let session = try begin(context, groups, room)
      quiet = nil
      if groups == nil, session.upload == nil, session.notices.isEmpty, session.blocked.isEmpty {
        quiet = try QuietSession(session, context.connection)
      }
      return session
    } catch {
      releaseLock()
      throw error
    }
  }

  /// Asynchronous in name, so that a call on this very type does not find the protocol's empty default instead.
  public func endSession() async {
    try? giveUpAhead()
    // The next session goes on with what is left.
    try? giveBackSpace(stepsMax: 64)
    releaseLock()
    uploadPlan = nil
  }

  private func begin(
    _ context: StoreContext, _ groups: Set<String>?, _ room: UploadRoom
  ) throws -> ClientSession {
    let connection = context.connection
    uploadPlan = nil
    try connection.pragma("synchronous", "FULL")
    defer { _ = try? connection.pragma("synchronous", "NORMAL") }
    var notices: [String] = []
    var drawn: PendingUpload?
    var joined: Set<Int64> = []
    var heldBefore: Set<Int64> = []
    var held: Set<Int64> = []
    var displaced: Set<Int64> = []
    try connection.transaction {
      notices += try straighten(context)
      try LargeBlobs(context: context).lookAgain(bytesMax: Int64(limits.blobBytesMax))
      try IncompleteTables(context).lookAgainAtRefusing()
      try RequestSorting(context).sort()
      heldBefore = Set(try context.requests(in: .blocked).map(\.first))
      held = heldBefore
      if let current: SequenceID = try connection.identifier(.current) {
        if try connection.text(.uploadState) != RequestState.unknownOutcome.rawValue {
          try connection.setState(.uploadState, RequestState.unknownOutcome.rawValue)
        }
        drawn = PendingUpload(
          sequence: current, isResend: true, lastCounter: try connection.state(.uploadLast)?.integer ?? 0)
        return
      }
      let displacedBefore = Set(try context.displacedRequests().map(\.first))
      let settled = try settleBeforeUpload(context)
      notices += settled.notices
      joined = settled.joined
      held = Set(try context.requests(in: .blocked).map(\.first))
      displaced = Set(try context.displacedRequests().map(\.first)).subtracting(displacedBefore)
      drawn = try drawUpload(context, groups, room)
    }
    checkedSchema = try connection.schemaVersion()
    if drawn?.isResend == false { try writeIdentity(context) }
    return ClientSession(
      state: try state(context), upload: drawn, notices: notices, joined: joined,
      blocked: held.subtracting(heldBefore), held: held, displaced: displaced, takesParts: true,
      heldDeletes: try HeldDeletes(context).count())
  }

  /// What a session does before it chooses its upload: edits of failed requests' rows join them, displaced ones return, and offers that the
  /// settings allow by now are made. Requests are sorted, and none is under way.
  ///
  /// - Returns: the first counters of the requests that were joined.
  func settleBeforeUpload(_ context: StoreContext) throws -> (notices: [String], joined: Set<Int64>) {
    try WithheldOffers.offer(context)
    // Whatever displaces requests has done so when the upload is chosen: all that is chosen is sent.
    var move = try leavingMove(context)
    move.joins = .edited
    move.basesMayBreak = true
    move.leavesOutdatedOut = true
    let returning = try !context.displacedRequests().isEmpty
    move.holding = returning ? .none : .choose
    let settlement = try context.settle(move)
    var joined = Set(settlement.joined.keys.map(\.counter))
    if returning {
      // What an edit of its row has brought back goes with that edit.
      var again = Move()
      again.joins = .editedOf(settlement.returned)
      again.holding = .choose
      joined.formUnion(try context.settle(again).joined.keys.map(\.counter))
    }
    return (settlement.notices, joined)
  }

  /// Rows that no subscription covers go as soon as nothing waits that needs them, though nothing is downloaded.
  private func leavingMove(_ context: StoreContext) throws -> Move {
    guard try context.connection.integer("SELECT 1 FROM salvor_leaving LIMIT 1") != nil,
      try context.connection.integer("SELECT 1 FROM salvor_staging LIMIT 1") == nil,
      try context.connection.state(.arriving) == nil
    else { return Move() }
    return try DownloadApply(context, full: []).end(Set(context.schema.groups.map(\.name)))
  }

  /// Nil: nothing waits.
  private func drawUpload(
    _ context: StoreContext, _ groups: Set<String>?, _ room: UploadRoom
  ) throws -> PendingUpload? {
    let budget = room.blobBytes.map { BlobBudget(context, bytesMin: limits.blobReferenceBytesMin, bytesMax: $0) }
    let choice = UploadChoice(context: context, lastCounter: room.lastCounter)
    guard let last = try choice.choose(groups, budget) else { return nil }
    try context.connection.setState(.healDue, Value?.none)
    let sequence = SequenceID(from: random)
    try context.connection.setState(.current, sequence.text)
    try context.connection.setState(.uploadLast, .integer(last))
    try context.connection.setState(.uploadState, RequestState.sent.rawValue)
    try context.connection.setUploadStatus(UploadStatus(sequence: sequence, since: clock.now()))
    return PendingUpload(sequence: sequence, isResend: false, lastCounter: last)
  }

  // MARK: Upload

  public func uploadChunk(after counter: Int64, bytesTarget: Int) throws -> UploadChunk? {
    let context = try opened()
    guard
      let made = try encoded(after: counter, bytesTarget: bytesTarget, BlobSink(bytesMin: limits.blobReferenceBytesMin))
    else { return nil }
    // Where it cannot be written now, a download may fetch what is here.
    if !made.hints.isEmpty {
      try? context.connection.transaction { try BlobStaging(context: context).note(made.hints) }
    }
    return made.chunk
  }

  func encoded(after counter: Int64, bytesTarget: Int, _ blobs: BlobSink) throws -> UploadEncoder.Made? {
    let context = try opened()
    guard try context.connection.state(.current) != nil, let last = try context.connection.state(.uploadLast)?.integer
    else {
      return nil
    }
    func encoded() throws -> UploadEncoder.Made? {
      try context.connection.transaction(.deferred) {
        let plan = try uploadPlan ?? UploadPlan(context)
        if uploadPlan == nil { uploadPlan = plan }
        return try UploadEncoder(context: context, plan: plan, last: last, blobs: blobs).chunk(
          after: counter, bytesTarget: bytesTarget)
      }
    }
    do {
      return try encoded()
    } catch let error as SalvorError where error.code == .storageCorrupt {
      // What was captured since the session began may stand in another order than it was made (`CaptureOrder`).
      let generation = try context.connection.state(.logGeneration)
      try context.connection.transaction { try RequestSorting(context).sort() }
      guard try context.connection.state(.logGeneration) != generation else { throw error }
      uploadPlan = nil
      return try encoded()
    }
  }

  /// Throws where `sequence` is not the upload under way.
  public func settle(sequence: SequenceID, results: UploadResults) throws -> SettleReport {
    let context = try opened()
    let connection = context.connection
    guard try connection.text(.current) == sequence.text else { throw SalvorError.noSuchUpload }
    uploadPlan = nil
    let report = try connection.transaction {
      try orderTriggers(context)
      var move = Move()
      move.upload = .settled(
        UploadOutcome(
          sequence: sequence, last: try connection.state(.uploadLast)?.integer ?? 0,
          failures: Int(try connection.state(.uploadFailures)?.integer ?? 0), results: results))
      move.holding = .release
      move.leavesOutdatedOut = true
      let settlement = try context.settle(move)
      var report = settlement.upload
      report.displaced = try settlement.displaced.map(\.first).sorted().map { try context.requestID(first: $0) }
      return report
    }
    try forgetImages(context)
    try writeIdentity(context)
    return report
  }

  // MARK: Download

  /// A chunk of another download discards the chunks that are staged. Errors: `storage` where an earlier chunk of this
  /// download was lost.
  public func stage(_ chunk: StagedChunk) throws {
    if let lostDownload, lostDownload == chunk.download {
      throw SalvorError(.storage, "The first pages of this download could not be kept. Sync again.")
    }
    let refersToBlobs = mentionsBlobs(chunk.bytes)
    let isPlain = chunk.compared == nil && !refersToBlobs && snapshots.isEmpty
    if ahead?.download != chunk.download || !isPlain { try giveUpAhead() }
    let context = try current()
    if try arrives(chunk, isPlain, context) { return }
    if ahead == nil, isPlain {
      ahead = try ApplyAhead.begin(context, download: chunk.download)
      if ahead != nil { watchAhead() }
    }
    if let ahead {
      let isKept = (try? ahead.keep(chunk)) != nil
      if isKept, ahead.apply(chunk) { return }
      try giveUpAhead()
      if isKept { return }
    }
    let connection = context.connection
    try connection.transaction {
      if try connection.text(.stagedDownload) != chunk.download {
        try connection.clearStaged()
        try BlobStaging(context: context).forgetWanted()
        try LargeBlobs(context: context).forgetNotices()
        wantsBlobsOfFiles = true
        try connection.setState(.stagedDownload, chunk.download)
      }
      var bytes = chunk.bytes
      if refersToBlobs {
        bytes = try LargeBlobs(context: context).taken(of: bytes, bytesMax: Int64(limits.blobBytesMax))
        try BlobStaging(context: context).want(bytes)
      }
      try connection.run(
        "INSERT INTO salvor_staging (payload, compared) VALUES (?1, ?2)", .text(bytes),
        chunk.compared.map { .text($0) } ?? .null)
      try connection.setState(.stagedPosition, chunk.position)
      try connection.setState(.stagedRows, chunk.rows.map { .integer($0) })
    }
  }

  public func discardStaged() throws {
    let context = try opened()
    lostDownload = nil
    try context.connection.transaction { try clearStaging(context) }
  }

  func clearStaging(_ context: StoreContext) throws {
    try context.connection.clearStaged()
    try BlobStaging(context: context).forgetWanted()
    wantsBlobsOfFiles = true
    arrival = nil
  }

  public func apply(_ end: DownloadEnd) throws -> ApplyReport {
    if let report = try finishAhead(end) { return report }
    let context = try opened()
    uploadPlan = nil
    return try withSnapshots(for: end, context) {
      do {
        if let arrived = try Arrived(context) { return try applyArrived(arrived, end, context) }
      } catch is NotAhead {
        try fold(context)
      }
      return try applyStaged(end, nil, context)
    }
  }

  func applyStaged(_ end: DownloadEnd, _ arrived: Arrived?, _ context: StoreContext) throws -> ApplyReport {
    let connection = context.connection
    return try connection.transaction {
      try orderTriggers(context)
      let isEmpty = try connection.integer("SELECT 1 FROM salvor_staging LIMIT 1") == nil
      let groups = try connection.groupStates(context.schema.groups)
      let isSame = end.groups.allSatisfy { group in
        groups.contains { $0.name == group.name && $0.cursor == group.cursor && $0.scopeDigest == group.scopeDigest }
      }
      if isEmpty && isSame && arrived == nil {
        try context.confirmUncommitted(end.groups, from: groups)
        return ApplyReport()
      }
      let full = try DownloadApply.fullTables(context).union(context.tablesInFiles())
      let whole = comingWhole(end, groups, full, context)
      let deletes = try context.forgetVersions(of: whole, as: end.groups)
      var report = ApplyReport()
      if !isEmpty || !context.files.isEmpty || arrived != nil {
        let capture = UnprovenCapture(context)
        let names = Set(end.groups.map(\.name))
        if try capture.isNeeded(names) {
          if arrived != nil { throw NotAhead() }
          // A mark that nobody is to hear of is none to capture.
          try context.settle(Move())
          try capture.run(full: full, names)
        }
        let apply = try DownloadApply(context, full: full, ends: end.groups, arrived: arrived)
        try apply.readStaged()
        report = try apply.report(context.settle(apply.end(names)))
        report.captured = capture.captured
        report.snapshots = Int64(context.files.count)
        report.notices += try capture.notices + LargeBlobs(context: context).takeNotices()
      }
      try context.forgetReturned(of: whole, upTo: deletes)
      try move(end, whole, context)
      return report
    }
  }

  /// The groups of which every row comes.
  func comingWhole(
    _ end: DownloadEnd, _ groups: [GroupState], _ full: Set<Int64>, _ context: StoreContext
  ) -> Set<String> {
    let whole = end.groups.filter { group in
      let before = groups.first { $0.name == group.name }
      // Of other subscriptions only what they add comes.
      return before?.cursor == nil
        || before?.scopeDigest != group.scopeDigest && before?.subscriptions == group.subscriptions
    }
    return Set(whole.map(\.name) + full.map { context.group(of: $0) })
  }

  /// The groups stand where the download ends, and nothing is staged.
  func move(_ end: DownloadEnd, _ whole: Set<String>, _ context: StoreContext) throws {
    let connection = context.connection
    let groups = try connection.groupStates(context.schema.groups)
    try context.confirmUncommitted(end.groups, from: groups)
    for group in end.groups {
      let before = groups.first { $0.name == group.name }
      if let cursor = group.cursor, before?.cursor?.number != cursor.number {
        try connection.run(
          "INSERT OR REPLACE INTO salvor_epoch (grp, first_seq, number) VALUES (?1, ?2, ?3)", .text(group.name),
          .integer(try connection.lastCounter() + 1), .integer(cursor.number))
      }
      if let cursor = group.cursor { try connection.rememberCommit(cursor, at: clock.now()) }
      try connection.setGroup(group, cameWhole: whole.contains(group.name))
    }
    try BlobStaging(context: context).finish()
    try clearStaging(context)
  }

  @discardableResult
  public func adopt(_ config: SyncConfig) throws -> [String] {
    let context = try opened()
    let opening = Opening(connection: context.connection, random: random, clock: clock)
    let current = try context.connection.text(.current)
    let (adopted, notices) = try context.connection.transaction { try opening.adopt(config, context) }
    self.context = adopted
    uploadPlan = nil
    quiet = nil
    // Nothing of the upload could be sent: it was taken back.
    if try adopted.connection.text(.current) != current { try writeIdentity(adopted) }
    checkedSchema = try context.connection.schemaVersion()
    return notices
  }
}
