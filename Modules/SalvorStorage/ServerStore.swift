import SalvorModel

/// The consolidated database: real tables, staging, processing, the feed and the history (semantics 4 to 7). Contract:
/// `ServerStoreContract`; executable specification: `MemoryServerStore`.
///
/// Other programs read and write the real tables. What they write is numbered (`sweep`) when the store first sees it
/// committed, in one serial place. Every method is one transaction, or none.
public protocol ServerStore: ServerBlobs {
  /// Opens or makes the database and brings it in line with the schema: additive differences are applied, others throw
  /// `schema-refused` naming each. An existing database is adopted: its rows are the state of commit 0. Draws the
  /// server ID once and an incarnation ID each time. Idempotent while open.
  func open(_ setup: ServerSetup) async throws -> ServerOpening

  /// Finishes what is in flight.
  func close() async

  /// Interrupts what is under way: it throws `cancelled`, and nothing of it is done. Asked again until `close` has ended.
  func interrupt()

  /// Returns where the database can be read; throws what is wrong with it. Never waits for who writes.
  func answers() async throws

  /// Everything that the checks of a begin ask about, in one step. Numbers what other programs have committed first.
  func admit(_ query: AdmissionQuery) async throws -> Admission

  /// Makes the remote known with its principal; one that was deleted is known again. Throws `remote-blocked` where an
  /// administrator keeps it out, `remote-of-another-principal` where it has another principal, and `quota` where the
  /// principal has `principalRemotesMax` already.
  func register(_ remote: RemoteID, principal: String) async throws

  /// Puts one chunk of an upload into staging, as the text it came as. The same chunk again replaces itself; a chunk
  /// of another sequence ID empties the remote's staging first. Chunks must follow on: the first counter is greater than the last
  /// counter staged before it, else `chunk-missing`. Throws `quota` beyond `uploadChunksMax`, and where the principal's
  /// remotes would have more than `principalStagedBytesMax` in staging.
  func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws

  /// How far the staged upload of this sequence ID goes; zeros where there is none.
  func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload

  /// The text of one staged chunk, as it came; nil: there is none with this index.
  func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]?

  /// Empties what is staged of the upload of this sequence ID: unless it was processed before, it is not any more.
  func unstage(_ remote: RemoteID, sequence: SequenceID) async throws

  /// Moves staging into the real tables in one transaction and records the results with the sequence ID: previous S
  /// becomes an older one, S := `sequence`. Staging is emptied. An upload that was processed before (S is `sequence`)
  /// changes nothing and gives the recorded results again.
  ///
  /// Throws `not-found` where the remote is not registered, and `chunk-missing` where the upload is not staged whole.
  ///
  /// Throws `blob-missing`, and changes nothing, where it refers to a blob that is neither staged nor in a row that the
  /// principal may read. What was staged for it is emptied. A change with a blob above `blobBytesMax` is refused, and its
  /// bytes are not asked for. So is a request that lacks a blob, and whose blobs could never be staged together
  /// (`OversizedRequests`).
  ///
  /// What `upload.refused` names is refused as it says, unless it is blocked by another or was settled before; what
  /// depends on it is blocked by it.
  func process(_ upload: ProcessRequest) async throws -> UploadResults

  /// The recorded results of the remote's last upload, where its sequence ID is `sequence`.
  func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults?

  /// One page of a download. A pure function of the database and the position: each page reads its own snapshot, and
  /// the last pages bring everything that changed since the download began, so that what was read at different times
  /// is whole at the end (docs/architecture/feed.md).
  func page(_ request: PageRequest) async throws -> FeedPage

  /// Numbers what other programs have committed; the newest commit.
  func sweep() async throws -> Commit

  /// Which groups have changed since the oldest of `cursors`; numbers what other programs have committed first. For
  /// server-initiated sync (semantics 1): asked often, and cheap where nothing was written. Without cursors: the newest
  /// commit alone, and no changes.
  ///
  /// `changes` is nil where one of the cursors is unknown or trimmed, and may be nil where there are many commits since:
  /// whoever asked synchronizes then.
  func changedGroups(since cursors: [Commit]) async throws -> GroupChanges

  /// Every remote ID that this server knows, deleted and blocked ones too, in the order of their IDs. There may be
  /// very many: ask for pages.
  func remotes() async throws -> [RemoteRecord]

  /// A page of them, in the order of their IDs.
  func remotes(_ query: RemoteQuery) async throws -> [RemoteRecord]

  /// One of them; nil: there is none.
  func remote(_ id: RemoteID) async throws -> RemoteRecord?

  /// Forgets a remote ID, with its sequence ID and request IDs kept as old ones; `block` keeps the device out. False:
  /// there is none.
  func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool

  /// Conflict versions after the one of ID `id` (0: from the first), in the order of their IDs, which is that of their
  /// keeping; at most `limit`. `state` nil: all of them.
  func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion]

  /// The conflict version `id` with the others of its request, in order, each beside the row as it is now. Empty: there is
  /// none.
  func conflict(_ id: Int64) async throws -> [ConflictRow]

  /// Settles a conflict version, and with it the others of its request, for good. `client` writes the columns that the
  /// client changed (a delete deletes) in the real tables, as a program of the server's would: it is fed to every device,
  /// the sender too. `server` writes nothing but the mark.
  ///
  /// Throws, and changes nothing: `not-found`; `conflict-resolved`, also where a policy settled it; `conflict-unresolvable` where the client's version
  /// cannot stand (the row was deleted meanwhile, a constraint, a column that is gone).
  ///
  /// - Returns: the versions that were resolved.
  func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion]

  /// Removes tombstones, log entries and conflict versions that were resolved before `milliseconds` since 1970; cursors
  /// before them are trimmed. Open conflict versions stay.
  func trim(before milliseconds: Int64) async throws

  /// Forgets the conflicts that policies settled before `milliseconds` since 1970. Those that wait for a person, or that
  /// one has resolved, stay.
  func trimSettledConflicts(before milliseconds: Int64) async throws

  /// Empties what is staged of uploads whose last chunk came before `milliseconds` since 1970, and gives space back to the
  /// system where the store can.
  func forgetStaged(before milliseconds: Int64) async throws

  /// Counts for operators and metrics. What other programs have committed is not numbered for them.
  func stats() async throws -> ServerStats

  /// Every row of a table in key order, for tests and comparisons.
  func rows(of table: String) async throws -> [Row]

  /// Runs another program's statements, for hosts without a SQLite library of their own: demo, tests. All or nothing.
  func write(_ writes: [ApplicationWrite]) async throws
}

