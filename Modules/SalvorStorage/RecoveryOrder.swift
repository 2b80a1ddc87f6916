import SalvorModel

/// Where a group's bases begin to differ from the server's (docs/architecture/recovery.md).
public struct GroupStart: Sendable, Hashable {
  /// The group's name in the schema.
  public var name: String
  /// The commit that both sides have made and from which the feed goes on. Nil: nothing is shared, or it is no longer
  /// kept; the group's tables are compared by digest.
  public var commit: Commit?
  /// Where a group starts; a nil commit has its tables compared by digest.
  public init(name: String, commit: Commit?) {
    self.name = name
    self.commit = commit
  }
}

/// What a recovery makes of the database, in one transaction (semantics 9).
public struct RecoveryOrder: Sendable, Hashable {
  /// What becomes of unsynced requests.
  public enum Requests: String, Sendable, CaseIterable {
    /// They stay in the queue, merged by the rules.
    case keep
    /// They leave it, and are in the archive as kept entries.
    case discard
  }

  /// What is made anew.
  public enum Rebuild: String, Sendable, CaseIterable {
    /// Rows are changed where they differ.
    case nothing
    /// The synchronized tables, from the schema; client-only tables, subscriptions and settings stay.
    case synchronizedTables = "synchronized-tables"
    /// Everything: client-only tables, subscriptions and settings, too.
    case everything
  }

  /// What a row means that the server does not have and for which it sent no tombstone.
  public enum Absence: String, Sendable, CaseIterable {
    /// The server lost it (semantics 6, *lost is not deleted*).
    case lost
    /// The same history: its tombstone is no longer kept.
    case deleted
  }

  /// Of this recovery. A second call with the ID of one that is done changes nothing and answers with its report.
  public var id: String
  /// Why the device recovers.
  public var reason: RecoveryReason
  /// The name of the strategy module that runs, for the report.
  public var strategy: String
  /// What becomes of unsynced requests.
  public var requests: Requests
  /// The tables that are rebuilt from the server's rows; the others are changed where they differ.
  public var rebuild: Rebuild
  /// What it means where the server has no row and no tombstone.
  public var absence: Absence
  /// Where the fetch of each group began.
  public var starts: [GroupStart]
  /// The groups as they are after applying what is staged.
  public var groups: [GroupState]
  /// S: the new P.
  public var previous: SequenceID?
  /// The commit list and the requests' versions are cut to it; nil: nothing is shared.
  public var shared: Int64?
  /// Taken instead of the database's own; nil: it keeps its own.
  public var remoteID: RemoteID?
  /// The server that the database belongs to from now on.
  public var server: ServerID
  /// What the server synchronizes now, where that differs: the tables are made anew from it. Only with a rebuild.
  public var config: SyncConfig?
  /// The share of a table's rows that may go, tables under 20 rows aside; more throws `mass-deletion`. Nil: no guard.
  public var removedShareMax: Double?
  /// Whether before-images of what is changed are kept; false where a copy was made.
  public var keepsBeforeImages: Bool
  /// The copy that was made before, for the report.
  public var copy: String?
  /// Which lost rows become offers (semantics 10). The others are kept in the archive, and may be offered under another setting.
  public var heal: HealMode
  /// The server may have settled what waits here, and remembers it no more (semantics 9, client-rewound): it leaves the queue, whatever
  /// `requests` says.
  public var isOutcomeUnknown = false
  /// The server takes offers. Where it does not, nothing is offered, now or later.
  public var takesOffers = true
  /// The server's incarnations that made commits after the shared one: versions of the rows that come are of them.
  public var incarnations: [Incarnation]

  /// By default the tables stay as the schema has them, no copy was made, lost rows are not offered, and no incarnation is learnt.
  public init(
    id: String, reason: RecoveryReason, strategy: String, requests: Requests, rebuild: Rebuild, absence: Absence,
    starts: [GroupStart], groups: [GroupState], previous: SequenceID?, shared: Int64?, remoteID: RemoteID?,
    server: ServerID, config: SyncConfig? = nil, removedShareMax: Double?, keepsBeforeImages: Bool,
    copy: String? = nil, heal: HealMode = .off, incarnations: [Incarnation] = []
  ) {
    self.heal = heal
    self.incarnations = incarnations
    self.id = id
    self.reason = reason
    self.strategy = strategy
    self.requests = requests
    self.rebuild = rebuild
    self.absence = absence
    self.starts = starts
    self.groups = groups
    self.previous = previous
    self.shared = shared
    self.remoteID = remoteID
    self.server = server
    self.config = config
    self.removedShareMax = removedShareMax
    self.keepsBeforeImages = keepsBeforeImages
    self.copy = copy
  }
}

extension RecoveryOrder {
  /// What the archive says of the requests that leave the queue; nil: they stay.
  public var discarded: (reason: String, message: String)? {
    if isOutcomeUnknown {
      return (
        ErrorCode.outcomeUnknown.rawValue,
        "The database was put back from a copy that is older than what the server remembers of uploads: this change may have been sent and accepted before. Compare it with the row; reapply it, or delete the entry."
      )
    }
    return requests == .discard
      ? ("discarded", "A recovery discarded this change. Reapply it, or delete the entry.") : nil
  }

