import SalvorModel
import SalvorWire

/// A restore of the server's database: what was lost with it, what devices have given back since, and what is still missing
/// (semantics 10).
public struct RestoreRecord: Sendable, Hashable {
  /// What became of one remote's offers in one table: counts of offers.
  public struct Count: Sendable, Hashable {
    /// The table whose rows were offered.
    public var table: String
    /// The remote that offered them.
    public var remote: RemoteID
    /// Brought something back.
    public var healed: Int64
    /// Found all of it there, or newer.
    public var superseded: Int64
    /// Left a conflict version.
    public var conflicts: Int64
    /// Refused like any other change: a constraint, a parent that is not there, a scope.
    public var refused: Int64
    /// Refused, since the row is purged.
    public var purged: Int64
    /// By default all counts are 0.
    public init(
      table: String, remote: RemoteID, healed: Int64 = 0, superseded: Int64 = 0, conflicts: Int64 = 0,
      refused: Int64 = 0, purged: Int64 = 0
    ) {
      self.table = table
      self.remote = remote
      self.healed = healed
      self.superseded = superseded
      self.conflicts = conflicts
      self.refused = refused
      self.purged = purged
    }
  }

  /// A remote that the database knows, or knew, and that has not come since.
  public struct Absent: Sendable, Hashable {
    /// The remote that has not come since the restore.
    public var remote: RemoteID
    /// How many lost commits it made; nil: not known, since nobody could ask the database that was lost.
    public var commits: Int64?
    /// A remote, and how many lost commits it made.
    public init(remote: RemoteID, commits: Int64?) {
      self.remote = remote
      self.commits = commits
    }
    /// What it wrote is, or may be, still missing.
    public var isMissed: Bool { commits != 0 }
  }

  /// Grows with each restore.
  public var id: Int64
  /// When it was found or made, in milliseconds since 1970.
  public var time: Int64
  /// The newest commit that the database and the one before have in common.
  public var parting: Commit
  /// Of the last lost commit.
  public var lostIncarnation: IncarnationID
  /// Its number, as far as the database that was replaced, or the file beside it, remembers. Not above the parting: nothing is
  /// known to be lost.
  public var lostLast: Int64
  /// The lost commits were read from the database that was replaced: who made them is known.
  public var isExact: Bool
  /// By table and remote, in the order of both; those of whom nothing was offered are not in it.
  public var counts: [Count]
  /// Remotes that have begun a synchronization since, and were in step.
  public var seen: [RemoteID]
  /// Remotes that have not come since: what they wrote may come back with them.
  public var absent: [Absent]
  /// Lost commits that nobody has offered anything of, from and to. A newer commit of the same rows may have come back.
  public var commitsNotOffered: [ClosedRange<Int64>]
  /// How many of the lost commits were made by other programs in the server's database; nil: not known.
  public var commitsOfPrograms: Int64?
  /// Offers that the server holds.
  public var waiting: [WaitingCount] = []

  /// By default nothing has come back, and nobody has come; `waiting` is empty.
  public init(
    id: Int64, time: Int64, parting: Commit, lostIncarnation: IncarnationID, lostLast: Int64, isExact: Bool,
    counts: [Count] = [], seen: [RemoteID] = [], absent: [Absent] = [], commitsNotOffered: [ClosedRange<Int64>] = [],
    commitsOfPrograms: Int64? = nil
  ) {
    self.id = id
    self.time = time
    self.parting = parting
    self.lostIncarnation = lostIncarnation
    self.lostLast = lostLast
    self.isExact = isExact
    self.counts = counts
    self.seen = seen
    self.absent = absent
    self.commitsNotOffered = commitsNotOffered
    self.commitsOfPrograms = commitsOfPrograms
  }

  /// Offers that brought something back, of all tables and remotes.
  public var healed: Int64 { counts.reduce(0) { $0 + $1.healed } }
  /// Offers that found all of it there, or newer, of all tables and remotes.
  public var superseded: Int64 { counts.reduce(0) { $0 + $1.superseded } }
  /// Offers that left a conflict version, of all tables and remotes.
  public var conflicts: Int64 { counts.reduce(0) { $0 + $1.conflicts } }
  /// Offers that were refused like any other change, of all tables and remotes.
  public var refused: Int64 { counts.reduce(0) { $0 + $1.refused } }
  /// Offers of purged rows, of all tables and remotes.
  public var purged: Int64 { counts.reduce(0) { $0 + $1.purged } }
  /// How many offers the server holds.
  public var waitingOffers: Int64 { waiting.reduce(0) { $0 + $1.count } }
  /// How many commits are known to be lost; 0: none.
  public var lostCommits: Int64 { max(0, lostLast - parting.number) }

