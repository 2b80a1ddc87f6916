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
      "inet",
      "text COLLATE \"de-x-icu\"", "mood_again",
    ]

    @Test(
      "A scope through a column whose type or collation holds other bytes equal, or that PostgreSQL does not compare with the log, is refused by its name, at an examination and at the start (semantics 7)"
    )
    func foldingColumns() async throws {
      try desk.execute(
        """
        CREATE EXTENSION citext; CREATE DOMAIN folded AS citext; CREATE DOMAIN folded_again AS folded;
        CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN mood_again AS mood;
        CREATE COLLATION ignoring (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        """)
      for (place, type) in Self.folding.enumerated() {
        try desk.execute(
          """
          CREATE TABLE member\(place) (id text PRIMARY KEY, team \(type) NOT NULL, person text NOT NULL);
          CREATE TABLE plan\(place) (id text PRIMARY KEY, team \(type) NOT NULL, body text);
          CREATE TABLE own\(place) (id text PRIMARY KEY, who \(type) NOT NULL, body text)
          """)
        let member = Table(
          "member\(place)", primaryKey: ["id"],
          columns: [Column("id", .text), Column("team", .text), Column("person", .text)],
          scope: [ScopeColumn(column: "person", source: .principal)])
        let tables = [
          member, scoped("plan\(place)", "team", .via(table: member.name, column: "team")),
          scoped("own\(place)", "who", .principal),
        ]
        let setup = ServerSetup(schema: Schema(tables: tables))
        let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
        let problems = try await store.examine(setup).problems
        for column in ["member\(place).team", "plan\(place).team", "own\(place).who"] {
          let words = problems.filter { $0.hasPrefix(column) }
          #expect(
            words.contains { $0.contains("decides who sees a row (scope)") || $0.contains("collation of its own") },
            "\(type): \(problems)")
        }
        let error = await #expect(throws: SalvorError.self) { try await store.open(setup) }
        #expect(error?.code == .schemaRefused && error?.message.contains("own\(place).who") == true, "\(type)")
        await store.close()
      }
      // As ordinary columns they are what they were.
      let plain = Self.folding.indices.filter { Self.folding[$0] != "jsonb" }.map { place in
        Table("member\(place)", primaryKey: ["id"], columns: [Column("id", .text), Column("team", .text)])
      }
      try desk.execute(
        Self.folding.indices.map { "ALTER TABLE member\($0) DROP COLUMN person" }.joined(separator: ";"))
      let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
      _ = try await store.open(ServerSetup(schema: Schema(tables: plain)))
      await store.close()
    }

    @Test("A key of a collation of its own is refused by name: PostgreSQL does not compare it with the log (11.7)")
    func collatedKeys() async throws {
      try desk.execute("CREATE TABLE item (id text COLLATE \"de-x-icu\" PRIMARY KEY, body text COLLATE \"de-x-icu\")")
      let item = table("item", .text, Column("body", .text, nullable: true))
      let error = await #expect(throws: SalvorError.self) { try await open(item) }
      #expect(
        error?.message.contains("item.id has a collation of its own") == true
          || error?.message.contains("item.id: has a collation of its own") == true, "\(String(describing: error))")
      try desk.execute("ALTER TABLE item ALTER COLUMN id TYPE text COLLATE \"C\"")
      await (try open(item)).close()
    }

    @Test("A fixed value of a scope that its column's type does not have is refused by name (11.7)")
    func fixedValues() async throws {
      try desk.execute(
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE item (id text PRIMARY KEY, z mood NOT NULL, body text, b boolean)"
      )
      for (value, isRight): (Value, Bool) in [("nonsense", false), ("sad", true)] {
        let setup = ServerSetup(schema: Schema(tables: [scoped("item", "z", .value(value))]))
        let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
        let problems = try await store.examine(setup).problems
        #expect(problems.contains { $0.hasPrefix("item.z: is mood in the table, which has no value") } == !isRight)
        if isRight {
          _ = try await store.open(setup)
          #expect(try await store.rowCount(of: ["default"], for: ReadScope(Principal(name: "anna"))) == 0)
        } else {
          let error = await #expect(throws: SalvorError.self) { try await store.open(setup) }
          #expect(error?.code == .schemaRefused, "\(String(describing: error))")
        }
        await store.close()
      }
    }

    private static let domains: [(type: String, own: Value, kind: ColumnType)] = [
      ("text", "anna", .text), ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", .text), ("integer", 7, .integer),
      ("varchar(40)", "anna", .text),
    ]

    @Test("A scope goes through a column of a domain as through one of its base's (11.7)", arguments: 0..<4)
    func domains(which: Int) async throws {
      let (type, own, kind) = Self.domains[which]
      try desk.execute(
        """
        CREATE DOMAIN first_name AS \(type); CREATE DOMAIN second_name AS first_name;
        CREATE TABLE member (id text PRIMARY KEY, team second_name NOT NULL, person text NOT NULL);
        CREATE TABLE plan (id text PRIMARY KEY, team second_name NOT NULL, body text);
        """)
      let member = Table(
        "member", primaryKey: ["id"], columns: [Column("id", .text), Column("team", kind), Column("person", .text)],
        scope: [ScopeColumn(column: "person", source: .principal)])
      let store = try await open(member, scoped("plan", "team", .via(table: "member", column: "team"), kind))
      try desk.execute("INSERT INTO member VALUES ('1', '\(own.string ?? "7")', 'anna')")
      for count in [1, 40] {
        let keys = (0..<count).map { "k\(count) \($0)" }
        let results = try await upload(
          store, keys.map { insert("plan", ["id", "team", "body"], .text($0), own, "made") })
        #expect(results.acceptedRequests == Int64(count) && results.refused.isEmpty, "\(results.refused)")
        let changed = try await upload(store, keys.map { update("plan", "body", .text($0), "made", "new") })
        #expect(changed.acceptedRequests == Int64(count), "\(changed.refused)")
      }
      #expect(try desk.integer("SELECT count(*) FROM plan WHERE body = 'new'") == 41)
      await store.close()
    }

    private static let unfit: [(type: String, there: Value, not: [Value])] = [
      ("mood", "ok", ["nonsense", "OK", "o\u{0}k"]),
      ("date", "2026-01-02", ["2026-1-2", "tomorrow", "9999999-01-01"]),
      ("timestamptz", "2026-01-02 08:00:00+00", ["2026-01-02T08:00:00Z"]),
      ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "watcher"]),
      ("bigint", "7", ["07", "seven", "99999999999999999999"]),
    ]

    @Test(
      "A value that the column's type does not have, or not as it is written, brings nothing and is named, and nothing fails (11.7)"
    )
    func unfitValues() async throws {
      try desk.execute("CREATE TYPE mood AS ENUM ('ok', 'sad')")
      var tables: [Table] = []
      for (place, entry) in Self.unfit.enumerated() {
        try desk.execute(
          """
          CREATE TABLE chosen\(place) (id text PRIMARY KEY, z \(entry.type) NOT NULL, body text);
          CREATE TABLE own\(place) (id text PRIMARY KEY, who \(entry.type) NOT NULL, body text);
          INSERT INTO chosen\(place) VALUES ('c', '\(entry.there.string ?? "")', 'x');
          INSERT INTO own\(place) VALUES ('o', '\(entry.there.string ?? "")', 'x')
          """)
        let kind: ColumnType = entry.type == "bigint" ? .integer : .text
        var (chosen, own) = (
          scoped("chosen\(place)", "z", .parameter("z"), kind), scoped("own\(place)", "who", .principal, kind)
        )
        (chosen.group, own.group) = ("g\(place)", "g\(place)")
        tables += [chosen, own]
      }
      let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
      _ = try await store.open(ServerSetup(schema: Schema(tables: tables)))
      _ = try await store.sweep()
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      for (place, entry) in Self.unfit.enumerated() {
        func look(_ name: Value, _ value: Value) async throws -> (rows: Int64, unfit: [UnfitValue]) {
          let who = Principal(name: name.string ?? "")
          let chosen = ResolvedSubscriptions(["chosen\(place)": [["z": value]]])
          let rows = try await store.rowCount(of: ["g\(place)"], for: ReadScope(who, chosen))
          var page: FeedPage?
          repeat {
            page = try await store.page(
              PageRequest(
                remote: remote, principal: who, subscriptions: chosen, groups: [GroupState(name: "g\(place)")],
                position: page?.position, bytesTarget: 1 << 20))
          } while page?.position != nil
          return (rows, page?.unfit ?? [])
        }
        let all = try await look(entry.there, entry.there)
        #expect(all.rows == 2 && all.unfit.isEmpty, "\(entry.type): \(all)")
        for value in entry.not {
          let none = try await look(entry.there, value)
          #expect(none.rows == 1 && none.unfit.map(\.value) == [value], "\(entry.type) \(value): \(none)")
          #expect(none.unfit.map(\.column) == ["z"] && none.unfit.map(\.isSubscribed) == [true])
          let stranger = try await look(value, entry.there)
          #expect(stranger.rows == 1 && stranger.unfit.map(\.column) == ["who"], "\(entry.type) \(value): \(stranger)")
          #expect(stranger.unfit.map(\.isSubscribed) == [false])
        }
        // A write of somebody whose name is none of the type's is refused alone.
        let own: Value = entry.type == "bigint" ? 7 : entry.there
        let results = try await upload(store, [insert("own\(place)", ["id", "who", "body"], "n", own, "x")])
        #expect(results.refused.map(\.reason) == [.outOfScope], "\(entry.type): \(results.refused)")
      }
      await store.close()
    }
  }
#endif
