#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// Tables with partitions and with tables that inherit from them: each is emptied, comes and goes by itself.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct TablePartTests: Uploading {
    let settings: ConnectionSettings
    let desk: PostgreSQLConnection
    private let hand = HandClock()

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      desk = try PostgreSQLConnection(settings)
    }

    /// A server of a table `part`, and a device that has a copy of its rows by what the log says of them.
    private final class Copy {
      let store: PostgreSQLServerStore
      private let desk: PostgreSQLConnection
      private let hand: HandClock
      private var rows: Set<Int64> = []
      private var last: Int64 = 0
      private var generation: Int64 = 0

      init(_ desk: PostgreSQLConnection, _ hand: HandClock) async throws {
        (self.desk, self.hand) = (desk, hand)
        var options = PostgreSQLServerStore.Options(url: desk.settings.url, connections: 4)
        options.clock = hand
        store = PostgreSQLServerStore(options)
        let schema = Schema(tables: [
          Table("part", primaryKey: ["id"], columns: [Column("id", .integer), Column("body", .text, nullable: true)])
        ])
        _ = try await store.open(ServerSetup(schema: schema))
        rows = try present()
      }

      func present() throws -> Set<Int64> { Set(try desk.rows("SELECT id FROM part").compactMap { $0[0].integer }) }

      /// The device synchronizes after a minute. Answers whether it got the table whole.
      func follow() async throws -> Bool {
        hand.pass(61_000)
        _ = try await store.admit(
          AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: []))
        _ = try await store.sweep()
        let now = try desk.integer("SELECT generation FROM salvor_table") ?? 0
        defer { generation = now }
        for entry in try desk.rows(
          "SELECT seq, v0::bigint FROM salvor_change WHERE seq > ?1 ORDER BY seq", .integer(last))
        {
          last = entry[0].integer ?? 0
          let id = entry[1].integer ?? 0
          if try desk.integer("SELECT 1 FROM part WHERE id = ?1", .integer(id)) == 1 {
            rows.insert(id)
          } else {
            rows.remove(id)
          }
        }
        if now != generation { rows = try present() }
        #expect(rows == (try present()))
        return now != generation
      }
    }

    @Test("A partition that is emptied, that comes empty or with rows, and that goes: devices have the rows of now")
    func partitions() async throws {
      try desk.execute(
        """
        CREATE TABLE part (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id);
        CREATE TABLE low PARTITION OF part FOR VALUES FROM (0) TO (100);
        CREATE TABLE "Hi gh" PARTITION OF part FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
        CREATE TABLE deep PARTITION OF "Hi gh" FOR VALUES FROM (100) TO (150);
        INSERT INTO part SELECT n, 'x' FROM generate_series(1, 140) n
        """)
      let copy = try await Copy(desk, hand)
      for write in [
        "INSERT INTO low VALUES (0, 'direct'); UPDATE deep SET body = 'y' WHERE id = 101; DELETE FROM deep WHERE id = 102",
        "TRUNCATE deep", "INSERT INTO part SELECT n, 'x' FROM generate_series(100, 130) n", "TRUNCATE \"Hi gh\"",
        "INSERT INTO part VALUES (105, 'z')", "TRUNCATE low, deep", "INSERT INTO part VALUES (1, 'z'), (105, 'z')",
        "TRUNCATE part", "INSERT INTO part VALUES (1, 'z'), (105, 'z')",
        // Those that come are no reason to send all.
        "CREATE TABLE next PARTITION OF part FOR VALUES FROM (200) TO (300); INSERT INTO part VALUES (201, 'n')",
        "CREATE TABLE full_one AS SELECT 300::bigint + n AS id, 'f' AS body FROM generate_series(0, 9) n",
        "ALTER TABLE full_one ADD PRIMARY KEY (id); ALTER TABLE part ATTACH PARTITION full_one FOR VALUES FROM (300) TO (400)",
        "TRUNCATE full_one, next",
      ] {
        try desk.execute(write)
        #expect(try await !copy.follow(), "\(write)")
      }
      for write in [
        "INSERT INTO part VALUES (202, 'n'), (302, 'n'); ALTER TABLE part DETACH PARTITION next", "DROP TABLE full_one",
        "ALTER TABLE low DISABLE TRIGGER USER; INSERT INTO low VALUES (50, 'unseen')",
      ] {
        if write.hasPrefix("DROP") { #expect(try await copy.follow() == false) }
        try desk.execute(write)
        #expect(try await copy.follow(), "\(write)")
        #expect(try await !copy.follow())
      }
      // What is no part any more tells nothing.
      try desk.execute("TRUNCATE next")
      #expect(try desk.integer("SELECT count(*) FROM salvor_inbox") == 0)
      await copy.store.close()
    }

    @Test("What is written into a table that inherits from a synchronized one is captured, TRUNCATE and all")
    func inheriting() async throws {
      try desk.execute(
        """
        CREATE TABLE part (id bigint PRIMARY KEY, body text);
        CREATE TABLE child (extra text, PRIMARY KEY (id)) INHERITS (part);
        INSERT INTO part VALUES (1, 'a'); INSERT INTO child VALUES (2, 'b', 'own')
        """)
      let copy = try await Copy(desk, hand)
      for write in [
        "INSERT INTO child VALUES (3, 'c', 'own')", "UPDATE child SET id = 4 WHERE id = 3",
        "UPDATE part SET body = 'all'", "DELETE FROM child WHERE id = 2", "TRUNCATE child",
        "INSERT INTO child VALUES (5, 'c', 'own')", "TRUNCATE ONLY part", "TRUNCATE part",
        "CREATE TABLE other () INHERITS (part); INSERT INTO other VALUES (9, 'o')",
      ] {
        try desk.execute(write)
        #expect(try await !copy.follow(), "\(write)")
      }
      try desk.execute("DROP TABLE other")
      #expect(try await copy.follow())
      await copy.store.close()
    }

    @Test("NaN, which SQLite does not have, travels as PostgreSQL writes it and comes back; there is one zero")
    func notANumber() async throws {
      try desk.execute(
        """
        CREATE TABLE reading (id text PRIMARY KEY, x double precision NOT NULL, y real, t text DEFAULT 'x');
        INSERT INTO reading VALUES ('a', 'NaN', 'NaN'), ('b', '-0', '-0'), ('c', '-Infinity', 1.5)
        """)
      let schema = Schema(tables: [
        Table(
          "reading", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("x", .real), Column("y", .real, nullable: true),
            Column("t", .text, nullable: true),
          ])
      ])
      let store = PostgreSQLServerStore(.init(url: settings.url, connections: 4))
      _ = try await store.open(ServerSetup(schema: schema))
      let nan = Value.text(Array("NaN".utf8))
      func row(_ id: String) async throws -> [Value] {
        try await store.rows(of: "reading").first { $0[0] == .text(Array(id.utf8)) }.map { Array($0[1...2]) } ?? []
      }
      #expect(try await row("a") == [nan, nan])
      #expect(try await row("b") == [.real(0), .real(0)])
      #expect(try await row("c") == [.real(-.infinity), .real(1.5)])
      try await store.write([
        .insert(
          table: "reading",
          values: [NamedValue("id", .text(Array("d".utf8))), NamedValue("x", nan), NamedValue("y", nan)]),
        .update(
          table: "reading", key: Key([.text(Array("a".utf8))]), values: [NamedValue("t", .text(Array("z".utf8)))]),
      ])
      #expect(try await row("d") == [nan, nan])
      #expect(
        try desk.rows("SELECT x::text, y::text FROM reading WHERE id IN ('a', 'd')")
          == [[nan, nan], [nan, nan]])
      // A device gives back what the server had sent it.
      let results = try await upload(store, [insert("reading", ["id", "x", "y", "t"], "e", nan, nan, "given back")])
      #expect(results.refused.isEmpty, "\(results.refused)")
      #expect(try await row("e") == [nan, nan])
      let other = try await upload(store, [insert("reading", ["id", "x", "y", "t"], "f", "none", .null, .null)])
      #expect(other.refused.map(\.reason) == [.notStorable])
      await store.close()
    }
  }
#endif
