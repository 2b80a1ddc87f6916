#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore
  @testable import ServerStoreSupport

  /// Triggers of the application's that set something for their transaction, or that fail: each is a matter of its own row alone.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct TriggerTests: Uploading {
    let settings: ConnectionSettings
    let desk: PostgreSQLConnection

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      desk = try PostgreSQLConnection(settings)
      try desk.execute("SET search_path = public")
    }

    private static let set = [
      "PERFORM set_config('TimeZone', 'Asia/Tokyo', true)", "PERFORM set_config('search_path', 'nowhere', true)",
      "SET LOCAL bytea_output = escape", "SET LOCAL session_replication_role = replica",
      "SET LOCAL ROLE salvor_test_guest",
    ]

    @Test("What a trigger sets for its transaction holds for no other row of the upload", arguments: set)
    func settings(statement: String) async throws {
      try desk.execute(
        """
        DO $$BEGIN CREATE ROLE salvor_test_guest; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END$$;
        CREATE TABLE org (id text PRIMARY KEY, n bigint);
        CREATE TABLE event (id text PRIMARY KEY, at timestamptz, data bytea, n bigint);
        INSERT INTO org VALUES ('o', 1);
        INSERT INTO event VALUES ('e', '2026-01-01 00:00:00+00', '\\x00ff5c', 1);
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \(statement); RETURN NEW; END$$;
        CREATE TRIGGER own BEFORE UPDATE ON org FOR EACH ROW EXECUTE FUNCTION own()
        """)
      let store = try await open(
        table("org", .text, Column("n", .integer, nullable: true)),
        table(
          "event", .text, Column("at", .timestamp, nullable: true), Column("data", .blob, nullable: true),
          Column("n", .integer, nullable: true)))
      let head = try await store.sweep().number
      // Another device was faster in another column: the row is looked at.
      _ = try await upload(store, [update("event", "n", "e", .integer(1), .integer(2))])
      let results = try await upload(
        store,
        [
          update("org", "n", "o", .integer(1), .integer(2)),
          update("event", "at", "e", "2026-01-01 00:00:00+00", "2026-02-02 00:00:00+00"),
          update("event", "data", "e", .blob([0, 0xFF, 0x5C]), .blob([0x5C, 0, 7, 0xFF])),
          insert("event", ["id", "at", "data", "n"], "new", "2026-03-03 00:00:00+00", .blob([1, 0x5C]), .null),
        ], made: head)
      #expect(results.refused.isEmpty && results.conflicts == 0, "\(results.refused)")
      #expect(results.acceptedRequests == 4)
      #expect(
        try desk.rows(
          "SELECT id, encode(data, 'hex'), at = CASE id WHEN 'e' THEN timestamptz '2026-02-02 00:00:00+00' ELSE '2026-03-03 00:00:00+00' END FROM event ORDER BY id"
        )
          == [["e", "5c0007ff", .integer(1)], ["new", "015c", .integer(1)]])
      // Each row is in the log: others get it.
      _ = try await store.sweep()
      let logged = try desk.rows("SELECT DISTINCT v0 FROM salvor.salvor_change WHERE v0 IN ('new', 'e') ORDER BY 1")
      #expect(logged == [["e"], ["new"]])
      await store.close()
    }

    private static let failing = [
      "NEW.gone = trim('x')", "PERFORM currval('counter')", "PERFORM pg_read_file('/nowhere')",
      "EXECUTE 'EXECUTE nothing'", "EXECUTE 'SAVEPOINT a'", "EXECUTE 'VACUUM'", "EXECUTE 'ALTER TABLE item ADD x text'",
      "PERFORM nothing()",
    ]

    @Test("A trigger's function that cannot run refuses its row, and is named; other rows go on", arguments: failing)
    func fails(statement: String) async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        CREATE SEQUENCE counter;
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.body = 'bad' THEN \(statement); END IF; RETURN NEW; END$$;
        CREATE TRIGGER own BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION own()
        """)
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      let results = try await upload(
        store,
        [
          insert("item", ["id", "body"], "1", "good"), insert("item", ["id", "body"], "2", "bad"),
          insert("item", ["id", "body"], "3", "good"),
        ])
      #expect(results.refused.map(\.counter) == [2])
      #expect(results.refused.first?.message.contains("own() failed") == true, "\(results.refused)")
      #expect(try rows("SELECT id FROM item ORDER BY id") == ["1", "3"])
      await store.close()
    }

    @Test("A table whose writes PostgreSQL refuses from every device is named before the start")
    func refusedWrites() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        CREATE RULE audit AS ON INSERT TO item DO ALSO NOTHING;
        CREATE TABLE other (id text PRIMARY KEY, body text);
        ALTER TABLE other REPLICA IDENTITY NOTHING;
        CREATE PUBLICATION everything FOR TABLE other
        """)
      let body = Column("body", .text, nullable: true)
      let error = await #expect(throws: SalvorError.self) {
        _ = try await open(table("item", .text, body), table("other", .text, body))
      }
      for word in ["item: it has the rule audit", "other: the publication everything"] {
        #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
      }
    }
  }
#endif
