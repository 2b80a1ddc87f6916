#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// Dumps of some of the tables, and rows and the schema `salvor` of different moments (semantics 6): `pg_dump` and `pg_restore` as an
  /// operator calls them.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct RowProofTests {
    private let cluster: PrivateCluster
    private let database: ConnectionSettings
    private let schema = Schema(tables: [
      Table(
        "item", primaryKey: ["id", "line"],
        columns: [
          Column("id", .text), Column("line", .integer), Column("body", .text, nullable: true),
          Column("data", .blob, nullable: true),
        ]),
      Table("other", primaryKey: ["id"], columns: [Column("id", .text)]),
    ])

    init() throws {
      cluster = try PrivateCluster.shared ?? PrivateCluster.another()
      database = try cluster.database()
      try psql(
        """
        CREATE TABLE item (id uuid, line smallint, body text, data bytea, internal text, PRIMARY KEY (id, line));
        CREATE TABLE other (id text PRIMARY KEY)
        """)
    }

    private func psql(_ sql: String) throws {
      let connection = try PostgreSQLConnection(database)
      defer { connection.close() }
      try connection.execute("SET search_path = public; \(sql)")
    }

    private func rows(_ sql: String) throws -> [[Value]] {
      let connection = try PostgreSQLConnection(database)
      defer { connection.close() }
      return try connection.rows(sql)
    }

    private func open(_ folder: StateFolder? = nil, _ schema: Schema? = nil) async throws -> PostgreSQLServerStore {
      let store = PostgreSQLServerStore(.init(url: database.url, connections: 4, stateDirectory: folder?.path))
      do { _ = try await store.open(ServerSetup(schema: schema ?? self.schema)) } catch {
        await store.close()
        throw error
      }
      return store
    }

    /// What a process has seen and proven.
    private func serve(_ sql: String = "") async throws {
      let store = try await open()
      if !sql.isEmpty { try psql(sql) }
      _ = try await store.sweep()
      await store.close()
    }

    private func refusal() async throws -> String {
      let error = await #expect(throws: SalvorError.self) { try await open() }
      #expect(error?.code == .storageCorrupt)
      return error?.message ?? ""
    }

    private let a = "'11111111-2222-3333-4444-555555555555'", b = "'21111111-2222-3333-4444-555555555555'"
    private var items: String {
      "INSERT INTO item VALUES (\(a), 1, 'one', NULL, 'x'), (\(a), 2, NULL, '\\x00ff', 'x'), (\(b), 1, 'three', '', 'x');"
        + "INSERT INTO other VALUES ('o')"
    }

    private func generations() throws -> [[Value]] { try rows("SELECT generation FROM salvor_table ORDER BY name") }

    @Test(
      "A table that is put back from an older dump is refused by name, and the others are not; taken as it is, it comes whole",
      arguments: [
        "UPDATE item SET body = 'two' WHERE line = 1", "DELETE FROM item WHERE line = 2",
        "INSERT INTO item VALUES ('31111111-2222-3333-4444-555555555555', 1)", "UPDATE item SET data = '\\x01'",
      ])
    func oneTable(_ change: String) async throws {
      try await serve(items)
      try cluster.dump(database, as: "item", "-t", "item")
      try await serve(change)
      try cluster.restore("item", into: database, "--clean")
      for _ in 0..<2 {
        let message = try await refusal()
        #expect(message.contains("item (") && !message.contains("other ("), "\(message)")
        #expect(!message.contains("1111"), "no values of rows: \(message)")
      }
      let operating = PostgreSQLServerStore(.init(url: database.url, connections: 4))
      _ = try await operating.takeRows()
      for _ in 0..<2 {
        try await serve()
        #expect(try generations() == [[1], [0]])
      }
    }

    @Test(
      "Rows that are copied back while the triggers are away are refused, also where nobody has numbered their delete")
    func rowsAlone() async throws {
      try await serve(items)
      try cluster.dump(database, as: "rows", "--data-only", "-t", "item")
      try psql("UPDATE item SET body = 'two'; TRUNCATE item")
      try cluster.restore("rows", into: database, "--disable-triggers")
      #expect(try await refusal().contains("item (3)"))
    }

    @Test("A log of before beside the rows of now is refused where it knows what was changed since")
    func logAlone() async throws {
      try await serve(items)
      try cluster.dump(database, as: "log", "--data-only", "-n", "salvor")
      try await serve("UPDATE item SET body = 'two' WHERE line = 2")
      try psql(
        """
        DO $$DECLARE name text; BEGIN
          FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'salvor' LOOP
            EXECUTE format('TRUNCATE salvor.%I', name);
          END LOOP;
        END$$
        """)
      try cluster.restore("log", into: database)
      #expect(try await refusal().contains("item (1)"))
    }

    @Test("Where the triggers went with the schema of before, every group comes whole")
    func schemaAlone() async throws {
      try await serve(items)
      try cluster.dump(database, as: "schema", "-n", "salvor")
      try await serve("UPDATE item SET body = 'two' WHERE line = 2")
      try psql("DROP SCHEMA salvor CASCADE")
      try cluster.restore("schema", into: database)
      try await serve()
      #expect(try generations() == [[1], [1]])
      try await serve()
    }

    @Test("A synchronized table that is not there is no new one: the start and the examination name it")
    func missing() async throws {
      try await serve(items)
      try psql("DROP TABLE item")
      #expect(try await refusal().contains("item was synchronized, and is not in the database"))
      let store = PostgreSQLServerStore(.init(url: database.url, connections: 4))
      let found = try await store.examine(ServerSetup(schema: schema))
      #expect(found.problems.contains { $0.contains("item was synchronized") }, "\(found.problems)")
      // Declared as dropped it is one.
      var dropped = Schema(tables: schema.tables.filter { $0.name == "other" })
      dropped.dropped = ["item"]
      await (try open(nil, dropped)).close()
      _ = try await store.takeRows()
      try await serve()
      #expect(try rows("SELECT count(*) FROM public.item") == [[0]])
      #expect(try generations() == [[1], [0]])
    }

    @Test("A database without Salvor's schema is no new server to a process that has served it")
    func without() async throws {
      let folder = try StateFolder()
      let store = try await open(folder)
      try psql(items)
      _ = try await store.sweep()
      let server = try #require(store.opening?.serverID)
      await store.close()
      try psql("DROP SCHEMA salvor CASCADE")
      let error = await #expect(throws: SalvorError.self) { try await open(folder) }
      #expect(error?.message.contains(server.text) == true)
      #expect(try rows("SELECT 1 FROM pg_namespace WHERE nspname = 'salvor'") == [])
      try FileManager.default.removeItem(atPath: folder.path + "/postgresql.salvor-side")
      let new = try await open(folder)
      #expect(new.opening?.serverID != server)
      await new.close()
    }

    @Test("A process under which tables are put back answers storage-busy until the database is whole")
    func running() async throws {
      try await serve(items)
      try cluster.dump(database, as: "old", "-t", "item")
      let store = try await open()
      try psql("UPDATE item SET body = 'two'")
      _ = try await store.sweep()
      try await store.proveRows(store.view())
      try psql("ALTER TABLE other DISABLE TRIGGER USER")
      try cluster.restore("old", into: database, "--clean")
      store.lookAgain()
      let query = AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: [])
      for _ in 0..<2 {
        let error = await #expect(throws: SalvorError.self) { _ = try await store.admit(query) }
        #expect(error?.code == .storageBusy)
        #expect(error?.message.contains("item (3)") == true, "\(String(describing: error))")
      }
      _ = try await store.takeRows()
      store.lookAgain()
      _ = try await store.admit(query)
      #expect(try generations() == [[1], [1]])
      await store.close()
    }

    @Test(
      "Older rows that come back with triggers away are refused also where nobody came between the last upload and them"
    )
    func restoredInALull() async throws {
      try await serve(items)
      let store = try await open()
      try await store.proveRows(store.view())
      try psql("UPDATE item SET body = 'two'")
      _ = try await store.sweep()
      // As an upload does by itself, a moment later.
      try await store.proveRows(store.view())
      for _ in 0..<2 {
        try psql(
          "ALTER TABLE item DISABLE TRIGGER USER; UPDATE item SET body = 'one'; ALTER TABLE item ENABLE TRIGGER USER")
        // Neither a device nor a stop takes the rows for what they were.
        try await store.proveRows(store.view())
      }
      await store.close()
      let error = await #expect(throws: SalvorError.self) { _ = try await self.open() }
      #expect(error?.message.contains("item (3)") == true, "\(String(describing: error))")
    }

    @Test("What programs do, seen or not yet, and a whole dump of any moment, are refused by nobody")
    func noFalseAlarm() async throws {
      try psql("CREATE TABLE moved (id integer PRIMARY KEY DEFERRABLE, n integer) PARTITION BY RANGE (id)")
      try psql(
        "CREATE TABLE low PARTITION OF moved FOR VALUES FROM (0) TO (50); CREATE TABLE high PARTITION OF moved DEFAULT")
      let schema = Schema(
        tables: self.schema.tables + [
          Table("moved", primaryKey: ["id"], columns: [Column("id", .integer), Column("n", .integer, nullable: true)])
        ])
      let writes = [
        items, "INSERT INTO moved SELECT n, n FROM generate_series(1, 60) n",
        "WITH d AS (DELETE FROM other WHERE id = 'o' RETURNING id) INSERT INTO other SELECT id FROM d",
        "UPDATE moved SET id = id + 1", "UPDATE moved SET id = 61 - id WHERE id < 60",
        "UPDATE item SET line = 9 - line", "BEGIN; DELETE FROM item; \(items.replacing("'o'", with: "'p'")); COMMIT",
        "TRUNCATE other; INSERT INTO other VALUES ('q'); DELETE FROM other; INSERT INTO other VALUES ('q')",
        "INSERT INTO other SELECT 'n' || n FROM generate_series(1, 3000) n",
        "ALTER TABLE other ADD COLUMN more text DEFAULT 'x'",
        "MERGE INTO other USING (VALUES ('n1'), ('m')) v (id) ON other.id = v.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (v.id)",
      ]
      let store = try await open(nil, schema)
      for (number, write) in writes.enumerated() {
        try psql(write)
        // Before it has a number.
        await (try open(nil, schema)).close()
        try psql(write.contains("CREATE") || number < 3 || number > 4 ? "DELETE FROM other WHERE id = 'x'" : write)
        _ = try await store.sweep()
        try await store.proveRows(store.view())
        await (try open(nil, schema)).close()
      }
      try psql("DELETE FROM item WHERE line = 2")
      try cluster.restoreDump(of: PrivateCluster.name(database), as: "\(PrivateCluster.name(database))_whole")
      await store.close()
      let copy = PostgreSQLServerStore(
        .init(url: cluster.settings("\(PrivateCluster.name(database))_whole").url, connections: 4))
      _ = try await copy.open(ServerSetup(schema: schema))
      await copy.close()
      // What was written while a trigger was away comes whole, and is proven from there on.
      try psql("ALTER TABLE item DISABLE TRIGGER USER; UPDATE item SET body = 'unseen'")
      for _ in 0..<2 { await (try open(nil, schema)).close() }
      // A log that was trimmed knows nothing of later entries of a key.
      let last = try await open(nil, schema)
      try psql("UPDATE item SET body = 'later'; INSERT INTO other SELECT 'l' || n FROM generate_series(1, 3000) n")
      _ = try await last.sweep()
      try await last.trim(before: .max)
      await last.close()
      await (try open(nil, schema)).close()
    }
  }
#endif