  /// As the administration and `salvor server restores --json` answer.
  public var json: JSONValue {
    [
      "id": .integer(id), "time": .integer(time), "parting": parting.json,
      "lost": [
        "incarnation": .string(lostIncarnation.text), "commits": .integer(lostCommits),
        "first": lostCommits > 0 ? .integer(parting.number + 1) : .null,
        "last": lostCommits > 0 ? .integer(lostLast) : .null, "exact": .bool(isExact),
        "ofPrograms": commitsOfPrograms.map(JSONValue.integer) ?? .null,
      ],
      "healed": .integer(healed), "superseded": .integer(superseded), "conflicts": .integer(conflicts),
      "refused": .integer(refused), "purged": .integer(purged),
      "offers": .array(
        counts.map { count in
          [
            "table": .string(count.table), "remote": .string(count.remote.text), "healed": .integer(count.healed),
            "superseded": .integer(count.superseded), "conflicts": .integer(count.conflicts),
            "refused": .integer(count.refused), "purged": .integer(count.purged),
          ]
        }), "waiting": .array(waiting.map(\.json)), "seen": .array(seen.map { .string($0.text) }),
      "missing": [
        "remotes": .array(
          absent.map { absent in
            ["remote": .string(absent.remote.text), "commits": absent.commits.map(JSONValue.integer) ?? .null]
          }),
        "commits": .array(
          commitsNotOffered.map { .array([.integer($0.lowerBound), .integer($0.upperBound)]) }),
      ],
    ]
  }
}

/// A server's store that writes down when it was restored, and what comes back.
public protocol RestoreReportingServerStore: HealingServerStore {
  /// The newest `limit` restores, newest first. Works without `open`.
  func restores(limit: Int) async throws -> [RestoreRecord]

  /// How many offers wait of restores that nothing told of (`WaitingCount.restore` 0). Works without `open`.
  func unnamedWaiting() async throws -> Int64
}

/// What became of offers that waited, and that an operator has accepted.
public struct AcceptedOffers: Sendable, Hashable {
  /// How many offers were accepted.
  public var accepted: Int64
  /// Those that brought something back; nil: nobody counts, since no restore was written down.
  public var healed: Int64?
  /// Those that left a conflict version: rows that are still there need theirs, or somebody has written them since.
  public var conflicts: Int64?
  /// Those that were refused like any other change.
  public var refused: Int64?

  /// As the administration and `salvor server restores accept --json` answer.
  public var json: JSONValue {
    [
      "accepted": .integer(accepted), "healed": healed.map(JSONValue.integer) ?? .null,
      "conflicts": conflicts.map(JSONValue.integer) ?? .null, "refused": refused.map(JSONValue.integer) ?? .null,
    ]
  }
}

extension HealingServerStore {
  /// Settles offers that wait for the operator's consent, and says what became of them.
  public func accept(_ query: WaitingQuery) async throws -> AcceptedOffers {
    let before = try await record(query.restore)
    var done = AcceptedOffers(accepted: try await acceptOffers(query))
    guard let before, let after = try await record(query.restore) else { return done }
    func count(_ column: KeyPath<RestoreRecord.Count, Int64>) -> Int64 {
      func sum(_ record: RestoreRecord) -> Int64 {
        record.counts.filter {
          (query.table == nil || $0.table == query.table) && (query.remote == nil || $0.remote == query.remote)
        }.reduce(0) { $0 + $1[keyPath: column] }
      }
      return sum(after) - sum(before)
    }
    (done.healed, done.conflicts, done.refused) = (count(\.healed), count(\.conflicts), count(\.refused))
    return done
  }

  private func record(_ id: Int64?) async throws -> RestoreRecord? {
    try await (self as? any RestoreReportingServerStore)?.restores(limit: 1000).first { $0.id == id }
  }
}