extension ServerStore {
  /// Does nothing: for stores whose work is never long.
  public func interrupt() {}
  /// Asks for `stats`, which reads the database.
  public func answers() async throws { _ = try await stats() }
}

/// What a server's store is opened with.
public struct ServerSetup: Sendable {
  /// What the server synchronizes: the tables, groups and parameters.
  public var schema: Schema
  /// How conflicts are settled, by table.
  public var conflictPolicies: [String: any ConflictPolicy]
  /// A refusal does not say what the database's own constraints and triggers say (`server.messages: "withhold"`).
  public var withholdsMessages: Bool
  /// Every offer waits for the operator's consent (`server.recovery.heal: "review"`), not only those that say so and those of tables
  /// that do.
  public var reviewsOffers: Bool
  /// By default without conflict policies, which is enough where no table names one; refusals say what the database
  /// says, and offers wait only where they or their tables ask for it.
  public init(
    schema: Schema, conflictPolicies: [String: any ConflictPolicy] = [:], withholdsMessages: Bool = false,
    reviewsOffers: Bool = false
  ) {
    self.reviewsOffers = reviewsOffers
    self.schema = schema
    self.conflictPolicies = conflictPolicies
    self.withholdsMessages = withholdsMessages
  }

  /// The policy of a table; the default one, the client's fields, where the table names no other. Throws `configuration`
  /// where it names one that was not brought.
  public func conflictPolicy(of table: Table) throws(SalvorError) -> any ConflictPolicy {
    if let policy = conflictPolicies[table.name] { return policy }
    if table.conflicts == Table.defaultConflicts || table.maintained != .dual { return UniformConflictPolicy(.client) }
    throw SalvorError(
      .configuration,
      "\(table.name) names the conflict policy \"\(table.conflicts)\", and the server was started without it. Give it with the set-up, or name another.",
      context: ["table": table.name])
  }
}

