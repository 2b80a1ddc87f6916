import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What belongs to capture is found missing or altered, named and put back (semantics 3).
@Suite struct CaptureRestoreTests {
  @Test(arguments: [
    ("DROP TRIGGER salvor_air_1", "salvor_air_1"), ("DROP TRIGGER salvor_ir_1", "salvor_ir_1"),
    ("DROP VIEW salvor_replacing_1", "salvor_ir_1"),
    ("DROP VIEW salvor_replacing_1; CREATE VIEW salvor_replacing_1 AS SELECT 1 AS id", "salvor_ir_1"),
  ])
  func whatIsMissingOrAlteredIsNamedAndPutBack(sql: String, name: String) async throws {
    var bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.download([("seat", ["a", 1, nil]), ("seat", ["b", 2, nil])])
    try bench.write(sql)
    let (_, session) = try await bench.uploadText()
    #expect(session.notices.contains { $0.contains(name) })
    await bench.store.endSession()
    // Replaces a under its own key, and b through its unique value.
    try bench.write("INSERT OR REPLACE INTO seat VALUES ('a', 2, 'moved')")
    let requests = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(requests.map(\.operation) == [.delete, .update])
    #expect(requests.map(\.key) == [["b"], ["a"]])
  }

  @Test func anApplicationThatMakesItsTableAnewIsNotInTheWayOfCapture() async throws {
    var bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.download([("seat", ["a", 1, nil])])
    try bench.write(
      """
      CREATE TABLE other (id TEXT NOT NULL PRIMARY KEY, place INTEGER UNIQUE, note TEXT);
      INSERT INTO other SELECT * FROM seat; DROP TABLE seat; ALTER TABLE other RENAME TO seat
      """)
    let (_, session) = try await bench.uploadText()
    #expect(session.notices.contains { $0.contains("salvor_air_1") })
    await bench.store.endSession()
    try bench.write("INSERT OR REPLACE INTO seat VALUES ('a', 1, 'again')")
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 10).map(\.operation) == [.update])
  }

  @Test(
    "a row that the server deletes and the application makes again is an insert, whatever was tried on it before",
    arguments: [
      "INSERT OR IGNORE INTO seat VALUES ('a', 1, 'x')",
      "INSERT OR FAIL INTO seat VALUES ('a', 1, 'x')",
      "INSERT INTO seat VALUES ('a', 1, NULL) ON CONFLICT DO NOTHING",
      "INSERT INTO seat VALUES ('a', 1, NULL) ON CONFLICT (id) DO UPDATE SET note = note",
    ])
  func copiesGoWithTheirRows(sql: String) async throws {
    var bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.download([("seat", ["a", 1, nil])])
    let application = try SQLiteConnection(bench.path)
    try application.execute("BEGIN")
    // What OR FAIL has done before it fails stays.
    try? application.execute(sql)
    try application.execute("COMMIT")
    _ = try await bench.download([], deleted: [("seat", ["a"])])
    try bench.write("INSERT INTO seat VALUES ('a', 1, NULL)")
    let requests = try await bench.store.requests(in: [.queued], after: nil, limit: 10).filter { $0.key == ["a"] }
    #expect(requests.map(\.operation) == [.insert])
  }
}
