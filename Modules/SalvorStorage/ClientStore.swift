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

  func close() async

  /// What a session starts from, in one step: checks the triggers, closes a group that was left open, and reads the
  /// state and, where requests wait or an upload's outcome is unknown, the upload.
  ///
  /// An upload with unknown outcome is offered again with the same sequence ID and the same content, whatever `groups`
  /// says. Otherwise, where requests of `groups` (nil: all) wait, a new current sequence ID is drawn and is durable,
  /// the identity file included, before this returns. With nothing to send, nothing is drawn or written.
  ///
  /// `blobBytesMax` is what the blobs that a new upload refers to, old values and new ones, may have together (a server has
  /// said so; nil: any number of bytes). Requests are chosen in order, each with those it depends on, up to the first that
  /// is beyond it; one whose own blobs are beyond it is passed over until nothing else is left, and is an upload of its own
  /// then, for the server to judge.
  ///
  /// One session at a time, over all processes that have the database open: another one throws `session-in-use`.
  func beginSession(groups: Set<String>?, blobBytesMax: Int64?) async throws -> ClientSession

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
  /// where they are the same.
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
  /// it is also older than `retention` milliseconds. Nothing is written where nothing is new.
  func remember(_ terms: HealTerms, retention: Int64) async throws -> Bool

  /// What is sent only when the server asks for it (`history-needed`).
  func history() async throws -> ClientHistory

  /// A recovery is needed: kept until one has run. Nil takes it back.
  func setRecoveryRequired(_ reason: RecoveryReason?, message: String) async throws

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

  func deviceSettings() async throws -> DeviceSettings

  /// Changes them in one step: what others write meanwhile comes before or after it, and only what differs is written.
  func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) async throws -> Answer

  /// What applications have written since the change `counter`: asked often by a watching client, cheap where nothing was
  /// written, and never in the way of what the store is doing. A store that looks at a log may name more groups.
  func captured(after counter: Int64) async throws -> CapturedChanges
}

extension ClientStore {
  /// For stores that one process alone can have open: there is nothing to give back.
  public func endSession() async {}

  /// For stores that offer nothing.
  public func remember(_ terms: HealTerms, retention: Int64) async throws -> Bool { false }

  public func queued() async throws -> Int64 { try await status().queued }

  /// A session whose upload may refer to any number of bytes.
  public func beginSession(groups: Set<String>?) async throws -> ClientSession {
    try await beginSession(groups: groups, blobBytesMax: nil)
  }

  /// Puts these in the place of all that there are.
  public func setDeviceSettings(_ settings: DeviceSettings) async throws {
    try await changeDeviceSettings { $0 = settings }
  }
}

public struct ClientSetup: Sendable {
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
  public init(schema: Schema, principal: String, remoteID: RemoteID? = nil, reattaches: Bool = false) {
    self.schema = schema
    self.principal = principal
    self.remoteID = remoteID
    self.reattaches = reattaches
  }
}

/// What opening did. Names of tables, columns and triggers only.
public struct ClientOpening: Sendable, Hashable {
  public var createdTables: [String] = []
  public var addedColumns: [String] = []
  /// Rows of an existing database that became queued inserts.
  public var adoptedRows: Int64 = 0
  public var restoredTriggers: [String] = []
  /// What a person should know besides, without values.
  public var notices: [String] = []
  public init() {}
}