/// What opening a server's database found and did.
public struct ServerOpening: Sendable, Hashable {
  /// Drawn when the database was made or adopted, and kept until `adoptNewID` draws another one.
  public var serverID: ServerID
  /// Drawn by this opening.
  public var incarnation: IncarnationID
  /// The tables that were made, by name.
  public var createdTables: [String] = []
  /// The columns that were added, as `table.column`.
  public var addedColumns: [String] = []
  /// How many rows were there before Salvor in tables that it had not known.
  public var adoptedRows: Int64 = 0
  /// The side file remembers a later commit or another incarnation: this database came from a backup.
  public var isRestored = false
  /// By default nothing was made, added or adopted, and the database was not restored.
  public init(serverID: ServerID, incarnation: IncarnationID) {
    self.serverID = serverID
    self.incarnation = incarnation
  }
}

/// What the checks of a begin ask the store about.
public struct AdmissionQuery: Sendable {
  /// The device that begins.
  public var remote: RemoteID
  /// P, the sequence ID of the last upload that the device knows to be committed; nil: there is none.
  public var previous: SequenceID?
  /// C, the sequence ID of the upload that the device has under way; nil: there is none.
  public var current: SequenceID?
  /// Of the groups that the device has synchronized.
  public var cursors: [Commit]
  /// What the client sent because the server asked (`history-needed`); empty otherwise.
  public var olderSequences: [SequenceID]
  /// The commits that the device has seen, with its cursors; empty where it was not asked.
  public var commits: [Commit]
  /// The incarnations that the client knows; empty where it was not asked.
  public var incarnations: [Incarnation]
  /// The newest of them, which every begin names.
  public var incarnation: IncarnationID?
  /// The download that is to follow, from its first page on; nil: none follows at once.
  public var download: PageRequest?
  /// By default the device was not asked for its history, and no download follows.
  public init(
    remote: RemoteID, previous: SequenceID?, current: SequenceID?, cursors: [Commit],
    olderSequences: [SequenceID] = [], commits: [Commit] = [], incarnations: [Incarnation] = [],
    incarnation: IncarnationID? = nil, download: PageRequest? = nil
  ) {
    self.download = download
    self.incarnations = incarnations
    self.incarnation = incarnation
    self.remote = remote
    self.previous = previous
    self.current = current
    self.cursors = cursors
    self.olderSequences = olderSequences
    self.commits = commits
  }
}

/// Facts; the engine decides.
public struct Admission: Sendable {
  /// Nil: this remote ID never registered. A deleted one is still here.
  public var remote: RemoteRecord?
  /// `previous` is one of this remote's older sequence IDs.
  public var previousIsOlder: Bool
  /// For each cursor of the query, in order.
  public var cursors: [CursorFinding]
  /// The newest commit that both have made: the one before the histories part, where the query's `incarnations` tell
  /// (`Timeline.lastShared`), else the newest of its `commits` that this server has made too.
  public var lastShared: Commit?
  /// The server's newest commit.
  public var head: Commit
  /// What the client does not know of this database's incarnations (`Timeline.untold`).
  public var incarnations: [Incarnation]
  /// How many offers of the remote wait (`HealingServerStore`), but for deletes.
  public var waitingOffers: Int64 = 0
  /// `HealTerms.deletes`. Nil: the store does not count them.
  public var waitingDeletes: Int64?
  /// `HealTerms.settlings`.
  public var settlings: Int64 = 0
  /// The whole of the query's `download`, where the device is at the head in the scopes of now, and the store saw it at the same moment;
  /// nil: it is asked for page by page.
  public var page: FeedPage?
  /// By default the device knows every incarnation; no offers wait.
  public init(
    remote: RemoteRecord?, previousIsOlder: Bool, cursors: [CursorFinding], lastShared: Commit?, head: Commit,
    incarnations: [Incarnation] = []
  ) {
    self.incarnations = incarnations
    self.remote = remote
    self.previousIsOlder = previousIsOlder
    self.cursors = cursors
    self.lastShared = lastShared
    self.head = head
  }
}

/// What a server knows of a device's cursor.
public enum CursorFinding: Sendable, Hashable {
  /// This server made the commit, and the feed can go on from it.
  case known
  /// Known, but older than the tombstones kept.
  case trimmed
  /// This server did not make the commit.
  case unknown
}

