import SalvorModel
import SalvorWire

/// One device's database: capture, the request queue, staging and applying (semantics 2 to 5). Contract:
/// `ClientStoreContract`; executable specification: `MemoryClientStore`.
///
/// row = base ⊕ requests. A store keeps enough to know the base of every row with outstanding requests, and makes the
/// touched rows anew after each of the two moves: a base changes (`apply`), a request leaves the queue (`settle`).
/// Every method is one transaction, or none; what it throws leaves the database as it was.
public protocol ClientStore: RequestKeeping, ClientBlobs {
  /// Opens or makes the database and brings it in line with `setup.schema`, or, for the synchronized tables of a
  /// database that has a delivered SyncConfig, with that. Additive differences are applied; others throw
  /// `schema-refused` with every table and column named. An existing database is adopted: each row of a synchronized
  /// table that no capture has seen becomes a queued insert. Missing or altered triggers are put back and named.
  /// Idempotent.
  func open(_ setup: ClientSetup) async throws -> ClientOpening

  /// Closes the database and ends a session that is under way. Does nothing where the database is not open. Until
  /// `open` is called again, the methods that can throw do so, with `storage`.
  func close() async

  /// What a session starts from, in one step: checks the triggers, closes a group that was left open, and reads the
  /// state and, where requests wait or an upload's outcome is unknown, the upload.
  ///
  /// An upload with unknown outcome is offered again with the same sequence ID and the same content, whatever `groups`
  /// says. Otherwise, where requests of `groups` (nil: all) wait, a new current sequence ID is drawn and is durable,
  /// the identity file included, before this returns. With nothing to send, nothing is drawn or written.
  ///
  /// `room` is what a new upload may have, as a server has said. Of its blobs: requests are chosen in order, each with those it
  /// depends on, up to the first that is beyond it; one whose own blobs are beyond it is passed over until nothing else is left, and is
  /// an upload of its own then, for the server to judge.
  ///
  /// One session at a time, over all processes that have the database open: another one throws `session-in-use`.
  func beginSession(groups: Set<String>?, room: UploadRoom) async throws -> ClientSession

  /// Ends what `beginSession` began, however it went.
  func endSession() async

  /// The upload's next chunk: the changes after `counter` (0: from the first), cut at about `bytesTarget`. Nil when
  /// there is none left. The same arguments give the same bytes until `settle`.
  func uploadChunk(after counter: Int64, bytesTarget: Int) async throws -> UploadChunk?

  /// The server has given the upload `sequence` up and will not process it: its requests wait again, under their IDs, and
  /// the next session chooses anew.
  func takeBackUpload(_ sequence: SequenceID) async throws

  /// The server has answered the upload `sequence`: accepted requests leave the queue (the base takes their effect),
  /// refused and blocked ones stay in their rows as archive entries, previous := current, current is unset, and a new
  /// request stamp holds from here on.
  func settle(sequence: SequenceID, results: UploadResults) async throws -> SettleReport

  /// Puts one download chunk into staging, as the text it came as, with the position that follows it. A chunk whose
  /// download is another than the staged one's empties staging first.
  func stage(_ chunk: StagedChunk) async throws

  /// Empties staging.
  func discardStaged() async throws

  /// Applies everything staged in one transaction and moves the cursors: bases change, touched rows are made anew, what
  /// cannot stand is displaced, references are proved. Nothing staged: only the cursors move, and nothing is written
  /// where they are the same. Throws `GroupsNeeded` where rows of another group hang on a row that goes: both come in one download.
  func apply(_ end: DownloadEnd) async throws -> ApplyReport

  /// Takes the server's SyncConfig: tables and columns that are new are made; a destructive difference throws
  /// `schema-incompatible` with each table and column named, and nothing is changed.
  ///
  /// - Returns: what a person should know, without values.
  @discardableResult
  func adopt(_ config: SyncConfig) async throws -> [String]