  /// The requests that wait leave the queue, or their tables are rebuilt.
  public var givesUpRequests: Bool { discarded != nil || rebuild != .nothing }

  /// The order for a device that holds versions which the server has lost before, as those after the shared commit. Where the history is the same,
  /// they are the only ones.
  public var withLostVersions: RecoveryOrder {
    guard absence == .deleted else { return self }
    var order = self
    (order.absence, order.shared) = (.lost, .max - 1)
    return order
  }
}

/// What a recovery did, or would do.
public struct RecoveryReport: Sendable, Hashable {
  /// The ID of the order (`RecoveryOrder.id`).
  public var id: String
  /// Milliseconds since 1970.
  public var time: Int64
  /// Why the device recovered.
  public var reason: RecoveryReason
  /// The name of the strategy module that ran.
  public var strategy: String
  /// How many requests and rows it was about.
  public var counts: RecoveryCounts
  /// The backup's ID; nil: nothing had to be kept.
  public var backup: String?
  /// Groups that came as files.
  public var snapshots: Int64
  /// By default all counts are 0, nothing had to be kept, and no group came as a file.
  public init(
    id: String, time: Int64, reason: RecoveryReason, strategy: String, counts: RecoveryCounts = RecoveryCounts(),
    backup: String? = nil, snapshots: Int64 = 0
  ) {
    self.snapshots = snapshots
    self.id = id
    self.time = time
    self.reason = reason
    self.strategy = strategy
    self.counts = counts
    self.backup = backup
  }
}

/// How many requests and rows a recovery was about.
public struct RecoveryCounts: Sendable, Hashable {
  /// Requests that stay in the queue as they are.
  public var kept: Int64 = 0
  /// Requests that stay in the queue, on another base than they were made on.
  public var merged: Int64 = 0
  /// Requests that left the queue for the archive.
  public var discarded: Int64 = 0
  /// Requests, offers too, that cannot stand beside the server's rows: they are in the archive, and come back when they can.
  public var displaced: Int64 = 0
  /// Rows written and removed.
  public var upserts: Int64 = 0
  /// Rows removed.
  public var deletes: Int64 = 0
  /// Rows that the server acknowledged and lost.
  public var lost: Int64 = 0
  /// Of these, what is offered to the server again.
  public var offered: Int64 = 0
  /// What is in the archive in the place of an offer, by the reason.
  public var unoffered: [Unoffered: Int64] = [:]
  /// Client-only rows, subscriptions and settings that the strategy does not keep.
  public var givenUp: Int64 = 0
  /// All counts are 0.
  public init() {}
}

/// Why a row that the server acknowledged and lost is not offered to it again.
public enum Unoffered: String, Sendable, CaseIterable {
  /// The device's `heal` is `off`.
  case off = "heal-off"
  /// The table's `heal` is `off`.
  case tableOff = "table-heal-off"
  /// This device did not write it by a lost commit, and `heal` is not `all`.
  case notOwn = "not-own"
  /// The server alone writes the table.
  case serverMaintained = "server-maintained"
  /// The table was written while Salvor's triggers were away: what the row was may be what somebody wrote here since.
  case unproven = "triggers-were-away"
  /// Changes that wait here, or were refused, have made something else of the row.
  case changedHere = "changed-here"
  /// The server has the row, and this device does not see it any more.
  case outOfScope = "out-of-scope"
  /// Nobody knows by which lost commit it was written.
  case unknownVersion = "unknown-version"
  /// The table was rebuilt with other columns.
  case otherColumns = "other-columns"
  /// The server takes no offers.
  case notTaken = "server-takes-none"
  /// The rows are another server's.
  case otherServer = "another-server"
}

/// One line of a recovery's report.
public struct RecoveryItem: Sendable, Hashable {
  /// What became of a request or a row.
  public enum Fate: String, Sendable, CaseIterable {
    /// A request that stays in the queue as it was.
    case kept
    /// A request that stays in the queue, on another base.
    case merged
    /// A request that left the queue for the archive.
    case discarded
    /// A request, or an offer, that cannot stand beside the server's rows: it is in the archive, and comes back when it can.
    case displaced
    /// A row that the server acknowledged and lost.
    case lost
    /// A row that the server acknowledged and lost: a request offers it again.
    case offered
    /// A lost row that a request needs, and that is sent again with it.
    case remade
    /// A client-only row kept aside because its parent went.
    case aside
    /// A client-only row, a subscription or a setting (of the table `salvor_subscription` or `salvor_setting`) that the
    /// strategy does not keep; or a client-only row that its own `onDelete` took with its parent (reason `parent-gone`). The row's values are in the copy that was made before.
    case givenUp = "given-up"
  }

