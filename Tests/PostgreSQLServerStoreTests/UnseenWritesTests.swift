#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// What no trigger sees, or sees otherwise, and what Salvor's own tables find hard to hold: devices get the rows as they are all the same.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct UnseenWritesTests {
    private let settings: ConnectionSettings
    private let desk: PostgreSQLConnection
    private let hand = HandClock()
    private let item = Table(
      "item", primaryKey: ["id"],
      columns: [Column("id", .text), Column("body", .text, nullable: true), Column("owner", .text, nullable: true)])

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      desk = try PostgreSQLConnection(settings)
      try desk.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE public.item (id text PRIMARY KEY, body text, owner text)"
      )
    }

    private func open(_ tables: [Table]? = nil, url: String? = nil) async throws -> PostgreSQLServerStore {
      // No test of how long somebody waits.
      var options = PostgreSQLServerStore.Options(
        url: url ?? settings.url, connections: 4, lockTimeoutMilliseconds: 600_000)
      options.heldLockTimeoutMilliseconds = 600_000
      options.clock = hand
      let store = PostgreSQLServerStore(options)
      do { _ = try await store.open(ServerSetup(schema: Schema(tables: tables ?? [item]))) } catch {
        await store.close()
        throw error
      }
      return store
    }

    /// For a table of this database.
    private func untilSomebodyWaits() async throws {
      let waiting =
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
        + "WHERE NOT l.granted AND l.relation IS NOT NULL AND d.datname = current_database()"
      while try desk.integer(waiting) == 0 { try await Task.sleep(for: .milliseconds(2)) }
    }

    /// A device begins after more than a minute. Answers how often the table has come whole.
    private func look(_ store: PostgreSQLServerStore) async throws -> Int64 {
      hand.pass(61_000)
      _ = try await store.admit(
        AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: []))
      return try #require(try store.view().catalog.table("item")).generation
    }

    @Test(
      "A column that another one takes the name of is found, the group comes whole once, and what is written there afterwards is seen (11.4)",
      arguments: ["", "PARTITION BY RANGE (id)", "own trigger", "inherited"])
    func replacedColumn(kind: String) async throws {
      if kind.hasPrefix("PARTITION") {
        try desk.execute(
          """
          DROP TABLE item; CREATE TABLE public.item (id text PRIMARY KEY, body text, owner text) \(kind);
          CREATE TABLE low PARTITION OF item FOR VALUES FROM (MINVALUE) TO ('m'); CREATE TABLE high PARTITION OF item DEFAULT
          """)
      } else if kind == "own trigger" {
        try desk.execute(
          """
          CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$;
          CREATE TRIGGER own BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION own()
          """)
      } else if kind == "inherited" {
        try desk.execute("CREATE TABLE low (PRIMARY KEY (id)) INHERITS (item)")
      }
      let (one, other) = (try await open(), try await open())
      try desk.execute("INSERT INTO \(kind == "inherited" ? "low" : "item") VALUES ('a', 'old')")
      #expect(try await look(one) == 0)
      try desk.execute(
        """
        ALTER TABLE item ADD body2 text; UPDATE item SET body2 = 'new';
        ALTER TABLE item RENAME body TO body_old; ALTER TABLE item RENAME body2 TO body
        """)
      for _ in 0..<2 { #expect(try await look(one) == 1) }
      #expect(try await look(other) == 1)
      let head = try await one.sweep().number
      try desk.execute("UPDATE item SET body = 'newer'")
      #expect(try await one.sweep().number == head + 1)
      for store in [one, other] { await store.close() }
      let again = try await open()
      #expect(try #require(again.view().catalog.table("item")).generation == 1)
      await again.close()
      // Between two starts, too; a column that devices do not have may be what it likes.
      try desk.execute("ALTER TABLE item RENAME body TO body_older; ALTER TABLE item RENAME body_old TO body")
      let later = try await open()
      #expect(try #require(later.view().catalog.table("item")).generation == 2)
      await later.close()
      try desk.execute(
        "ALTER TABLE item ADD more text; ALTER TABLE item DROP body_older; ALTER TABLE item RENAME more TO body_older")
      let last = try await open()
      #expect(try #require(last.view().catalog.table("item")).generation == 2)
      await last.close()
    }

    @Test(
      "Triggers that were disabled and enabled again between two looks are found, and the group comes whole once",
      arguments: [false, true])
    func disabledForAWhile(inParts: Bool) async throws {
      if inParts {
        try desk.execute(
          """
          DROP TABLE item; CREATE TABLE public.item (id text PRIMARY KEY, body text, owner text) PARTITION BY RANGE (id);
          CREATE TABLE low PARTITION OF item FOR VALUES FROM (MINVALUE) TO ('m'); CREATE TABLE high PARTITION OF item DEFAULT
          """)
      }
      let (one, other) = (try await open(), try await open())
      #expect(try await look(one) == 0)
      let table = inParts ? "low" : "item"
      try desk.execute(
        """
        ALTER TABLE \(table) DISABLE TRIGGER ALL; INSERT INTO \(table) VALUES ('a', 'unseen'); ALTER TABLE \(table) ENABLE TRIGGER ALL
        """)
      for _ in 0..<2 { #expect(try await look(one) == 1) }
      // So that a device is not sent the group whole again by each process.
      #expect(try await look(other) == 1)
      for store in [one, other] { await store.close() }
      try desk.execute("ALTER TABLE \(table) DISABLE TRIGGER ALL; ALTER TABLE \(table) ENABLE TRIGGER ALL")
      for _ in 0..<2 {
        let store = try await open()
        #expect(try store.view().catalog.table("item")?.generation == 2)
        await store.close()
      }
    }

    @Test("Rows that were taken back while the triggers were away are refused, not sent whole")
    func takenBack() async throws {
      let store = try await open()
      try desk.execute("INSERT INTO item VALUES ('a', 'one')")
      _ = try await store.sweep()
      try await store.proveRows(store.view())
      try desk.execute(
        "ALTER TABLE item DISABLE TRIGGER USER; UPDATE item SET body = 'none'; ALTER TABLE item ENABLE TRIGGER USER")
      let error = await #expect(throws: SalvorError.self) { try await look(store) }
      #expect(
        error?.code == .storageBusy && error?.message.contains("item (1)") == true, "\(String(describing: error))")
      _ = try await store.takeRows()
      for _ in 0..<2 { #expect(try await look(store) == 1) }
      await store.close()
    }

    @Test(
      "What a TRUNCATE takes along that its transaction does not see comes out with the group, which comes whole once")
    func truncated() async throws {
      let store = try await open()
      let other = try PostgreSQLConnection(settings)
      for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let before = try await look(store)
        try other.execute("BEGIN ISOLATION LEVEL \(isolation); SELECT count(*) FROM item")
        try desk.execute("INSERT INTO item VALUES ('\(isolation)', 'later')")
        _ = try await store.sweep()
        try other.execute("TRUNCATE item; INSERT INTO item VALUES ('n', 'new'); COMMIT")
        let expected = isolation == "READ COMMITTED" ? before : before + 1
        for _ in 0..<2 { #expect(try await look(store) == expected, "\(isolation)") }
      }
      #expect(try await store.rows(of: "item").count == 1)
      await store.close()
    }

    @Test(
      "A child that a TRUNCATE takes while its parent's move out of the scope is numbered leaves with its parent",
      arguments: [false, true])
    func truncatedWhileNumbering(inParts: Bool) async throws {
      try desk.execute(
        """
        CREATE TABLE public.part (id text, item text REFERENCES item, PRIMARY KEY (id))\(inParts ? " PARTITION BY RANGE (id);" : "")
        \(inParts ? "CREATE TABLE part_rest PARTITION OF part DEFAULT" : "");
        INSERT INTO item VALUES ('i', 'x', 'anna'); INSERT INTO part VALUES ('p', 'i')
        """)
      let scoped = Table(
        "item", primaryKey: ["id"], columns: item.columns, scope: [ScopeColumn(column: "owner", source: .principal)])
      let part = Table(
        "part", primaryKey: ["id"], columns: [Column("id", .text), Column("item", .text, nullable: true)],
        references: [Reference(column: "item", table: "item", inheritsScope: true)])
      let store = try await open([scoped, part])
      let remote = RemoteID(from: SystemRandom())
      func page(_ groups: [GroupState]) async throws -> FeedPage {
        try await store.page(
          PageRequest(
            remote: remote, principal: Principal(name: "anna"), groups: groups, position: nil, bytesTarget: 1 << 20))
      }
      let groups = try #require(try await page([GroupState(name: Schema.defaultGroup)]).groups)
      let other = try PostgreSQLConnection(settings)
      try other.execute("BEGIN; TRUNCATE \(inParts ? "part_rest" : "part")")
      try desk.execute("UPDATE item SET owner = 'bob'")
      async let next = page(groups)
      // It has its snapshot, and waits for the table.
      try await untilSomebodyWaits()
      try other.execute("COMMIT")
      let bytes = String(decoding: try await next.bytes, as: UTF8.self)
      #expect(bytes.contains(#""p""#) && bytes.contains(#""i""#), "\(bytes)")
      await store.close()
    }

    @Test("A table that is rewritten while a page is made is read whole")
    func rewrittenWhileReading() async throws {
      try desk.execute("INSERT INTO item VALUES ('i', 'x')")
      let store = try await open()
      let other = try PostgreSQLConnection(settings)
      try other.execute("BEGIN; ALTER TABLE item ADD COLUMN made uuid DEFAULT gen_random_uuid()")
      async let page = store.page(
        PageRequest(
          remote: RemoteID(from: SystemRandom()), principal: Principal(name: "anna"),
          groups: [GroupState(name: Schema.defaultGroup)], position: nil, bytesTarget: 1 << 20))
      try await untilSomebodyWaits()
      try other.execute("COMMIT")
      #expect(String(decoding: try await page.bytes, as: UTF8.self).contains(#""i""#))
      await store.close()
    }

    @Test("Where a value of an enum is renamed, what travels of every row is another text: the group comes whole once")
    func renamedEnumValue() async throws {
      try desk.execute("ALTER TABLE item ALTER COLUMN body TYPE mood USING NULL; INSERT INTO item VALUES ('a', 'sad')")
      let store = try await open()
      try desk.execute("UPDATE item SET body = 'glad'")
      _ = try await store.sweep()
      try await store.proveRows(store.view())
      #expect(try await look(store) == 0)
      try desk.execute("ALTER TYPE mood ADD VALUE 'calm'")
      #expect(try await look(store) == 0)
      try desk.execute("ALTER TYPE mood RENAME VALUE 'glad' TO 'merry'")
      for _ in 0..<2 { #expect(try await look(store) == 1) }
      await store.close()
    }

    @Test(
      "A column that was renamed under a running server keeps devices waiting, by name, until it has its name again")
    func renamedColumn() async throws {
      let store = try await open()
      try desk.execute("INSERT INTO item VALUES ('a', 'one'); ALTER TABLE item RENAME COLUMN body TO text")
      for _ in 0..<2 {
        let error = await #expect(throws: SalvorError.self) { try await look(store) }
        #expect(
          error?.code == .storageBusy && error?.message.contains("item.body") == true, "\(String(describing: error))")
        await #expect(throws: SalvorError.self) { try await store.answers() }
      }
      // A start makes no empty column of the name either.
      let refused = await #expect(throws: SalvorError.self) { try await open() }
      #expect(refused?.code == .schemaRefused && refused?.message.contains("rename it back") == true)
      try desk.execute("ALTER TABLE item RENAME COLUMN text TO body; UPDATE item SET body = 'two'")
      #expect(try await look(store) == 0)
      #expect(try await store.rows(of: "item") == [["a", "two", .null]])
      await store.close()
    }

    @Test(
      "A table that PostgreSQL empties when it crashes is refused by name, and so is one that the role does not own")
    func refusedTables() async throws {
      try desk.execute("ALTER TABLE item SET UNLOGGED")
      let unlogged = await #expect(throws: SalvorError.self) { try await open() }
      #expect(unlogged?.code == .schemaRefused && unlogged?.message.contains("SET LOGGED") == true)
      let role = "r\(UInt32.random(in: .min ... .max))"
      let database = try #require(try desk.scalar("SELECT current_database()::text")?.string)
      try desk.execute(
        """
        ALTER TABLE item SET LOGGED; CREATE ROLE \(role) LOGIN; GRANT ALL ON item TO \(role);
        GRANT CREATE, TEMPORARY ON DATABASE \(quoted(database)) TO \(role); GRANT CREATE, USAGE ON SCHEMA public TO \(role)
        """)
      let url = settings.url.replacing("user=postgres", with: "user=\(role)")
      let foreign = await #expect(throws: SalvorError.self) { try await open(url: url) }
      #expect(foreign?.code == .schemaRefused && foreign?.message.contains("item: only the table's owner") == true)
      try desk.execute("ALTER TABLE item OWNER TO \(role)")
      await (try open(url: url)).close()
    }

    @Test("A delete that the database cascades to another synchronized table is declared, or the table is not adopted")
    func undeclaredCascade() async throws {
      try desk.execute(
        "CREATE TABLE public.part (id text PRIMARY KEY, item text REFERENCES item ON DELETE CASCADE); INSERT INTO part VALUES ('p')"
      )
      var part = Table(
        "part", primaryKey: ["id"], columns: [Column("id", .text), Column("item", .text, nullable: true)])
      let refused = await #expect(throws: SalvorError.self) { try await open([item, part]) }
      #expect(refused?.code == .schemaRefused && refused?.message.contains("part.item: is ON DELETE CASCADE") == true)
      part.references = [Reference(column: "item", table: "item", onDelete: .cascade)]
      await (try open([item, part])).close()
    }

    @Test(
      "A key that the application's table holds is held by the log, too, however long: other programs write, rows move and go, and all that follows has its numbers",
      arguments: ["text", "bytea"], [false, true])
    func longKeys(type: String, isScoped: Bool) async throws {
      try desk.execute("ALTER TABLE item ALTER COLUMN id TYPE \(type) USING NULL")
      var table = item
      table.columns[0] = Column("id", type == "text" ? .text : .blob)
      if isScoped { table.scope = [ScopeColumn(column: "owner", source: .principal)] }
      let store = try await open([table])
      let bytes = "(SELECT decode(string_agg(md5(g::text), ''), 'hex') FROM generate_series(1, 168) g)"
      // The longest of a text that an index by itself holds.
      let long = type == "text" ? "left(encode(\(bytes), 'base64'), 2690)" : bytes
      var last = try await store.sweep().number
      for change in [
        "INSERT INTO item VALUES (\(long), 'long', 'anna')", "UPDATE item SET body = 'changed'",
        "UPDATE item SET owner = 'ben'", "DELETE FROM item WHERE body = 'changed'",
        "INSERT INTO item VALUES (\(long), 'long', 'anna')", "TRUNCATE item",
      ] {
        try desk.execute("\(change); INSERT INTO item VALUES ('\\x\(last)\(last)', 'short', 'anna')")
        let now = try await store.sweep().number
        #expect(now > last, "\(change)")
        last = now
        #expect(try desk.integer("SELECT count(*) FROM salvor_inbox") == 0, "\(change)")
        #expect(try await look(store) == 0)
      }
      #expect(try desk.integer("SELECT max(length(v0)) > 2600 FROM salvor_change") == 1)
      if isScoped { #expect(try desk.integer("SELECT max(length(v0)) > 2600 FROM salvor_gone") == 1) }
      // They did not fit the index as it was made.
      let hashed = try desk.rows("SELECT indexname::text FROM pg_indexes WHERE indexdef LIKE '%hash (v0)' ORDER BY 1")
      #expect(hashed == (isScoped ? [["salvor_change_key"], ["salvor_gone_key"]] : [["salvor_change_key"]]))
      await store.close()
      await (try open([table])).close()
    }
  }
#endif