public struct ClientState: Sendable, Hashable {
  public var remoteID: RemoteID
  public var principal: String
  public var serverID: ServerID?
  public var previous: SequenceID?
  public var current: SequenceID?
  /// In the order of the schema; a group never synchronized has no cursor.
  public var groups: [GroupState]
  public var schemaVersion: Int64
  /// `SyncConfig.digest` of the synchronized tables as this database has them.
  public var configDigest: String
  /// The download that staging holds a part of (`StagedChunk.download`), and where it goes on.
  public var stagedDownload: String?
  public var stagedPosition: String?
  /// `StagedChunk.rows` of the last chunk in staging.
  public var stagedRows: Int64?
  public var recoveryRequired: RecoveryReason?
  public var recoveryMessage: String?
  /// The identity file knows of an upload that this database does not: the database went back in time.
  public var isOlderThanIdentityFile: Bool
  /// The groups of whose changes the server tells (semantics 1, server-initiated sync), as the SyncConfig says.
  public var serverInitiated: Set<String> = []
  /// The newest incarnation of the server that this database knows with its first commit.
  public var incarnation: IncarnationID?

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

public struct GroupState: Sendable, Hashable {
  public var name: String
  public var cursor: Commit?
  /// The scope that the cursor holds for, as the server named it (`FeedEnd.scopeDigest`).
  public var scopeDigest: String?
  /// The subscriptions that the cursor was made with, those that matter for the group, as the server named them.
  public var subscriptions: ResolvedSubscriptions
  /// Milliseconds since 1970; nil: never.
  public var lastSync: Int64?
  public var isSynchronized: Bool { cursor != nil }
  public init(
    name: String, cursor: Commit? = nil, scopeDigest: String? = nil,
    subscriptions: ResolvedSubscriptions = ResolvedSubscriptions(), lastSync: Int64? = nil
  ) {
    self.name = name
    self.cursor = cursor
    self.scopeDigest = scopeDigest
    self.subscriptions = subscriptions
    self.lastSync = lastSync
  }
}

public struct ClientSession: Sendable {
  public var state: ClientState
  /// Nil: nothing to send.
  public var upload: PendingUpload?
  /// Triggers put back, groups closed; for the report.
  public var notices: [String]
  /// The first counters of requests in error that are sent again, each as a part of a new one (semantics 8, *Fix and retry*):
  /// the archive does not have them any more.
  public var joined: Set<Int64>
  /// Of rows that are here `apply` takes the changed columns alone. A part of a row that is not here makes it throw
  /// `inconsistent-download`, unless the row comes whole later in the same download. False: it takes whole rows.
  public var takesParts: Bool
  public init(
    state: ClientState, upload: PendingUpload? = nil, notices: [String] = [], joined: Set<Int64> = [],
    takesParts: Bool = false
  ) {
    self.takesParts = takesParts
    self.state = state
    self.upload = upload
    self.notices = notices
    self.joined = joined
  }
}

public struct PendingUpload: Sendable, Hashable {
  public var sequence: SequenceID
  /// It was sent before; its outcome is unknown.
  public var isResend: Bool
  public var lastCounter: Int64
  public init(sequence: SequenceID, isResend: Bool, lastCounter: Int64) {
    self.sequence = sequence
    self.isResend = isResend
    self.lastCounter = lastCounter
  }
}

/// One chunk of the upload: payload of `UploadChunkWriter`.
public struct UploadChunk: Sendable, Hashable {
  public var bytes: [UInt8]
  public var firstCounter: Int64
  public var lastCounter: Int64
  public var changeCount: Int
  /// No chunk follows.
  public var isLast: Bool
  /// What the device must have sent before the chunk is processed. The server's side reads it from the payload.
  public var blobs: [OutgoingBlob]
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
  public var acceptedRequests: Int64
  /// Accepted requests that were in conflict: kept as conflict versions, or settled by a policy that overwrote a value.
  public var conflicts: Int64
  public var refused: [Refusal]
  /// Accepted offers (semantics 10) that brought something back, and those that found a newer version, or their own, there.
  public var healed: Int64
  public var superseded: Int64
  /// Counters of requests that are neither accepted nor refused yet: offers that the server holds until a parent or its operator's
  /// consent comes, and what depends on them. Ascending ranges; each counter is the first one of a request.
  public var waiting: [ClosedRange<Int64>] = []
  /// First counters of the accepted requests that are kept as conflict versions for a person, ascending.
  public var kept: [Int64] = []
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