  /// What became of it.
  public var fate: Fate
  /// Nil for a row.
  public var request: RequestID?
  /// The row's table; for a subscription or a setting `salvor_subscription` or `salvor_setting`.
  public var table: String
  /// The row's primary key; the name of a subscription or a setting.
  public var key: Key
  /// What the change does to the row. Nil: the line is about a row as a whole, not about a change.
  public var operation: Operation?
  /// The values before the change: the changed columns of an update, all of a delete. Empty for an insert.
  public var before: [NamedValue]
  /// The values that the change gives, or the row that was put aside. Empty for a delete.
  public var after: [NamedValue]
  /// Why; names only.
  public var reason: String?
  /// By default no reason is given.
  public init(
    fate: Fate, request: RequestID?, table: String, key: Key, operation: Operation?, before: [NamedValue],
    after: [NamedValue], reason: String? = nil
  ) {
    self.fate = fate
    self.request = request
    self.table = table
    self.key = key
    self.operation = operation
    self.before = before
    self.after = after
    self.reason = reason
  }
}

/// A copy or the before-images that a recovery keeps (semantics 9, *backup before anything is touched*).
public struct Backup: Sendable, Hashable {
  /// What a backup has in it.
  public enum Content: String, Sendable, CaseIterable {
    /// The whole database.
    case copy
    /// What one recovery changed.
    case beforeImages = "before-images"
  }
  /// Of before-images the recovery's ID; of a copy the one that it was asked for with.
  public var id: String
  /// Milliseconds since 1970.
  public var time: Int64
  /// Whether it is a copy of all, or what one recovery changed.
  public var content: Content
  /// Why it was made, for people.
  public var reason: String
  /// The size of the file.
  public var bytes: Int64
  /// Where the file is, on the device.
  public var path: String
  /// The description of a backup that is there.
  public init(id: String, time: Int64, content: Content, reason: String, bytes: Int64, path: String) {
    self.id = id
    self.time = time
    self.content = content
    self.reason = reason
    self.bytes = bytes
    self.path = path
  }
}

/// Keys, or keys with digests of their rows, that the server is asked about: one line of the body of
/// `POST /v1/recovery/TOKEN/rows`.
public struct RowQuery: Sendable, Hashable {
  /// Part of a table, in key order (binary order, whatever the columns' collations).
  public struct Range: Sendable, Hashable {
    /// Exclusive; nil: from the table's start.
    public var after: Key?
    /// Inclusive; nil: to the table's end.
    public var last: Key?
    /// The keys after `after`, up to `last`.
    public init(after: Key?, last: Key?) {
      self.after = after
      self.last = last
    }
  }
  /// The table's name in the server's schema.
  public var table: String
  /// Rows in it whose keys are not named are sent, too; nil: only the named ones.
  public var range: Range?
  /// Primary keys of rows that are asked about; at most `RecoveryLimits.keysMax` in all queries of one request.
  public var keys: [Key]
  /// For each key the digest of the row that the asker has; a row with this digest is not sent. Empty: all are sent.
  public var digests: [String]
  /// By default only the named rows are asked about, and each is sent.
  public init(table: String, range: Range? = nil, keys: [Key], digests: [String] = []) {
    self.table = table
    self.range = range
    self.keys = keys
    self.digests = digests
  }
}

/// Digests over ranges of a table's rows that a device asks for: one line of the body of `POST …/ranges`.
public struct RangeQuestion: Sendable, Hashable {
  /// The table's name in the server's schema.
  public var table: String
  /// Which rows; the whole table where both ends are nil.
  public var range: RowQuery.Range
  /// Rows of one range, but the last.
  public var rowsPerRange: Int
  /// By default the whole table, in ranges of `RecoveryLimits.rowsPerRange` rows.
  public init(
    table: String, range: RowQuery.Range = RowQuery.Range(after: nil, last: nil),
    rowsPerRange: Int = RecoveryLimits.rowsPerRange
  ) {
    self.table = table
    self.range = range
    self.rowsPerRange = rowsPerRange
  }
}

/// A range of a table's rows in key order (binary order, whatever the columns' collations): those after the range before
/// it, up to `last`.
public struct RangeDigest: Sendable, Hashable {
  /// Nil: to the table's end; the last one of a question ends where that does.
  public var last: Key?
  /// How many rows the range has.
  public var count: Int64
  /// The sum of the rows' digests (`RowDigest`), which does not depend on the order.
  public var digest: String
  /// What one range of rows comes to.
  public init(last: Key?, count: Int64, digest: String) {
    self.last = last
    self.count = count
    self.digest = digest
  }
}

/// Ranges of one table, and where to go on.
public struct RangePage: Sendable, Hashable {
  /// The columns that a row's digest is made of, in their order.
  public var columns: [String]
  /// In key order, without gaps; the first follows the start of the question's range.
  public var ranges: [RangeDigest]
  /// False: the last range ends at a key, and more rows follow it.
  public var isLast: Bool
  /// One answer to a `RangeQuestion`.
  public init(columns: [String], ranges: [RangeDigest], isLast: Bool) {
    self.columns = columns
    self.ranges = ranges
    self.isLast = isLast
  }
}
