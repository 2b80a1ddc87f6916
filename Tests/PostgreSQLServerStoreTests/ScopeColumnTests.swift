#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore
  @testable import ServerStoreSupport

  /// Columns that decide who sees a row, by the types that an application's own tables have (semantics 7).
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct ScopeColumnTests: Uploading {
    let settings: ConnectionSettings
    let desk: PostgreSQLConnection

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      desk = try PostgreSQLConnection(settings)
      try desk.execute("SET search_path = public")
    }

    private func scoped(_ name: String, _ column: String, _ source: ScopeSource, _ type: ColumnType = .text) -> Table {
      Table(
        name, primaryKey: ["id"],
        columns: [Column("id", .text), Column(column, type), Column("body", .text, nullable: true)],
        scope: [ScopeColumn(column: column, source: source)])
    }

    private static let folding = [
      "citext", "folded", "folded_again", "numeric", "character(4)", "jsonb", "interval", "text COLLATE ignoring",
    ]

    @Test(
      "A scope through a column whose type or collation holds other bytes equal is refused by its name, at an examination and at the start (semantics 7)",
      arguments: folding)
    func foldingColumns(type: String) async throws {
      try desk.execute(
        """
        CREATE EXTENSION citext; CREATE DOMAIN folded AS citext; CREATE DOMAIN folded_again AS folded;
        CREATE COLLATION ignoring (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE member (id text PRIMARY KEY, team \(type) NOT NULL, person text NOT NULL);
        CREATE TABLE plan (id text PRIMARY KEY, team \(type) NOT NULL, body text);
        CREATE TABLE own (id text PRIMARY KEY, who \(type) NOT NULL, body text)
        """)
      let member = Table(
        "member", primaryKey: ["id"], columns: [Column("id", .text), Column("team", .text), Column("person", .text)],
        scope: [ScopeColumn(column: "person", source: .principal)])
      let tables = [
        member, scoped("plan", "team", .via(table: "member", column: "team")), scoped("own", "who", .principal),
      ]
      let setup = ServerSetup(schema: Schema(tables: tables))
      let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
      let problems = try await store.examine(setup).problems
      for column in ["member.team", "plan.team", "own.who"] {
        #expect(
          problems.contains {
            $0.hasPrefix("\(column): decides who sees a row (scope)") && $0.contains("COLLATE \"C\"")
          },
          "\(problems)")
      }
      let error = await #expect(throws: SalvorError.self) { try await store.open(setup) }
      #expect(
        error?.code == .schemaRefused && error?.message.contains("own.who") == true, "\(String(describing: error))")
      await store.close()
      // As ordinary columns they are what they were.
      let plain = tables.map { table in
        var table = table
        table.scope = []
        return table
      }
      if type.hasPrefix("text") || type != "jsonb" { await (try open(plain[0], plain[1], plain[2])).close() }
    }

    private static let domains: [(type: String, own: Value, kind: ColumnType)] = [
      ("text", "anna", .text), ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", .text), ("integer", 7, .integer),
      ("varchar(40)", "anna", .text),
    ]

    @Test(
      "A scope goes through a column of a domain as through one of its base's (11.7)", arguments: 0..<4, [1, 40])
    func domains(which: Int, count: Int) async throws {
      let (type, own, kind) = Self.domains[which]
      try desk.execute(
        """
        CREATE DOMAIN first_name AS \(type); CREATE DOMAIN second_name AS first_name;
        CREATE TABLE member (id text PRIMARY KEY, team second_name NOT NULL, person first_text NOT NULL);
        CREATE TABLE plan (id text PRIMARY KEY, team second_name NOT NULL, body text);
        """.replacing("first_text", with: "text"))
      let member = Table(
        "member", primaryKey: ["id"], columns: [Column("id", .text), Column("team", kind), Column("person", .text)],
        scope: [ScopeColumn(column: "person", source: .principal)])
      let store = try await open(member, scoped("plan", "team", .via(table: "member", column: "team"), kind))
      let text = own.string ?? "7"
      try desk.execute("INSERT INTO member VALUES ('1', '\(text)', 'anna')")
      let results = try await upload(
        store, (0..<count).map { insert("plan", ["id", "team", "body"], .text("k\($0)"), own, "made") })
      #expect(results.acceptedRequests == Int64(count) && results.refused.isEmpty, "\(results.refused)")
      let changed = try await upload(store, (0..<count).map { update("plan", "body", .text("k\($0)"), "made", "new") })
      #expect(changed.acceptedRequests == Int64(count), "\(changed.refused)")
      #expect(try desk.integer("SELECT count(*) FROM plan WHERE body = 'new'") == Int64(count))
      await store.close()
    }
  }
#endif
