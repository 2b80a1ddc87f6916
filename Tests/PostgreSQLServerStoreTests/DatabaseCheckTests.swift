#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct DatabaseCheckTests {
    private func table(_ name: String, key: [String] = ["id"]) -> Table {
      Table(name, primaryKey: key, columns: key.map { Column($0, .text) })
    }

    @Test("A table that cannot be synchronized is named with the reason")
    func tables() throws {
      let connection = try PostgreSQLConnection(#require(PrivateCluster.shared).database())
      try connection.execute(
        """
        CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE fine (id text PRIMARY KEY);
        CREATE TABLE pair (b text, a text, PRIMARY KEY (b, a));
        CREATE TABLE keyless (id text);
        CREATE TABLE folding (id text COLLATE folded PRIMARY KEY);
        """)
      let check = DatabaseCheck(connection)
      #expect(try check.problems() == [])
      #expect(try check.problems(of: table("fine")) == [])
      #expect(try check.problems(of: table("pair", key: ["b", "a"])) == [])
      #expect(try check.problems(of: table("pair", key: ["a", "b"])).count == 1)
      #expect(try check.problems(of: table("none")) == ["none: the schema public has no such table."])
      #expect(try check.problems(of: table("keyless")) == ["keyless: its primary key is none, and id in the schema."])
      #expect(try check.problems(of: table("folding")).first?.contains("folding.id") == true)
      #expect(try check.problems(of: table(String(repeating: "n", count: 64))).first?.contains("63 bytes") == true)
    }

    @Test("A right that the role lacks is named, and row level security that it does not bypass")
    func rights() throws {
      let connection = try PostgreSQLConnection(#require(PrivateCluster.shared).database())
      let role = "r\(UInt32.random(in: .min ... .max))"
      try connection.execute(
        """
        CREATE TABLE note (id text PRIMARY KEY); ALTER TABLE note ENABLE ROW LEVEL SECURITY;
        CREATE ROLE \(role); GRANT SELECT, INSERT, DELETE ON note TO \(role); SET ROLE \(role)
        """)
      let check = DatabaseCheck(connection)
      let problems = try check.problems(of: table("note"))
      #expect(problems.first == "note: the role has no right to UPDATE, TRIGGER: GRANT it on the table.")
      #expect(problems.last?.contains("BYPASSRLS") == true)
      #expect(try check.problems().contains { $0.contains("GRANT CREATE ON DATABASE") })
      try connection.execute("RESET ROLE; CREATE SCHEMA salvor; SET ROLE \(role)")
      #expect(try check.problems().contains { $0.contains("GRANT CREATE, USAGE ON SCHEMA") })
    }

    @Test("Triggers that somebody dropped or disabled are found, and made anew by installing")
    func uncaptured() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      let check = DatabaseCheck(connection)
      #expect(try check.uncaptured(desk.tables) == [])
      try connection.execute("ALTER TABLE note DISABLE TRIGGER \"\(ChangeCapture.trigger(1, "insert"))\"")
      #expect(try check.uncaptured(desk.tables) == ["note"])
      try connection.execute("DROP FUNCTION salvor.salvor_2_delete CASCADE")
      #expect(try check.uncaptured(desk.tables) == ["note", "line"])
      _ = try LogDesk.install(connection)
      #expect(try check.uncaptured(desk.tables) == [])
      try connection.execute("INSERT INTO note (id) VALUES ('a')")
      try desk.seal(connection)
      #expect(try desk.entries(connection) == ["1 1 - a -"])
    }
  }
#endif
