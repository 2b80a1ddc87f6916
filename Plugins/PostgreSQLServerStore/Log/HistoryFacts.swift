#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What tells one history of a database from another. A process remembers the facts of its last look, and compares at each open, at
  /// each reconnect, and every few seconds.
  struct HistoryFacts: Sendable, Hashable {
    /// Of the cluster, drawn by `initdb`.
    var system: String
    /// Grows by one with each promotion and each recovery to a point in time; nil: of a standby.
    var timeline: Int64?
    /// Of the database within the cluster; another one after a dump is restored.
    var database: Int64
    var isStandby: Bool
    /// The newest commit.
    var head: Commit?
    /// Of that commit.
    var incarnation: IncarnationID?
    /// The last timeline that a person has said of: this database counts, not that one (`takeHistory`).
    var over: Int64 = 0

    /// What the facts of now mean to who remembers those of before.
    enum Finding: Sendable, Hashable {
      /// The same history goes on: a restart, a crash, an upgrade of PostgreSQL.
      case same
      /// The same history under another identity: a restored dump or a clone that lacks nothing; whether the other one lives on nobody
      /// can know here. The operator is told.
      case copy
      /// Another history from here on, and nothing of the old one is missing: a failover. A new incarnation, and no announcement.
      case continued
      /// A commit that was seen is missing: a lagging standby, a point in time, an old dump. A new incarnation, announced as restored.
      case restored
      /// It takes no writes.
      case standby
      /// A later timeline of the same cluster was seen: this is the primary that another one was promoted over, or its files were put back
      /// from before that. A person has to say which one counts.
      case overtaken
    }

    /// Whether this one is older than a timeline of its cluster, and nobody has said that it counts all the same.
    func isOvertaken(by timeline: Int64?, of system: String) -> Bool {
      guard system == self.system, let timeline, let own = self.timeline else { return false }
      return own < timeline && over < timeline
    }

    /// What is told to everybody then.
    func overtaken(by timeline: Int64) -> SalvorError {
      SalvorError(
        .storageBusy,
        "This database is of timeline \(self.timeline ?? 0), and timeline \(timeline) was promoted over it. Both may take writes, so nobody is served here. Stop this one, and name the promoted one in url. If this one is to count: salvor server adopt --over \(timeline).",
        context: ["timeline": "\(timeline)"])
    }

    /// - Parameter knows: whether the database of now still has a commit.
    func finding(since before: HistoryFacts, knows: (Commit) throws -> Bool) rethrows -> Finding {
      if isStandby { return .standby }
      if isOvertaken(by: before.timeline, of: before.system) { return .overtaken }
      if let seen = before.head, try !knows(seen) { return .restored }
      if system == before.system && database == before.database {
        return timeline == before.timeline || before.timeline == nil ? .same : .continued
      }
      return .copy
    }
  }

  extension HistoryFacts {
    init(_ connection: PostgreSQLConnection) throws {
      let row = try connection.rows(
        """
        SELECT (SELECT system_identifier FROM pg_control_system())::text, pg_is_in_recovery(),
          (SELECT oid FROM pg_database WHERE datname = current_database())::bigint
        """
      ).first
      guard let row, let system = row[0].string, let database = row[2].integer else {
        throw SalvorError(.storage, "PostgreSQL does not say which cluster it is. Use PostgreSQL 13 or later.")
      }
      self.init(system: system, timeline: nil, database: database, isStandby: row[1].integer == 1, head: nil)
      // Of the log that is written now: the control file says it only after the next checkpoint.
      if !isStandby,
        let file = try connection.scalar("SELECT pg_walfile_name(pg_current_wal_lsn())")?.string
      {
        timeline = Int64(file.prefix(8), radix: 16)
      }
      if try connection.integer(
        "SELECT to_regclass(?1) IS NOT NULL", .text(Array("\(quoted(connection.settings.schema)).salvor_commit".utf8)))
        == 1
      {
        let newest = "SELECT number, id, incarnation FROM salvor_commit ORDER BY number DESC LIMIT 1"
        if let row = try connection.rows(newest).first, let id = row[1].string.flatMap({ CommitID($0) }) {
          head = Commit(number: row[0].integer ?? 0, id: id)
          incarnation = row[2].string.flatMap { IncarnationID($0) }
        }
        let told = try connection.scalar("SELECT value FROM salvor_server WHERE key = '\(Self.overKey)'")?.string
        over = told.flatMap { Int64($0) } ?? 0
      }
    }

    /// Of `salvor_server`: `over`.
    static let overKey = "over-timeline"

    /// The same database under another identity: nobody can know here whether the other one is still served.
    static let moved =
      "The database has moved to another cluster, or was restored from a dump. If the old one lives on as well, give one of them another server ID: salvor server adopt --new-id."

    /// Writes down where the database stands. True: it stood elsewhere until now.
    func noteCluster(_ connection: PostgreSQLConnection) throws -> Bool {
      let now = "\(system)/\(database)"
      let before = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'cluster'")?.string
      guard before != now else { return false }
      try connection.run(
        "INSERT INTO salvor_server (key, value) VALUES ('cluster', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
        .text(now))
      return before != nil
    }

    /// What became of the database that `connection` reaches since these facts.
    func finding(in connection: PostgreSQLConnection) throws -> (finding: Finding, now: HistoryFacts) {
      let now = try HistoryFacts(connection)
      let finding = try now.finding(since: self) { commit in
        guard now.head != nil else { return false }
        if try connection.isThere(
          "SELECT 1 FROM salvor_commit WHERE number = \(commit.number) AND id = '\(commit.id.text)'")
        {
          return true
        }
        // What was trimmed is gone, too.
        return try !connection.isThere("SELECT 1 FROM salvor_commit WHERE number = \(commit.number)")
          && commit.number <= FeedPageMaker.trimmed(connection)
      }
      return (finding, now)
    }
  }
#endif
