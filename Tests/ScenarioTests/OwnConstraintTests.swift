import SalvorClientEngine
import SalvorModel
import Testing

@Suite("A row of the server's that a device's own table does not take (decision 211)")
struct OwnConstraintTests {
  private static let schema = """
    { version: 1, tables: {
        size: { maintained: "dual", primaryKey: "id", columns: { id: "text", width: "integer?", note: "text?" } },
        card: { maintained: "dual", primaryKey: "id", columns: { id: "text", size_id: "text?" }, references: { size_id: "size" } },
        other: { maintained: "dual", primaryKey: "id", columns: { id: "text" } } } }
    """

  /// How a device's own table refuses a width, and SQLite's words for it.
  enum Refusal: String, CaseIterable, Sendable {
    case check = "CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width INTEGER CHECK (width < 100), note TEXT)"
    case strict =
      "CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width INTEGER CHECK (width BETWEEN 0 AND 99), note TEXT) STRICT"
    case trigger =
      "CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width INTEGER, note TEXT); CREATE TRIGGER narrow BEFORE INSERT ON size WHEN NEW.width > 100 BEGIN SELECT RAISE(ABORT, 'too wide'); END; CREATE TRIGGER narrower BEFORE UPDATE ON size WHEN NEW.width > 100 BEGIN SELECT RAISE(ABORT, 'too wide'); END"

    var words: String { self == .trigger ? "too wide" : "CHECK constraint failed" }
  }

  private func fleet(_ refusal: Refusal = .check) async throws -> (Fleet, Device) {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let a = try fleet.device("a")
    try a.connection().execute(refusal.rawValue)
    return (fleet, a)
  }

  private static let rows =
    "INSERT INTO size VALUES ('1', 1, 'n'), ('2', #, 'n'), ('3', 3, 'n'); INSERT INTO card VALUES ('c1', '1'), ('c2', '2'); INSERT INTO other VALUES ('o')"

  @Test(
    "it is left out and named, with what references it; all others arrive, and it comes when it is mended",
    arguments: Refusal.allCases, [true, false])
  func leavesOut(refusal: Refusal, isFirst: Bool) async throws {
    let (fleet, a) = try await fleet(refusal)
    if !isFirst { #expect(try await a.sync().error == nil) }
    try fleet.serverConnection().execute(Self.rows.replacing("#", with: "500"))
    var report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(
      report.notices.contains { $0.contains("The row [2] of size was left out") && $0.contains(refusal.words) },
      "\(report.notices)")
    #expect(report.notices.contains { $0.contains("narrow, narrower") } == (refusal == .trigger))
    #expect(try a.rows("size").map { $0[0] } == ["1", "3"])
    #expect(try a.rows("card").map { $0[0] } == ["c1"])
    #expect(try a.rows("other") == [["o"]])
    #expect(try a.connection().rows("PRAGMA foreign_key_check") == [])
    report = try await a.sync()
    #expect(report.error == nil && report.upserts == 0 && report.roundTrips == 1 && report.notices == [])
    // One that was taken, and is not any more.
    try fleet.serverConnection().execute("UPDATE size SET width = 500 WHERE id = '3'")
    report = try await a.sync()
    #expect(report.error == nil && report.notices.contains { $0.contains("The row [3] of size was left out") })
    #expect(try a.rows("size").map { $0[0] } == ["1"])
    try fleet.serverConnection().execute("UPDATE size SET width = 7 WHERE id <> '1'")
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    try fleet.expectEqual(["size", "card", "other"], [a])
  }

  @Test("it comes when the constraint goes, and nothing is deleted at the server", arguments: [true, false])
  func constraintGoes(isPaused: Bool) async throws {
    let (fleet, a) = try await fleet()
    #expect(try await a.sync().error == nil)
    try fleet.serverConnection().execute(Self.rows.replacing("#", with: "500"))
    #expect(try await a.sync().error == nil)
    let client = try await a.open()
    if isPaused { _ = try await client.pauseCapture() }
    // As an application does that knows nothing of a pause, too.
    try a.connection().execute(
      "PRAGMA foreign_keys = OFF; CREATE TABLE anew (id TEXT NOT NULL PRIMARY KEY, width INTEGER, note TEXT); INSERT INTO anew SELECT * FROM size; DROP TABLE size; ALTER TABLE anew RENAME TO size"
    )
    if isPaused { _ = try await client.resumeCapture() }
    for _ in 0..<2 {
      let report = try await a.sync()
      #expect(report.error == nil && report.uploaded == 0 && report.refused == 0, "\(report.notices)")
    }
    #expect(try fleet.serverRows("size").map { $0[0] } == ["1", "2", "3"])
    try fleet.expectEqual(["size", "card"], [a])
    let report = try await a.sync()
    #expect(report.upserts == 0 && report.roundTrips == 1 && report.notices == [])
  }

  @Test(
    "a unique index over a column of the application's own, or over the key alone, stands in nobody's way, and the rows that REPLACE removes by it are captured",
    arguments: [
      "CREATE UNIQUE INDEX own ON size (u)", "CREATE UNIQUE INDEX own ON size (u, width)",
      "CREATE UNIQUE INDEX own ON size (u) WHERE u IS NOT NULL", "CREATE UNIQUE INDEX own ON size (id)",
    ], [true, false])
  func ownUnique(index: String, isFirst: Bool) async throws {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let a = try fleet.device("a")
    if isFirst {
      try a.connection().execute(
        "CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width INTEGER, note TEXT, u TEXT); \(index)")
    } else {
      #expect(try await a.sync().error == nil)
      try a.connection().execute("ALTER TABLE size ADD COLUMN u TEXT; \(index)")
      #expect(try await a.sync().error == nil)
    }
    try await a.write("INSERT INTO size (id, width, u) VALUES ('1', 1, 'x'), ('2', 1, 'y'), ('3', 1, 'z')")
    #expect(try await a.sync().error == nil)
    let byKey = index.hasSuffix("(id)")
    try await a.write(
      byKey ? "UPDATE OR REPLACE size SET id = '2' WHERE id = '1'" : "UPDATE OR REPLACE size SET u = 'y' WHERE id = '1'"
    )
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("size").map { $0[0] } == (byKey ? ["2", "3"] : ["1", "3"]))
    #expect(try fleet.serverRows("size").map { $0[0] } == (byKey ? ["2", "3"] : ["1", "3"]))
    try await a.write("INSERT OR REPLACE INTO size (id, width, u) VALUES ('\(byKey ? "3" : "4")', 1, 'z')")
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverRows("size").map { $0[0] } == a.rows("size").map { $0[0] })
    #expect(try await a.open().errorArchive().isEmpty)
    await fleet.stop()
  }
}