  /// The server has said who it is and whom it takes this device for: both are remembered, with its incarnation.
  /// Nothing is written where they are known. Throws `remote-of-another-principal` where the database belongs to another
  /// principal: a queue is never sent as another.
  func remember(server: ServerID, incarnations: [Incarnation], principal: String) async throws

  /// What the server says of healing. Requests that wait there are sent again where fewer do than this device knows of, once for each
  /// of the server's incarnations and settlings: then true. What a device keeps of deleted rows, versions and losses for a server that goes back is forgotten below the floor, once
  /// it is also older than `retention` milliseconds. What the archive has of losses that were not offered, and that may be where `heal`
  /// is the setting now, is offered from the next session on, once for each change of the device's and the tables' settings: then true,
  /// too. Offers that were taken back, and of which the server knows now, are forgotten. Nothing is written where nothing is new.
  func remember(_ terms: HealTerms, heal: HealMode, retention: Int64) async throws -> Bool

  /// What is sent only when the server asks for it (`history-needed`).
  func history() async throws -> ClientHistory

  /// A recovery is needed: kept until one has run. Nil takes it back.
  func setRecoveryRequired(_ reason: RecoveryReason?, message: String) async throws

  /// The state, the counts of requests and the upload under way, as `salvor status` shows them. Writes nothing. Answers
  /// while capture is paused, too.
  func status() async throws -> ClientStatus

  /// How many requests wait (`ClientStatus.queued`): asked after each synchronization.
  func queued() async throws -> Int64

  /// The queue (`queued`, `sent`, `unknown-outcome`) or the error archive (`refused`, `blocked`, `displaced`, `kept`),
  /// in order, at most `limit` of them after the one named.
  func requests(in states: Set<RequestState>, after: RequestID?, limit: Int) async throws -> [QueuedRequest]

  /// Every row of a table in key order, for tests and comparisons: what an application reads.
  func rows(of table: String) async throws -> [Row]

  /// Runs an application's statements, for hosts without a SQLite library of their own: demo, tests. All or nothing.
  func write(_ writes: [ApplicationWrite]) async throws

  /// The personalization keys and subscriptions as the database has them now.
  func deviceSettings() async throws -> DeviceSettings

  /// Changes them in one step: what others write meanwhile comes before or after it, and only what differs is written.
  func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) async throws -> Answer

  /// What applications have written since the change `counter`: asked often by a watching client, cheap where nothing was
  /// written, and never in the way of what the store is doing. A store that looks at a log may name more groups. Where the counter is beyond
  /// the newest change, or another file has taken the database's place, it is not what it was: every group is named.
  func captured(after counter: Int64) async throws -> CapturedChanges
}

extension ClientStore {
  /// For stores that one process alone can have open: there is nothing to give back.
  public func endSession() async {}

  /// For stores that offer nothing.
  public func remember(_ terms: HealTerms, heal: HealMode, retention: Int64) async throws -> Bool { false }

  /// Reads the whole status: for stores that have no cheaper way.
  public func queued() async throws -> Int64 { try await status().queued }

  /// A session whose upload may be of any size.
  public func beginSession(groups: Set<String>?) async throws -> ClientSession {
    try await beginSession(groups: groups, room: UploadRoom())
  }

  /// Puts these in the place of all that there are.
  public func setDeviceSettings(_ settings: DeviceSettings) async throws {
    try await changeDeviceSettings { $0 = settings }
  }
}

/// What a database is opened with.
public struct ClientSetup: Sendable {
  /// The application's own schema. Of the synchronized tables a delivered SyncConfig has the say (`ClientStore.open`).
  public var schema: Schema
  /// Empty: the server will say (`remember`). Another than the database's throws `remote-of-another-principal`.
  public var principal: String
  /// Used when the database gets its remote ID; drawn if nil.
  public var remoteID: RemoteID?
  /// A database that Salvor was taken out of (`MigratingClientStore.detach`) is taken in again, each row as a new one;
  /// otherwise opening one throws `detached`.
  public var reattaches: Bool
  /// A migration of the application's own follows: capture is paused in a database that Salvor has not been in, before any
  /// table is made.
  public var pauses = false
  /// By default a remote ID is drawn where the database has none, a detached database is refused, and capture goes on.
  public init(schema: Schema, principal: String, remoteID: RemoteID? = nil, reattaches: Bool = false) {
    self.schema = schema
    self.principal = principal
    self.remoteID = remoteID
    self.reattaches = reattaches
  }
}