/// How far an upload in staging goes.
public struct StagedUpload: Sendable, Hashable {
  /// How many chunks there are; the next one has this index.
  public var chunks: Int
  /// The counter of the last change staged; 0: none.
  public var lastCounter: Int64
  /// The bytes of its chunks, blobs aside.
  public var bytes: Int64
  /// From its first chunk to its last.
  public var isWhole: Bool
  /// By default nothing is staged.
  public init(chunks: Int = 0, lastCounter: Int64 = 0, bytes: Int64 = 0, isWhole: Bool = false) {
    self.chunks = chunks
    self.lastCounter = lastCounter
    self.bytes = bytes
    self.isWhole = isWhole
  }
}

/// An upload that is to be processed.
public struct ProcessRequest: Sendable {
  /// The device whose upload it is.
  public var remote: RemoteID
  /// The upload's sequence ID: S once it is processed.
  public var sequence: SequenceID
  /// P of the begin that the upload came with. Where S is another one by now, and not `sequence`, the upload has come late: the
  /// store throws `session-unknown`, and nothing of it is applied. Nil: a first upload, for which S is not compared.
  public var previous: SequenceID?
  /// Whoever uploads. Requests outside its scope are refused.
  public var principal: Principal
  /// A small upload that came with its begin and was never staged: its chunks, in order. Staging is not read then.
  public var chunks: [UploadChunk]?
  /// What was refused before processing began, by a validator.
  public var refused: [Refusal]
  /// Subscriptions narrow what the sender is fed: rows that it makes and that are there just so are told to it, too, since
  /// they may be outside.
  public var isNarrowed: Bool
  /// By default the upload is in staging, nothing was refused before, and the sender is fed all that it may see.
  public init(
    remote: RemoteID, sequence: SequenceID, previous: SequenceID? = nil, principal: Principal,
    chunks: [UploadChunk]? = nil, refused: [Refusal] = [], isNarrowed: Bool = false
  ) {
    self.remote = remote
    self.sequence = sequence
    self.previous = previous
    self.principal = principal
    self.chunks = chunks
    self.refused = refused
    self.isNarrowed = isNarrowed
  }
}

extension SalvorError {
  /// An upload that waited while later ones of its device were processed (semantics 5).
  public static func lateUpload(_ remote: RemoteID) -> SalvorError {
    SalvorError(
      .sessionUnknown,
      "A later upload of this remote ID was processed before this one, which was not applied. Begin again; nothing is lost.",
      context: ["remote": remote.text])
  }
}

/// Which page of a download is asked for.
public struct PageRequest: Sendable {
  /// The device that downloads. The feed leaves out what it knows from its own uploads.
  public var remote: RemoteID
  /// Whoever reads, with the values that each parameter may take.
  public var principal: Principal
  /// What the device subscribes to now; nil: each group goes on with the subscriptions that its cursor was made with.
  public var subscriptions: ResolvedSubscriptions?
  /// The groups to feed with the client's cursor, scope digest and subscriptions, as it has them: the same on each page of
  /// a download.
  public var groups: [GroupState]
  /// Where to go on; nil at the start of a download.
  public var position: String?
  /// The page ends at about so many bytes. It has at least one row where one is left, however large that is.
  public var bytesTarget: Int
  /// Used where `position` is nil, too.
  public var compared: ComparedTables?
  /// Of rows that the device has (in scope at the cursor, and only updated since) the page may have the changed columns
  /// alone: never of tables that are scanned or compared, nor while subscriptions change. False: every row comes whole.
  public var takesParts: Bool
  /// By default no table was compared, and every row comes whole.
  public init(
    remote: RemoteID, principal: Principal, subscriptions: ResolvedSubscriptions? = nil, groups: [GroupState],
    position: String?, bytesTarget: Int, compared: ComparedTables? = nil, takesParts: Bool = false
  ) {
    self.compared = compared
    self.takesParts = takesParts
    self.remote = remote
    self.principal = principal
    self.subscriptions = subscriptions
    self.groups = groups
    self.position = position
    self.bytesTarget = bytesTarget
  }

  /// The scope in which the groups stand when the download is applied.
  public func scope(of group: GroupState) -> ReadScope { ReadScope(principal, subscriptions ?? group.subscriptions) }

  /// The scope that the group's cursor was made with, and tables of it were compared in; of a group without a cursor, the
  /// one that it is to have.
  public func scopeBefore(of group: GroupState) -> ReadScope {
    group.cursor == nil ? scope(of: group) : ReadScope(principal, group.subscriptions)
  }
}