  public func isWaiting(_ counter: Int64) -> Bool {
    var (low, high) = (0, waiting.count)
    while low < high {
      let middle = (low + high) / 2
      if waiting[middle].upperBound < counter { low = middle + 1 } else { high = middle }
    }
    return low < waiting.count && waiting[low].contains(counter)
  }
}

/// What a server says of healing with each answer (semantics 10).
public struct HealTerms: Sendable, Hashable {
  /// The start of the server that answers.
  public var incarnation: IncarnationID
  /// The number of the commit of the oldest copy of the database that may be put back; nil: none is listed.
  public var floor: Int64?
  /// How many offers of this remote the server holds until a parent or its operator's consent comes.
  public var waiting: Int64
  /// Grows with each settling of offers that this database has held, of any remote: where fewer wait than a device knows of, it
  /// says whether that is news.
  public var settlings: Int64
  public init(incarnation: IncarnationID, floor: Int64? = nil, waiting: Int64 = 0, settlings: Int64 = 0) {
    self.incarnation = incarnation
    self.floor = floor
    self.waiting = waiting
    self.settlings = settlings
  }
}

public struct SettleReport: Sendable, Hashable {
  public var accepted: Int64
  public var refused: Int64
  /// Offers that the server holds, of this upload and of earlier ones.
  public var waiting: Int64 = 0
  public init(accepted: Int64 = 0, refused: Int64 = 0) {
    self.accepted = accepted
    self.refused = refused
  }
}

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
  public var groups: [GroupState]
  public init(groups: [GroupState]) { self.groups = groups }
}

public struct ApplyReport: Sendable, Hashable {
  /// Groups that were taken over from files.
  public var snapshots: Int64 = 0
  public var upserts: Int64 = 0
  public var deletes: Int64 = 0
  /// Requests that could not stand on the new bases (semantics 2).
  public var displaced: [RequestID] = []
  /// Changes that were found by comparing unproven tables, and are captured now (semantics 3).
  public var captured: Int64 = 0
  /// What a person should know; names only.
  public var notices: [String] = []
  public init() {}
}

public struct ClientHistory: Sendable, Hashable {
  /// Newest first, `previous` not included.
  public var olderSequences: [SequenceID]
  public var incarnations: [Incarnation]
  /// The sparse list of commits, newest first.
  public var commits: [Commit]
  public var tables: [Table]
  public init(olderSequences: [SequenceID], incarnations: [Incarnation], commits: [Commit], tables: [Table]) {
    self.olderSequences = olderSequences
    self.incarnations = incarnations
    self.commits = commits
    self.tables = tables
  }
}

public struct ClientStatus: Sendable, Hashable {
  public var state: ClientState
  /// Requests in the states `queued`, `sent` and `unknown-outcome`.
  public var queued: Int64
  /// `refused` and `blocked`.
  public var inError: Int64
  public var displaced: Int64
  public var kept: Int64
  /// The upload whose outcome is not known yet; nil: none is under way.
  public var upload: UploadStatus?
  /// Since when capture is paused for a migration of the application's own, in milliseconds since 1970; nil: it is not.
  public var capturePausedSince: Int64?
  /// Rows of a synchronized table whose key is NULL, by table: they are not synchronized.
  public var rowsWithoutKey: [String: Int64] = [:]
  /// What is under way beside the database; stores leave it as it is.
  public var recovery = RecoveryStatus()
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
  public enum State: String, Sendable {
    case none
    /// Begun, and resumed by the next sync: after a crash, or because it waits for the server's administrator.
    case unfinished
    /// It waits for `recover` with the token.
    case required
  }
  public var state = State.none
  public var reason: RecoveryReason?
  public var strategy: String?
  public var step: String?
  public var token: String?
  public var backup: String?
  public init() {}
}

public enum ApplicationWrite: Sendable, Hashable {
  /// Missing columns take their default.
  case insert(table: String, values: [NamedValue])
  case update(table: String, key: Key, values: [NamedValue])
  case delete(table: String, key: Key)
  /// From here on references are proved when the transaction commits, as after `PRAGMA defer_foreign_keys = ON`.
  case deferReferences
  /// Opens a group (semantics 3), and closes it.
  case beginRequest(tag: String?)
  case endRequest
}