/// What opening did. Names of tables, columns and triggers only.
public struct ClientOpening: Sendable, Hashable {
  /// Tables of the schema that were missing and were made.
  public var createdTables: [String] = []
  /// Columns of the schema that were missing and were added, as `table.column`.
  public var addedColumns: [String] = []
  /// Rows of an existing database that became queued inserts.
  public var adoptedRows: Int64 = 0
  /// Triggers that were missing or altered, and were put back.
  public var restoredTriggers: [String] = []
  /// What a person should know besides, without values.
  public var notices: [String] = []
  /// Nothing was done.
  public init() {}
}

/// Whose a device's database is, how far it is synchronized, and what is under way.
public struct ClientState: Sendable, Hashable {
  /// Of this database, until a recovery gives it another.
  public var remoteID: RemoteID
  /// The name of the principal whom the database belongs to; empty: the server has not said it yet.
  public var principal: String
  /// The same; nil: the server has not said it yet.
  public var owner: String? { principal.isEmpty ? nil : principal }
  /// Of the server that it synchronizes with; nil: it has met none yet.
  public var serverID: ServerID?
  /// The last upload that is known to be committed (semantics 5); nil: there was none.
  public var previous: SequenceID?
  /// The upload whose outcome is not known yet; nil: none is under way.
  public var current: SequenceID?
  /// In the order of the schema; a group never synchronized has no cursor.
  public var groups: [GroupState]
  /// The version of the schema (`Schema.version`), as the SyncConfig in this database says.
  public var schemaVersion: Int64
  /// `SyncConfig.digest` of the synchronized tables as this database has them.
  public var configDigest: String
  /// The download that staging holds a part of (`StagedChunk.download`); nil: none.
  public var stagedDownload: String?
  /// Where that download goes on (`StagedChunk.position`).
  public var stagedPosition: String?
  /// `StagedChunk.rows` of the last chunk in staging.
  public var stagedRows: Int64?
  /// Why a recovery is needed, until one has run (`ClientStore.setRecoveryRequired`); nil: none is.
  public var recoveryRequired: RecoveryReason?
  /// What a person is told of that; nil: no recovery is needed.
  public var recoveryMessage: String?
  /// The identity file knows of an upload that this database does not: the database went back in time.
  public var isOlderThanIdentityFile: Bool
  /// The groups of whose changes the server tells (semantics 1, server-initiated sync), as the SyncConfig says.
  public var serverInitiated: Set<String> = []
  /// The newest incarnation of the server that this database knows with its first commit.
  public var incarnation: IncarnationID?
  /// Offers that the server held when a person took them back, and of which it does not know that yet.
  public var withdrawn: [RequestID] = []

  /// By default a database that has not met its server yet. `stagedRows`, `serverInitiated` and `incarnation` are set
  /// afterwards.
  public init(
    remoteID: RemoteID, principal: String, serverID: ServerID? = nil, previous: SequenceID? = nil,
    current: SequenceID? = nil, groups: [GroupState] = [], schemaVersion: Int64 = 1, configDigest: String = "",
    stagedDownload: String? = nil, stagedPosition: String? = nil, recoveryRequired: RecoveryReason? = nil,
    recoveryMessage: String? = nil,
    isOlderThanIdentityFile: Bool = false
  ) {
    self.remoteID = remoteID
    self.principal = principal
    self.serverID = serverID
    self.previous = previous
    self.current = current
    self.groups = groups
    self.schemaVersion = schemaVersion
    self.configDigest = configDigest
    self.stagedDownload = stagedDownload
    self.stagedPosition = stagedPosition
    self.recoveryRequired = recoveryRequired
    self.recoveryMessage = recoveryMessage
    self.isOlderThanIdentityFile = isOlderThanIdentityFile
  }
}