/// Tables whose rows were compared before the download (docs/architecture/comparison.md): it says only what has changed
/// since.
public struct ComparedTables: Sendable, Hashable {
  /// The tables were read at this commit, or later.
  public var head: Commit
  /// Fed from `head`, not from their group's cursor, and never scanned.
  public var fed: Set<String>
  /// Scanned, and fed from `head`: one side has no rows of them.
  public var whole: Set<String>
  /// Of this remote's own uploads those up to this commit are left out; nil: all up to the download's beginning. What was
  /// read before an upload does not have it.
  public var ownUpTo: Int64?
  /// By default no table is fed from `head`, and all of the remote's own uploads are left out.
  public init(head: Commit, fed: Set<String> = [], whole: Set<String> = [], ownUpTo: Int64? = nil) {
    self.head = head
    self.fed = fed
    self.whole = whole
    self.ownUpTo = ownUpTo
  }
}

/// One page of a download.
public struct FeedPage: Sendable {
  /// Payload of `DownloadChunkWriter`; empty where there is nothing.
  public var bytes: [UInt8]
  /// Where the next page goes on; nil: this is the last one.
  public var position: String?
  /// On the last page: the groups with the cursors (and scope digests) that the client has after applying.
  public var groups: [GroupState]?
  /// Rows in `bytes`, those that are gone aside; for a progress bar.
  public var rows = 0
  /// How much of what the download feeds from the log has come with this page, 0 to 1; nil: it is not told.
  public var share: Double?
  /// Rows that are larger than `Limits.sentRowBytesMax`, or that have a blob above `blobBytesMax`: they do not come, and a device that had one loses it.
  public var leftOut: [RowPlace] = []
  /// On the last page: values that the reader's scope asks for, and that no row can have as they are written.
  public var unfit: [UnfitValue] = []
  /// By default it has no rows, and its share is not told.
  public init(bytes: [UInt8], position: String?, groups: [GroupState]?) {
    self.bytes = bytes
    self.position = position
    self.groups = groups
  }
}

/// A value that a scope asks for, and that the database's type of the column does not have.
public struct UnfitValue: Sendable, Hashable {
  /// The table's name.
  public var table: String
  /// The column that the scope looks at.
  public var column: String
  /// As the database calls it.
  public var type: String
  /// As the scope has it.
  public var value: Value
  /// A subscription asks for it; else the principal or its credential does.
  public var isSubscribed: Bool
  /// Takes all as they are.
  public init(table: String, column: String, type: String, value: Value, isSubscribed: Bool) {
    self.table = table
    self.column = column
    self.type = type
    self.value = value
    self.isSubscribed = isSubscribed
  }
}

/// A row, by its table and key.
public struct RowPlace: Sendable, Hashable {
  /// The table's name.
  public var table: String
  /// In the order of the table's primary key.
  public var key: Key
  /// Takes both as they are.
  public init(table: String, key: Key) {
    self.table = table
    self.key = key
  }
}

/// Counts of a server's database, for operators and metrics.
public struct ServerStats: Sendable, Hashable {
  /// The database's server ID.
  public var serverID: ServerID
  /// The newest commit.
  public var head: Commit
  /// Remote IDs that are known, deleted ones aside.
  public var remotes: Int64
  /// Entries of the change log that are kept.
  public var logEntries: Int64
  /// Bytes in staging: chunks of uploads, and blobs that no upload has used yet.
  public var stagedBytes: Int64
  /// Conflict versions that nobody has resolved.
  public var openConflicts: Int64
  /// All counts given.
  public init(
    serverID: ServerID, head: Commit, remotes: Int64, logEntries: Int64, stagedBytes: Int64, openConflicts: Int64
  ) {
    self.serverID = serverID
    self.head = head
    self.remotes = remotes
    self.logEntries = logEntries
    self.stagedBytes = stagedBytes
    self.openConflicts = openConflicts
  }
}

extension ServerStore {
  /// A store that has no better way reads all.
  public func remotes(_ query: RemoteQuery) async throws -> [RemoteRecord] {
    Array(try await remotes().filter(query.matches).sorted { $0.id.text < $1.id.text }.prefix(query.limit))
  }

  /// One remote; nil: there is none. A store that has no better way reads all.
  public func remote(_ id: RemoteID) async throws -> RemoteRecord? {
    try await remotes().first { $0.id == id }
  }
}
