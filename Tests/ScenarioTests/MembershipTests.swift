import SQLiteSupport
import SalvorModel
import Testing

private let tables = ["member", "project", "form", "task"]

@Suite("Scopes over join tables: a membership that comes or goes moves rows in and out, on both sides' writes")
struct MembershipTests {
  private static let schema = """
    {
      version: 1,
      groups: { people: {}, work: {} },
      tables: {
        member: { group: "people", primaryKey: "id", columns: { id: "text", project_id: "text", person: "text" },
                  scope: { person: "principal" }, handover: true, membership: "devices" },
        project: { maintained: "server", group: "work", primaryKey: "id", columns: { id: "text", name: "text" },
                   scope: { id: "via:member.project_id" } },
        form: { maintained: "server", group: "work", primaryKey: "id", columns: { id: "text", active: "boolean" },
                scope: [ { active: { value: 1 } }, { id: "via:task.form_id" } ] },
        task: { membership: "devices", group: "work", primaryKey: "id",
                columns: { id: "text", project_id: "text", form_id: "text", note: "text?" },
                references: { project_id: { table: "project", scope: "inherit" },
                              form_id: { table: "form", soft: true } } },
      },
    }
    """

  /// What somebody may see, by statements of this test's own.
  private static let visible: KeyValuePairs<String, String> = [
    "member": "person = ?1",
    "project": "id IN (SELECT project_id FROM member WHERE person = ?1)",
    "task": "project_id IN (SELECT project_id FROM member WHERE person = ?1)",
    "form": """
    active = 1 OR id IN (SELECT t.form_id FROM task t JOIN member m ON m.project_id = t.project_id WHERE m.person = ?1)
    """,
  ]

  private struct Scene {
    let fleet: Fleet
    let anna: Device
    let bert: Device

    init() async throws {
      fleet = try Fleet(schema: MembershipTests.schema)
      try await fleet.start()
      try fleet.serverConnection().execute(
        """
        INSERT INTO project VALUES ('p1', 'Harbour'), ('p2', 'Market');
        INSERT INTO form VALUES ('f0', 1), ('f1', 0), ('f2', 0);
        INSERT INTO task VALUES ('t1', 'p1', 'f1', NULL), ('t2', 'p1', 'f1', NULL), ('t3', 'p2', 'f2', NULL);
        INSERT INTO member VALUES ('m1', 'p1', 'anna'), ('m2', 'p2', 'bert');
        """)
      anna = try fleet.device("anna")
      bert = try fleet.device("bert", credentials: "principal: \"bert\"")
      for device in [anna, bert] { #expect(try await device.sync().error == nil) }
    }

    /// Each device has what its principal may see, value for value, and nothing else.
    func expectEqual(sourceLocation: SourceLocation = #_sourceLocation) throws {
      for device in [anna, bert] {
        for (table, condition) in MembershipTests.visible {
          let wanted = try fleet.serverConnection().rows(
            "SELECT * FROM \(table) WHERE \(condition) ORDER BY 1", .text(device.name))
          let found = try device.rows(table)
          #expect(found == wanted, "\(table) on \(device.name)", sourceLocation: sourceLocation)
        }
        #expect(try device.connection().rows("PRAGMA foreign_key_check") == [], sourceLocation: sourceLocation)
      }
    }

    func ids(_ device: Device, _ table: String) throws -> [Value] { try device.rows(table).map { $0[0] } }
  }

  @Test("memberships that another program writes")
  func writtenOnTheServer() async throws {
    let scene = try await Scene()
    try scene.expectEqual()
    #expect(try scene.ids(scene.anna, "form") == ["f0", "f1"])
    let server = try scene.fleet.serverConnection()
    try server.execute("INSERT INTO member VALUES ('m3', 'p2', 'anna')")
    let report = try await scene.anna.sync()
    #expect(report.upserts == 4, "the membership, the project, its task and the form")
    #expect(try await scene.bert.sync().upserts == 0, "what anna sees now is no news to bert")
    try scene.expectEqual()
    try server.execute("UPDATE member SET person = 'bert' WHERE id = 'm1'; DELETE FROM member WHERE id = 'm3'")
    for device in [scene.anna, scene.bert] { #expect(try await device.sync().error == nil) }
    try scene.expectEqual()
    #expect(try scene.ids(scene.anna, "task") == [])
    #expect(try scene.ids(scene.anna, "form") == ["f0"])
    #expect(try scene.ids(scene.bert, "task") == ["t1", "t2", "t3"])
  }

  @Test("memberships that a device writes, and rows that it writes under them")
  func writtenOnADevice() async throws {
    let scene = try await Scene()
    // Nobody lets himself in: the project is there, its key is known, and the answer is that of one that is not.
    try await scene.anna.write(
      "INSERT INTO member VALUES ('m4', 'p2', 'anna')", "INSERT INTO member VALUES ('m5', 'p1', 'anna')")
    let refused = try await scene.anna.sync()
    #expect(refused.uploaded == 1 && refused.refused == 1)
    let archive = try await scene.anna.open().errorArchive()
    #expect(archive.map(\.reason) == ["out-of-scope"])
    #expect(try scene.ids(scene.anna, "project") == ["p1"])
    _ = try await scene.anna.open().delete(try #require(archive.first).id)
    try scene.expectEqual()
    try scene.fleet.serverConnection().execute("INSERT INTO member VALUES ('m4', 'p2', 'anna')")
    #expect(try await scene.anna.sync().error == nil)
    #expect(try scene.ids(scene.anna, "project") == ["p1", "p2"])
    try await scene.anna.write("UPDATE task SET note = 'seen' WHERE id = 't3'")
    #expect(try await scene.anna.sync().refused == 0)
    #expect(try await scene.bert.sync().upserts == 1)
    try scene.expectEqual()
    // Handed over: the project's rows leave one device and come to the other.
    try await scene.anna.write(
      "UPDATE task SET note = 'yours' WHERE id = 't1'", "UPDATE member SET person = 'bert' WHERE id = 'm1'",
      "DELETE FROM member WHERE id = 'm5'")
    for device in [scene.anna, scene.bert] { #expect(try await device.sync().refused == 0) }
    try scene.expectEqual()
    #expect(try scene.bert.rows("task")[0] == ["t1", "p1", "f1", "yours"])
    #expect(try scene.ids(scene.anna, "task") == ["t3"])
  }

  @Test(
    "a change of a row whose membership has gone meanwhile is refused, and the row leaves the device once it is settled"
  )
  func goneMeanwhile() async throws {
    let scene = try await Scene()
    try scene.fleet.serverConnection().execute("DELETE FROM member WHERE id = 'm2'")
    try await scene.bert.write("UPDATE task SET note = 'late' WHERE id = 't3'")
    #expect(try await scene.bert.sync().refused == 1)
    let archive = try await scene.bert.open().errorArchive()
    #expect(archive.map(\.reason) == ["out-of-scope"])
    #expect(try scene.fleet.serverRows("task")[2] == ["t3", "p2", "f2", nil])
    _ = try await scene.bert.open().delete(archive[0].id)
    #expect(try await scene.bert.sync().error == nil)
    try scene.expectEqual()
  }
}
