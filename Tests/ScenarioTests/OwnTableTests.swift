import SQLiteSupport
import SalvorModel
import Testing

/// Tables that are the application's alone, below synchronized ones (semantics 9: wherever Salvor removes a row, client-only rows that
/// reference it follow their own onDelete; without one they are kept aside, named, and come back with the row).
struct OwnTableTests {
  private func fleet(_ own: String) async throws -> (Fleet, Device) {
    let fleet = try Fleet(
      schema: """
        { version: 1, tables: { p: { primaryKey: "id", columns: { id: "text", code: "text?" }, unique: [["code"]] } } }
        """)
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'x'), ('2', 'y')")
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    try await device.write(own)
    return (fleet, device)
  }

  /// A synchronization that says so of the own table.
  private func syncNoting(_ device: Device) async throws {
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.notices.count { $0.contains("client-only table own") } == 1, "\(report.notices)")
  }

  @Test(
    "A trigger or a constraint of the own table that is against what its onDelete says: its rows are kept aside, and the download ends",
    arguments: [
      "p TEXT REFERENCES p (id) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own BEGIN SELECT RAISE(IGNORE); END",
      "p TEXT REFERENCES p (id)); CREATE TRIGGER t BEFORE DELETE ON own BEGIN SELECT RAISE(ABORT, 'own rows stay'); END",
      "p TEXT REFERENCES p (id) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own BEGIN SELECT RAISE(ABORT, 'own rows stay'); END",
      "p TEXT NOT NULL REFERENCES p (id) ON DELETE SET NULL)",
    ])
  func against(rule: String) async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, \(rule); INSERT INTO own VALUES (7, '1'), (8, '2')")
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    try await syncNoting(device)
    #expect(try device.rows("own") == [[8, "2"]])
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "1"], [8, "2"]])
    #expect(try device.connection().rows("SELECT * FROM salvor_aside") == [])
  }

  @Test("A value that own rows reference is changed, not removed: they are kept aside, whatever their onDelete says")
  func changedValue() async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, code TEXT REFERENCES p (code) ON DELETE CASCADE ON UPDATE CASCADE); INSERT INTO own VALUES (7, 'x')"
    )
    try fleet.serverConnection().execute("UPDATE p SET code = 'z' WHERE id = '1'; DELETE FROM p WHERE id = '2'")
    try await syncNoting(device)
    #expect(try device.rows("own") == [])
    try fleet.serverConnection().execute("UPDATE p SET code = 'x' WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "x"]])
  }

  @Test(
    "A row kept aside whose key was used again is lost neither when its parent comes back nor, unsaid, by a detachment")
  func usedKey() async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, p TEXT REFERENCES p (id), body TEXT); INSERT INTO own VALUES (7, '1', 'first')"
    )
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    try await device.write("INSERT INTO own VALUES (7, '2', 'second')")
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "2", "second"]])
    #expect(try await device.open().planDetachment().aside == 1)
    await #expect(throws: SalvorError.self) { _ = try await device.open().detach(discarding: false) }
    try await device.write("UPDATE own SET id = 8")
    try fleet.serverConnection().execute("UPDATE p SET code = 'other' WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "1", "first"], [8, "2", "second"]])
    #expect(try await device.open().planDetachment().aside == 0)
  }
}