/// How far one synchronization group is.
public struct GroupState: Sendable, Hashable {
  /// As the schema names the group.
  public var name: String
  /// The last commit of the server that the group has applied; nil: it is not synchronized.
  public var cursor: Commit?
  /// The scope that the cursor holds for, as the server named it (`FeedEnd.scopeDigest`).
  public var scopeDigest: String?
  /// The subscriptions that the cursor was made with, those that matter for the group, as the server named them.
  public var subscriptions: ResolvedSubscriptions
  /// Milliseconds since 1970; nil: never.
  public var lastSync: Int64?
  /// A table has come into the group from a synchronized one, with its rows, and no download of this group was applied since: a recovery
  /// compares the group.
  public var hasMovedTables: Bool
  /// A first download of the group was applied.
  public var isSynchronized: Bool { cursor != nil }
  /// By default a group that was never synchronized.
  public init(
    name: String, cursor: Commit? = nil, scopeDigest: String? = nil,
    subscriptions: ResolvedSubscriptions = ResolvedSubscriptions(), lastSync: Int64? = nil, hasMovedTables: Bool = false
  ) {
    self.name = name
    self.hasMovedTables = hasMovedTables
    self.cursor = cursor
    self.scopeDigest = scopeDigest
    self.subscriptions = subscriptions
    self.lastSync = lastSync
  }
}

/// What `ClientStore.beginSession` gives.
public struct ClientSession: Sendable {
  /// As the session begins: `current` is the upload that it is to send.
  public var state: ClientState
  /// Nil: nothing to send.
  public var upload: PendingUpload?
  /// Triggers put back, groups closed; for the report.
  public var notices: [String]
  /// The first counters of requests in error that are sent again, each as a part of a new one (semantics 8, *Fix and retry*):
  /// the archive does not have them any more.
  public var joined: Set<Int64>
  /// The first counters of requests that this session does not send, since they depend on one in error: the archive has them now.
  public var blocked: Set<Int64>
  /// The first counters of all that depend on one in error as the session begins, also those of before: what was one of them goes now.
  public var held: Set<Int64>
  /// The first counters of requests that cannot stand, found as the session began: they are in the archive, and not in their rows, now.
  public var displaced: Set<Int64>
  /// Offered deletes that the server holds for its operator, as far as the device knows: what the server says of waiting offers does not
  /// count them.
  public var heldDeletes: Int64
  /// Of rows that are here `apply` takes the changed columns alone. A part of a row that is not here makes it throw
  /// `inconsistent-download`, unless the row comes whole later in the same download. False: it takes whole rows.
  public var takesParts: Bool
  /// By default nothing is to be sent, nothing was mended, the server must send whole rows, and it holds no deletes.
  public init(
    state: ClientState, upload: PendingUpload? = nil, notices: [String] = [], joined: Set<Int64> = [],
    blocked: Set<Int64> = [], held: Set<Int64> = [], displaced: Set<Int64> = [], takesParts: Bool = false,
    heldDeletes: Int64 = 0
  ) {
    self.heldDeletes = heldDeletes
    self.blocked = blocked
    self.held = held
    self.displaced = displaced
    self.takesParts = takesParts
    self.state = state
    self.upload = upload
    self.notices = notices
    self.joined = joined
  }
}

/// The upload that a session is to send. Its content comes by `ClientStore.uploadChunk`.
public struct PendingUpload: Sendable, Hashable {
  /// The same in each resend.
  public var sequence: SequenceID
  /// It was sent before; its outcome is unknown.
  public var isResend: Bool
  /// The counter of its last change. Later changes are not in it.
  public var lastCounter: Int64
  /// All parts given.
  public init(sequence: SequenceID, isResend: Bool, lastCounter: Int64) {
    self.sequence = sequence
    self.isResend = isResend
    self.lastCounter = lastCounter
  }
}

