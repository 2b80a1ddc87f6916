import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What a hostile server may try with the statements of a SyncConfig (semantics 4: only its own tables).
@Suite("Delivered statements")
struct DeliveredStatementTests {
  private static let schema = Schema(tables: [
    Table("site", primaryKey: ["id"], columns: [Column("id", .text), Column("name", .text)]),
    Table("draft", maintained: .client, primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text)]),
  ])

  @Test(
    "A statement that touches anything but its own table is refused by name before it is kept, and nothing of it runs",
    arguments: [
      "DELETE FROM draft", "INSERT INTO site (id, name) SELECT id, body FROM draft",
      "UPDATE draft SET body = ''", "DROP TABLE draft", "CREATE TABLE loot (x)", "ATTACH ?1 AS other",
      "PRAGMA writable_schema = 1", "VACUUM INTO ?1", "DELETE FROM salvor_log",
      "INSERT INTO site (id, name) SELECT name, sql FROM sqlite_master",
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) INSERT INTO site (id, name) SELECT i, i FROM n",
      "BEGIN", "no statement", "", "SELECT load_extension(?1) FROM draft",
      "CREATE TRIGGER t AFTER INSERT ON site BEGIN DELETE FROM draft; END", "REINDEX", "ANALYZE",
      "DELETE FROM site WHERE id = ?1; DELETE FROM draft",
      "INSERT INTO site (id, name) VALUES (?1, hex(zeroblob(500000000)))",
      "INSERT INTO site (id, name) VALUES (?1, (SELECT body FROM draft))",
    ])
  func refused(statement: String) async throws {
    let path = Scratch.path()
    let store = SQLiteClientStore(path: path)
    _ = try await store.open(ClientSetup(schema: Self.schema, principal: "anna"))
    let application = try SQLiteConnection(path)
    try application.execute("INSERT INTO draft VALUES ('d1', 'mine'); INSERT INTO site VALUES ('s1', 'waits')")
    let kept = try application.rows("SELECT * FROM salvor_sync_config")
    for isUpsert in [true, false] {
      var config = SyncConfig(Self.schema)
      if isUpsert {
        config.entries[0].upsertStatement = statement
      } else {
        config.entries[0].deleteStatement = statement
      }
      let hostile = config
      let error = await #expect(throws: SalvorError.self) { try await store.adopt(hostile) }
      #expect(error?.code == .schemaIncompatible && error?.context["table"] == "site")
      #expect(try application.rows("SELECT * FROM salvor_sync_config") == kept)
    }
    #expect(try application.rows("SELECT body FROM draft") == [[.text("mine")]])
    #expect(try application.integer("SELECT count(*) FROM salvor_queue") == 1)
    #expect(try application.integer("SELECT count(*) FROM sqlite_master WHERE name IN ('loot', 't')") == 0)
    // The way on: the server's real statements.
    _ = try await store.adopt(SyncConfig(Self.schema))
    await store.close()
  }
}
