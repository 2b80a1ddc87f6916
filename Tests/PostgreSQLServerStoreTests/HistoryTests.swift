#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  /// What real PostgreSQL processes do to a history, and what is found of it.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct HistoryTests {
    private let cluster: PrivateCluster
    private let desk: LogDesk
    private let database: String

    init() throws {
      cluster = try PrivateCluster.another()
      desk = try LogDesk(in: cluster)
      database = try #require(desk.settings.url.split(separator: "=").last.map(String.init))
    }

    private func write(_ id: String, _ settings: ConnectionSettings? = nil) throws -> HistoryFacts {
      let connection = try PostgreSQLConnection(settings ?? desk.settings)
      try connection.execute("INSERT INTO note (id) VALUES ('\(id)')")
      try desk.seal(connection, isFirst: true)
      return try HistoryFacts(connection)
    }

    private func finding(_ before: HistoryFacts, _ settings: ConnectionSettings) throws -> HistoryFacts.Finding {
      try before.finding(in: PostgreSQLConnection(settings)).finding
    }

    @Test("A crash and a restart change nothing")
    func crash() throws {
      let before = try write("a")
      try cluster.stop()
      try cluster.start()
      #expect(try finding(before, desk.settings) == .same)
      #expect(try finding(write("b"), desk.settings) == .same)
    }

    @Test("A standby is not ready; promoted without a loss it continues, and after a commit of its own is what it is")
    func failover() throws {
      let before = try write("a")
      let standby = try PrivateCluster(standbyOf: cluster)
      try cluster.stop()
      try standby.start()
      var settings = standby.settings(database)
      // A process that asks for a writer does not get there.
      #expect(throws: SalvorError.self) { try PostgreSQLConnection(settings) }
      settings.isWriter = false
      #expect(try finding(before, settings) == .standby)
      #expect(try DatabaseCheck(PostgreSQLConnection(settings)).problems().contains { $0.contains("standby") })
      try standby.promote()
      #expect(try finding(before, standby.settings(database)) == .continued)
      let after = try write("b", standby.settings(database))
      #expect(after.head?.number == 2)
      #expect(try finding(after, standby.settings(database)) == .same)
    }

    @Test("A standby that lacks a commit which was seen is a restore")
    func laggingStandby() throws {
      _ = try write("a")
      let standby = try PrivateCluster(standbyOf: cluster)
      let before = try write("lost")
      try cluster.stop()
      try standby.start()
      try standby.promote()
      #expect(try finding(before, standby.settings(database)) == .restored)
      // Also when it has made as many commits of its own.
      _ = try write("other", standby.settings(database))
      #expect(try finding(before, standby.settings(database)) == .restored)
    }

    @Test("One restore that several processes find is written down once, though the database has gone on in between")
    func foundTwice() throws {
      _ = try write("a")
      _ = try write("b")
      let connection = try desk.connection()
      // Each of these sealings is of an incarnation of its own.
      let first = try connection.scalar("SELECT incarnation FROM salvor_commit WHERE number = 1")?.string
      let incarnation = try #require(first.flatMap { IncarnationID($0) })
      for (last, id) in [(Int64(9), "c"), (12, "d")] {
        let seen = SideFile.Content(
          server: ServerID(from: SystemRandom()), incarnation: incarnation,
          commit: Commit(number: last, id: CommitID(from: SystemRandom())))
        try RestoreBook(connection: connection).begin(seen, now: 1)
        _ = try write(id)
      }
      #expect(try connection.rows("SELECT number, last FROM salvor_restore") == [[1, 12]])
    }

    @Test("A restored dump that lacks nothing is a copy, and an older one a restore; both go on numbering")
    func dump() throws {
      let before = try write("a")
      try cluster.restoreDump(of: database, as: "copy")
      #expect(try finding(before, cluster.settings("copy")) == .copy)
      let later = try write("b")
      #expect(try finding(later, cluster.settings("copy")) == .restored)
      #expect(try write("c", cluster.settings("copy")).head?.number == 2)
    }
  }
#endif