/// One chunk of the upload: payload of `UploadChunkWriter`.
public struct UploadChunk: Sendable, Hashable {
  /// JSON lines that stand on their own (docs/reference/protocol.md, *Upload payload*).
  public var bytes: [UInt8]
  /// The counter of its first change; 0: it has none.
  public var firstCounter: Int64
  /// The counter of its last change: `ClientStore.uploadChunk` goes on after it. 0: it has none.
  public var lastCounter: Int64
  /// How many changes it holds. Their counters may have gaps.
  public var changeCount: Int
  /// No chunk follows.
  public var isLast: Bool
  /// What the device must have sent before the chunk is processed. The server's side reads it from the payload.
  public var blobs: [OutgoingBlob]
  /// By default the chunk refers to no blobs.
  public init(
    bytes: [UInt8], firstCounter: Int64, lastCounter: Int64, changeCount: Int, isLast: Bool, blobs: [OutgoingBlob] = []
  ) {
    self.blobs = blobs
    self.bytes = bytes
    self.firstCounter = firstCounter
    self.lastCounter = lastCounter
    self.changeCount = changeCount
    self.isLast = isLast
  }

  /// Of an upload in which nothing is left.
  public static let empty = UploadChunk(bytes: [], firstCounter: 0, lastCounter: 0, changeCount: 0, isLast: true)
}

/// What the server did with an upload's requests: all of them are accepted but the refused ones, and those that wait.
public struct UploadResults: Sendable, Hashable {
  /// The commit that holds what was accepted; nil where nothing was changed.
  public var commit: Commit?
  /// How many requests were accepted, those in conflict too.
  public var acceptedRequests: Int64
  /// Accepted requests that were in conflict: kept as conflict versions, or settled by a policy that overwrote a value.
  public var conflicts: Int64
  /// Requests that were not applied, those that are blocked by another too.
  public var refused: [Refusal]
  /// Accepted offers (semantics 10) that brought something back.
  public var healed: Int64
  /// Accepted offers that changed nothing: a newer version, or their own, was there.
  public var superseded: Int64
  /// Counters of requests that are neither accepted nor refused yet: offers that the server holds until a parent or its operator's
  /// consent comes, and what depends on them. Ascending ranges; each counter is the first one of a request.
  public var waiting: [ClosedRange<Int64>] = []
  /// First counters of the accepted requests that are kept as conflict versions for a person, ascending.
  public var kept: [Int64] = []
  /// By default there were no conflicts and no offers, and nothing waits.
  public init(
    commit: Commit?, acceptedRequests: Int64, conflicts: Int64 = 0, refused: [Refusal], healed: Int64 = 0,
    superseded: Int64 = 0, waiting: [ClosedRange<Int64>] = [], kept: [Int64] = []
  ) {
    self.waiting = waiting
    self.kept = kept
    self.commit = commit
    self.acceptedRequests = acceptedRequests
    self.conflicts = conflicts
    self.refused = refused
    self.healed = healed
    self.superseded = superseded
  }
}

extension UploadResults {
  /// Ascending counters as ranges.
  public static func ranges(_ counters: [Int64]) -> [ClosedRange<Int64>] {
    var ranges: [ClosedRange<Int64>] = []
    for counter in counters {
      if let end = ranges.last, end.upperBound + 1 == counter {
        ranges[ranges.count - 1] = end.lowerBound...counter
      } else {
        ranges.append(counter...counter)
      }
    }
    return ranges
  }

  /// How many requests wait.
  public var waitingRequests: Int64 { waiting.reduce(0) { $0 + Int64($1.count) } }

