#if PostgreSQL
  import Foundation
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
        CREATE TABLE more (id text, beside text, PRIMARY KEY (id) INCLUDE (beside));
        CREATE TABLE folding (id text COLLATE folded PRIMARY KEY);
        """)
      let check = DatabaseCheck(connection)
      #expect(try check.problems() == [])
      #expect(try check.problems(of: table("fine")) == [])
      #expect(try check.problems(of: table("pair", key: ["b", "a"])) == [])
      #expect(try check.problems(of: table("pair", key: ["a", "b"])).count == 1)
      #expect(try check.problems(of: table("more")) == [])
      var settings = connection.settings
      settings.schema = String(repeating: "s", count: 64)
      let long = try DatabaseCheck(PostgreSQLConnection(settings)).problems()
      #expect(long.first?.contains("63 bytes") == true, "\(long)")
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

    @Test("An examination names all that is in the way at once, as a start does, and changes nothing")
    func examination() async throws {
      let settings = try #require(PrivateCluster.shared).database()
      let connection = try PostgreSQLConnection(settings)
      let role = "r\(UInt32.random(in: .min ... .max))"
      let database = try #require(try connection.scalar("SELECT current_database()::text")?.string)
      try connection.execute(
        """
        CREATE SCHEMA shop; CREATE TABLE shop.note (id text PRIMARY KEY, at point); CREATE ROLE \(role) LOGIN;
        GRANT USAGE ON SCHEMA shop TO \(role); GRANT CREATE ON DATABASE \(quoted(database)) TO \(role)
        """)
      let schema = Schema(tables: [
        Table(
          "note", primaryKey: ["id"],
          columns: [Column("id", .text), Column("at", .integer, nullable: true), Column("more", .text, nullable: true)]),
        table("made"),
      ])
      let store = PostgreSQLServerStore(
        PostgreSQLServerStore.Options(
          url: settings.url.replacing("user=postgres", with: "user=\(role)"), tablesIn: "shop", connections: 4))
      let found = try await store.examine(ServerSetup(schema: schema))
      #expect(found.description.hasPrefix("PostgreSQL ") && found.description.hasSuffix("role \(role)"))
      for words in [
        "note: the role has no right to SELECT, INSERT, UPDATE, DELETE, TRIGGER", "note.at", "note.more: is missing",
        "made: is not there, and the role may not make tables",
      ] { #expect(found.problems.contains { $0.hasPrefix(words) }, "\(words): \(found.problems)") }
      // A start refuses the same, and leaves nothing.
      do {
        _ = try await store.open(ServerSetup(schema: schema))
        Issue.record("it opened")
      } catch let error as SalvorError {
        for problem in found.problems {
          let words = problem.hasSuffix(".") ? String(problem.dropLast()) : problem
          #expect(error.message.contains(words), "\(problem): \(error.message)")
        }
        #expect(!error.message.contains(".."), "\(error.message)")
      }
      await store.close()
      #expect(try !connection.isThere("SELECT 1 FROM pg_namespace WHERE nspname = 'salvor'"))
      try connection.execute(
        """
        ALTER TABLE shop.note DROP COLUMN at; ALTER SCHEMA shop OWNER TO \(role); ALTER TABLE shop.note OWNER TO \(role)
        """)
      let again = try await store.examine(ServerSetup(schema: schema))
      #expect(again.problems == [])
      #expect(try !connection.isThere("SELECT 1 FROM pg_namespace WHERE nspname = 'salvor'"))
      connection.close()
    }

    @Test("Triggers that somebody dropped or disabled are found, and made anew by installing")
    func uncaptured() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      let check = DatabaseCheck(connection)
      #expect(try check.uncaptured(desk.tables, capturesReplicas: false) == [])
      try connection.execute("ALTER TABLE note DISABLE TRIGGER \"\(ChangeCapture.trigger(1, "insert"))\"")
      #expect(try check.uncaptured(desk.tables, capturesReplicas: false) == ["note"])
      try connection.execute("DROP FUNCTION salvor.salvor_2_delete CASCADE")
      #expect(try check.uncaptured(desk.tables, capturesReplicas: false) == ["note", "line"])
      _ = try LogDesk.install(connection)
      #expect(try check.uncaptured(desk.tables, capturesReplicas: false) == [])
      try connection.execute("INSERT INTO note (id) VALUES ('a')")
      try desk.seal(connection)
      #expect(try desk.entries(connection) == ["1 1 - a -"])
    }
  }
#endif
