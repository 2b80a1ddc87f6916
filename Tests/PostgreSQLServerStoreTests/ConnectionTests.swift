#if PostgreSQL
  import SalvorModel
  import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct ConnectionTests {
    private let connection: PostgreSQLConnection

    init() throws { connection = try PostgreSQLConnection(#require(PrivateCluster.shared).database()) }

    @Test("Values come back as they went, to the byte")
    func values() throws {
      try connection.execute(
        """
        CREATE TABLE v (id bigint PRIMARY KEY, i bigint, s smallint, n integer, r double precision, t text COLLATE "C",
          b bytea, o boolean, x text)
        """)
      let rows: [[Value]] = [
        [1, .integer(.max), 1, -5, .real(0.1), .text(Array("it's \"é\" \\ ?1".utf8)), .blob([0, 255, 1]), 1, .null],
        [2, .integer(.min), 0, 5, .real(-0.5), .text([]), .blob([]), 0, .text(Array("'".utf8))],
        [3, .null, .null, .null, .null, .null, .null, .null, .null],
        [
          4, 0, 0, 0, .real(1e300), .text(Array(repeating: 0x61, count: 100_000)),
          .blob(Array(repeating: 7, count: 70_000)), 1, .null,
        ],
      ]
      for row in rows {
        try connection.run("INSERT INTO v VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", row)
      }
      #expect(try connection.rows("SELECT * FROM v ORDER BY id") == rows)
      // One column of a type that travels as text makes the whole answer text; the values are the same.
      #expect(try connection.rows("SELECT v.*, 1.50::numeric FROM v ORDER BY id") == rows.map { $0 + ["1.50"] })
      #expect(connection.changes == 4)
    }

    @Test("Adopted types travel as one text, whatever the role's own settings")
    func adoptedTypes() throws {
      let row = try connection.rows(
        """
        SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '2026-01-02 03:04:05.5+02'::timestamptz, '2026-01-02'::date,
          '1 day 2 hours'::interval, '{"b": 1, "a": 2}'::json, '{"b": 1, "a": 2}'::jsonb, 1.10::numeric, '{1,2}'::integer[],
          '12:30'::time, '10.0.0.1'::inet
        """)
      #expect(
        row == [
          [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "2026-01-02 01:04:05.5+00", "2026-01-02", "P1DT2H",
            #"{"b": 1, "a": 2}"#,
            #"{"a": 2, "b": 1}"#, "1.10", "{1,2}", "12:30:00", "10.0.0.1",
          ]
        ])
    }

    @Test("A float4 is one number, whatever stands beside it")
    func float4() throws {
      let narrow = Value.real(Double(Float(0.1)))
      #expect(try connection.rows("SELECT 0.1::real") == [[narrow]])
      // The answer comes as text.
      #expect(try connection.rows("SELECT 0.1::real, 1.5::numeric") == [[narrow, "1.5"]])
    }

    @Test("Parameters are SQLite's: a plain one is the next after the highest, and none is in a quotation")
    func parameters() throws {
      #expect(
        ParameterSlots("a ?2 b ? c ?1 '?' \"?\" 'it''s ?' -- ?\n ?").sql
          == "a $2 b $3 c $1 '?' \"?\" 'it''s ?' -- ?\n $4")
      #expect(ParameterSlots("SELECT 1").count == 0)
      #expect(try connection.rows("SELECT ?2::bigint, ?1::text, ?::bigint", "a", 1, 2) == [[1, "a", 2]])
    }

    @Test("What a database says against a row is known by kind, and no value stands in it")
    func failures() throws {
      try connection.execute(
        """
        CREATE TABLE parent (id bigint PRIMARY KEY);
        CREATE TABLE f (id bigint PRIMARY KEY, u text UNIQUE, c bigint CHECK (c > 0), n text NOT NULL, l varchar(3),
          p bigint REFERENCES parent (id), e int4range, EXCLUDE USING gist (e WITH &&));
        INSERT INTO f VALUES (1, 'secret-value', 1, 'x', 'abc', NULL, '[1,5)');
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.n = 'refuse' THEN RAISE EXCEPTION 'the house is full'; END IF;
          IF NEW.n = 'denied' THEN RAISE EXCEPTION 'not yours' USING ERRCODE = 'insufficient_privilege'; END IF;
          IF NEW.n = 'own' THEN RAISE EXCEPTION 'closed' USING ERRCODE = 'AB001'; END IF;
          IF NEW.n = 'assert' THEN ASSERT false, 'asserted'; END IF;
          IF NEW.n = 'table' THEN INSERT INTO audit VALUES (1); END IF;
          IF NEW.n = 'syntax' THEN EXECUTE 'SELECT ''x'' secret-value'; END IF;
          IF NEW.n = 'strict' THEN SELECT 'x' INTO STRICT NEW.n WHERE false; END IF;
          RETURN NEW; END$$;
        CREATE TRIGGER refuse BEFORE INSERT ON f FOR EACH ROW EXECUTE FUNCTION refuse();
        """)
      let cases: [(String, StoreFailure)] = [
        ("(2, 'secret-value', 1, 'x', 'a', NULL, NULL)", .unique),
        ("(2, 'a', 0, 'secret-value', 'a', NULL, NULL)", .check),
        ("(2, 'secret-value2', 1, NULL, 'a', NULL, NULL)", .notNull), ("(2, 'a', 1, 'x', 'a', 9, NULL)", .foreignKey),
        ("(2, 'a', 1, 'x', 'a', NULL, '[2,3)')", .constraint), ("(2, 'a', 1, 'refuse', 'a', NULL, NULL)", .trigger),
        ("(2, 'a', 1, 'x', 'secret-value', NULL, NULL)", .value),
        ("(2, 'a', 1, 'denied', 'a', NULL, NULL)", .trigger), ("(2, 'a', 1, 'own', 'a', NULL, NULL)", .trigger),
        ("(2, 'a', 1, 'assert', 'a', NULL, NULL)", .trigger), ("(2, 'a', 1, 'strict', 'a', NULL, NULL)", .trigger),
        ("(2, 'a', 1, 'table', 'a', NULL, NULL)", .trigger), ("(2, 'a', 1, 'syntax', 'a', NULL, NULL)", .trigger),
        ("(2, (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) g), 1, 'x', 'a', NULL, NULL)", .value),
      ]
      for (row, failure) in cases {
        let error = try #require(throws: SalvorError.self) { try connection.run("INSERT INTO f VALUES \(row)") }
        #expect(connection.failure(error) == failure, "\(error.message)")
        #expect(connection.refusesRow(error))
        #expect(!(error.context["detail"] ?? "").contains("secret"), "\(error.message)")
      }
      let nul = try #require(throws: SalvorError.self) {
        try connection.run("UPDATE f SET n = ?1", .text([0x61, 0]))
      }
      #expect(connection.failure(nul) == .value)
      let type = try #require(throws: SalvorError.self) {
        try connection.run("UPDATE f SET id = ?1", .text(Array("secret-value".utf8)))
      }
      #expect(!type.message.contains("secret"), "\(type.message)")
      let syntax = try #require(throws: SalvorError.self) { try connection.run("SELEC 1") }
      #expect(connection.failure(syntax) == nil)
      #expect(try connection.integer("SELECT count(*) FROM f") == 1)
    }

    @Test("A savepoint undoes what failed in it, and the transaction goes on")
    func savepoints() throws {
      try connection.execute("CREATE TABLE s (id bigint PRIMARY KEY)")
      try connection.transaction {
        try connection.run("INSERT INTO s VALUES (1)")
        #expect(throws: SalvorError.self) {
          try connection.savepoint {
            try connection.run("INSERT INTO s VALUES (2)")
            try connection.run("INSERT INTO s VALUES (1)")
          }
        }
        #expect(connection.isInTransaction)
        try connection.run("INSERT INTO s VALUES (3)")
      }
      #expect(try connection.rows("SELECT id FROM s ORDER BY id") == [[1], [3]])
      // A transaction that failed is over when its error is thrown.
      #expect(throws: SalvorError.self) {
        try connection.transaction { try connection.run("INSERT INTO s VALUES (1)") }
      }
      #expect(!connection.isInTransaction)
      #expect(try connection.integer("SELECT count(*) FROM s") == 2)
    }

    @Test("A password is in no message: of a url that cannot be read, of a server that is not there")
    func passwords() throws {
      for url in [
        "postgresql://user:hunter2@[bad", "host=/nowhere password=hunter2 dbname=a", "password=hunter2 nonsense",
        "postgresql://user:hunter2@localhost:1/a", "postgresql://user:hunter2/3@127.0.0.1:5432/a",
        "postgresql://user:hunter2@4@127.0.0.1/a", "postgresql://user:77/hunter2@127.0.0.1:5432/a",
        "postgresql://user:1@hunter2@127.0.0.1/a", "postgresql://user:4/hunter2@127.0.0.1/a?connect_timeout=2",
      ] {
        let error = try #require(throws: SalvorError.self) { try PostgreSQLConnection(ConnectionSettings(url: url)) }
        #expect(!"\(error)".contains("hunter2"), "\(error)")
        #expect(!"\(ConnectionSettings(url: url))".contains("hunter2"))
      }
    }

    @Test("A url whose password is not percent-encoded is refused in Salvor's words, also by salvor check")
    func unencoded() throws {
      for url in ["postgresql://u:a/b@127.0.0.1:5432/d", "postgresql://u:a@b@127.0.0.1/d", "postgresql://u:1/b@h/d"] {
        let error = try #require(throws: SalvorError.self) { try ConnectionSettings(url: url).parameters() }
        #expect(error.code == .configuration && error.message.contains("%2F"), "\(error)")
      }
      for url in [
        "postgresql://u:a%2Fb%40@127.0.0.1:5432/d", "postgresql://one:1,two:2/d",
        "postgresql:///d?host=/run/a@b&port=5433",
        "host=@socket dbname=d", "postgresql://u:a:b@localhost/d",
      ] { #expect(throws: Never.self) { try ConnectionSettings(url: url).parameters() } }
    }

    @Test("Off this machine the server's certificate is checked, and a url cannot ask for less")
    func encryption() throws {
      func mode(_ url: String) throws -> String? {
        try ConnectionSettings(url: url).parameters().first { $0.keyword == "sslmode" }?.value
      }
      #expect(try mode("postgresql://u@db.example.org/a") == "verify-full")
      #expect(try mode("host=/run/postgresql,db.example.org dbname=a") == "verify-full")
      #expect(try mode("service=somewhere") == "verify-full")
      #expect(try mode("host=/run/postgresql dbname=a") == nil)
      #expect(try mode("postgresql://u@localhost/a") == nil)
      #expect(throws: SalvorError.self) { try mode("postgresql://u@db.example.org/a?sslmode=require") }
    }

    @Test("A connection that the server ends is an error of the storage, and is known to be dead")
    func lost() throws {
      let other = try PostgreSQLConnection(connection.settings)
      let process = try #require(try other.integer("SELECT pg_backend_pid()"))
      _ = try connection.scalar("SELECT pg_terminate_backend(?1::integer)::text", .integer(process))
      #expect(throws: SalvorError.self) { for _ in 0..<100 { _ = try other.integer("SELECT 1") } }
      #expect(!other.isAlive)
    }
  }
#endif