  /// Whether the request whose first change has this counter is in `waiting`.
  public func isWaiting(_ counter: Int64) -> Bool {
    var (low, high) = (0, waiting.count)
    while low < high {
      let middle = (low + high) / 2
      if waiting[middle].upperBound < counter { low = middle + 1 } else { high = middle }
    }
    return low < waiting.count && waiting[low].contains(counter)
  }
}

/// What `ClientStore.settle` did.
public struct SettleReport: Sendable, Hashable {
  /// Requests that left the queue: the server has their effect.
  public var accepted: Int64
  /// Requests that stay as entries of the archive: refused or blocked, or kept (`kept`, reason `rejected`) where the server's operator has
  /// rejected what the device does not show. One that was erased with a purged row does not count.
  public var refused: Int64
  /// Offers that the server holds, of this upload and of earlier ones, deletes among them.
  public var waiting: Int64 = 0
  /// The synchronization goes on with another session: the server has settled some of what it held and is asked about more, or a lost row is
  /// offered since a change of it was refused (decision 219).
  public var asksAgain = false
  /// Requests that cannot stand since, by their counters: a delete that waits for consent has its row back, which may be in their way.
  public var displaced: [RequestID] = []
  /// By default nothing was settled. The others are set afterwards.
  public init(accepted: Int64 = 0, refused: Int64 = 0) {
    self.accepted = accepted
    self.refused = refused
  }
}

/// One chunk of a download, for `ClientStore.stage`.
public struct StagedChunk: Sendable {
  /// Names the download: chunks of one belong together.
  public var download: String
  /// Payload of `DownloadChunkWriter`.
  public var bytes: [UInt8]
  /// Where the download goes on after this chunk.
  public var position: String
  /// Rows of the download up to `position`, as the server counted them: what a progress bar of a download that goes on
  /// there begins with. Nil: nobody counted.
  public var rows: Int64?
  /// The unproven table that this chunk says the differences of; nil: what the chunk says is so.
  public var compared: String?
  /// By default nobody counted the rows, and the chunk compares no table.
  public init(download: String, bytes: [UInt8], position: String, rows: Int64? = nil, compared: String? = nil) {
    self.rows = rows
    self.compared = compared
    self.download = download
    self.bytes = bytes
    self.position = position
  }
}

/// The end of a download: the state that the synchronized groups have when everything staged is applied.
public struct DownloadEnd: Sendable, Hashable {
  /// The groups of the download, each with its new cursor. Others stay as they are.
  public var groups: [GroupState]
  /// All parts given.
  public init(groups: [GroupState]) { self.groups = groups }
}

/// What `ClientStore.apply` did.
public struct ApplyReport: Sendable, Hashable {
  /// Groups that were taken over from files.
  public var snapshots: Int64 = 0
  /// Rows that the download brought, whole or in part.
  public var upserts: Int64 = 0
  /// Rows that the download took away: they were deleted on the server, or left the scope.
  public var deletes: Int64 = 0
  /// Requests that could not stand on the new bases (semantics 2).
  public var displaced: [RequestID] = []
  /// Changes that were found by comparing unproven tables, and are captured now (semantics 3).
  public var captured: Int64 = 0
  /// Rows of the server's that are not here, since those that they reference did not come (`LeftOutRow`).
  public var leftOut: Int64 = 0
  /// The notices of these rows, which are among `notices`, by table.
  public var leftOutNotices: [String: [String]] = [:]
  /// A row has come that rows which were left out may reference (`LeftOutRow`): their tables are compared in a session of its own.
  public var isToCompare = false
  /// What a person should know; names only.
  public var notices: [String] = []
  /// Nothing was applied.
  public init() {}
}

