import SalvorClientEngine
import SalvorModel
import Testing

@Suite("What an application's own table says and the schema does not")
struct OwnForeignKeyTests {
  private static let schema = """
    { version: 1, tables: {
        person: { maintained: "dual", primaryKey: "id", columns: { id: "text" } },
        card: { maintained: "dual", primaryKey: "id", columns: { id: "text", person_id: "text?", made: "timestamp?" } } } }
    """

  @Test("a foreign key that the schema does not name is named at first, and with the rows that go by it")
  func undeclared() async throws {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try a.connection().execute(
      """
      CREATE TABLE person (id TEXT NOT NULL PRIMARY KEY);
      CREATE TABLE card (id TEXT NOT NULL PRIMARY KEY, person_id TEXT REFERENCES person (id), made TEXT);
      INSERT INTO person VALUES ('1'), ('2'); INSERT INTO card VALUES ('x', '1', NULL), ('y', '2', NULL);
      """)
    let first = try await a.sync()
    #expect(first.error == nil)
    #expect(
      first.notices.contains { $0.contains("card (person_id) references person") && $0.contains("Declare it") },
      "\(first.notices)")
    let made = try await b.sync()
    #expect(made.notices == [])
    try await b.write("DELETE FROM person WHERE id = '1'")
    #expect(try await b.sync().error == nil)
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(
      report.notices.contains {
        $0.contains("The row [x] of card was left out")
          && $0.contains("a foreign key for it that the schema does not name")
      }, "\(report.notices)")
    #expect(!report.notices.contains { $0.contains("rowBytesMax") })
    #expect(try a.rows("card").map { $0[0] } == ["y"])
  }

  @Test("a DATETIME column for timestamp is named at first, with what fits")
  func numericTimestamp() async throws {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let a = try fleet.device("a")
    try a.connection().execute(
      "CREATE TABLE card (id TEXT NOT NULL PRIMARY KEY, person_id TEXT, made DATETIME)")
    let first = try await a.sync()
    #expect(first.error == nil)
    #expect(
      first.notices.contains { $0.contains("card.made is DATETIME") && $0.contains("Declare the column TEXT") },
      "\(first.notices)")
    #expect(try await a.sync().notices == [])
  }
}