/// What a device remembers of its uploads and of the server's history: by it a server that does not know the device's
/// cursor finds where the two histories part (semantics 6).
public struct ClientHistory: Sendable, Hashable {
  /// Newest first, `previous` not included.
  public var olderSequences: [SequenceID]
  /// Those of the server that the device was told of, at most `Timeline.toldMax`.
  public var incarnations: [Incarnation]
  /// The sparse list of commits, newest first.
  public var commits: [Commit]
  /// The synchronized tables as this database has them, for a comparison with the server's schema.
  public var tables: [Table]
  /// All parts given.
  public init(olderSequences: [SequenceID], incarnations: [Incarnation], commits: [Commit], tables: [Table]) {
    self.olderSequences = olderSequences
    self.incarnations = incarnations
    self.commits = commits
    self.tables = tables
  }
}

/// How a device's database is (`salvor status`). What is counted in the queue and the archive is requests.
public struct ClientStatus: Sendable, Hashable {
  /// Whose the database is, and how far it is synchronized.
  public var state: ClientState
  /// Requests in the states `queued`, `sent` and `unknown-outcome`.
  public var queued: Int64
  /// `refused` and `blocked`.
  public var inError: Int64
  /// Those that cannot stand beside the server's rows: the archive has their values, the tables do not (semantics 2).
  public var displaced: Int64
  /// Those that a recovery put into the archive (semantics 8). They are not shown in the tables, and not in error.
  public var kept: Int64
  /// What the server holds of what this device gave back after a restore, as far as the device knows: for its operator, or for another row.
  public var waiting: Int64 = 0
  /// The upload whose outcome is not known yet; nil: none is under way.
  public var upload: UploadStatus?
  /// Since when capture is paused for a migration of the application's own, in milliseconds since 1970; nil: it is not.
  public var capturePausedSince: Int64?
  /// The request that the server refused last; nil: none is refused.
  public var lastRefused: RequestID?
  /// Rows of a synchronized table whose key is NULL, by table: they are not synchronized.
  public var rowsWithoutKey: [String: Int64] = [:]
  /// What is under way beside the database; stores leave it as it is.
  public var recovery = RecoveryStatus()
  /// No upload is under way, capture is not paused, nothing was refused, and every row has a key, until those properties are set.
  public init(state: ClientState, queued: Int64, inError: Int64, displaced: Int64, kept: Int64) {
    self.state = state
    self.queued = queued
    self.inError = inError
    self.displaced = displaced
    self.kept = kept
  }
}

/// The recovery that is under way (`status --json`, `recovery`).
public struct RecoveryStatus: Sendable, Hashable {
  /// How far a recovery is.
  public enum State: String, Sendable {
    /// No recovery is under way.
    case none
    /// Begun, and resumed by the next sync: after a crash, or because it waits for the server's administrator.
    case unfinished
    /// It waits for `recover` with the token.
    case required
  }
  /// By default none is under way.
  public var state = State.none
  /// Why it runs; nil: none is under way, or its journal cannot be read.
  public var reason: RecoveryReason?
  /// The name of the strategy that was chosen; nil: none yet.
  public var strategy: String?
  /// The name of the step that it is at; nil: it has not begun one. `journal-unreadable`: its journal cannot be read,
  /// and the next sync sets it aside.
  public var step: String?
  /// What `recover` has to be called with in the state `required`; nil: no token was given out.
  public var token: String?
  /// The ID of the copy that was made of the database before; nil: none yet.
  public var backup: String?
  /// None is under way.
  public init() {}
}

/// One statement of an application, for `ClientStore.write` and `ServerStore.write`.
public enum ApplicationWrite: Sendable, Hashable {
  /// Missing columns take their default.
  case insert(table: String, values: [NamedValue])
  /// Sets these columns of a row. Changes nothing where there is no such row.
  case update(table: String, key: Key, values: [NamedValue])
  /// Deletes a row. Changes nothing where there is no such row.
  case delete(table: String, key: Key)
  /// From here on references are proved when the transaction commits, as after `PRAGMA defer_foreign_keys = ON`.
  case deferReferences
  /// Opens a group (semantics 3): what follows is one request, up to `endRequest`. A server ignores both.
  case beginRequest(tag: String?)
  /// Closes the group that is open.
  case endRequest
}
