import SalvorModel
import Testing

/// Tables whose rows a deleted column marks, and tables below them, when their schema changes.
@Suite("Schemas that rename and drop beside marks")
struct MarkEvolutionTests {
  private static let marks = "d_: \"boolean = 0\", m_: \"boolean = 0\""
  private static let flags = "flags: { dirty: \"d_\", deleted: \"m_\" }"

  private func schema(_ version: Int, _ tables: String...) -> String {
    "{ version: \(version), tables: { \(tables.joined(separator: ", ")) } }"
  }

  @Test(
    "a table below a marked one loses several columns, at once or one after the other (never 7)",
    arguments: [["c7", "c8"], ["c8", "c7"]], [false, true])
  func columnsBelow(dropped: [String], isAway: Bool) async throws {
    let parent = "p: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\", \(Self.marks) }, \(Self.flags) }"
    func child(_ columns: [String], _ dropped: [String]) -> String {
      let text = columns.map { "\($0): \"text?\", " }.joined()
      let gone = dropped.map { "\"\($0)\"" }.joined(separator: ", ")
      return
        "t: { primaryKey: \"id\", columns: { id: \"text\", \(text)up: \"text?\" }, references: { up: \"p\" }, dropped: [\(gone)] }"
    }
    let fleet = try Fleet(schema: schema(1, parent, child(["c6", "c7", "c8"], [])))
    try await fleet.start()
    let a = try fleet.device("a")
    try await a.write(
      "INSERT INTO p (id, n) VALUES ('1', 'x')",
      "INSERT INTO t (id, c6, c7, c8, up) VALUES ('1', 'x', 'y', 'z', '1'), ('2', 'x', 'y', 'z', NULL)")
    #expect(try await a.sync().error == nil)
    try await a.write("UPDATE p SET n = 'unsent'", "UPDATE t SET c6 = 'unsent', c7 = 'unsent' WHERE id = '2'")
    if isAway {
      fleet.schemaText = schema(2, parent, child(["c6", "c7", "c8"].filter { $0 != dropped[0] }, [dropped[0]]))
      try await fleet.restart()
    }
    fleet.schemaText = schema(3, parent, child(["c6"], dropped))
    try await fleet.restart()
    let report = try await a.sync()
    #expect(report.error == nil, "\(report)")
    #expect(
      try fleet.serverConnection().rows("SELECT id, c6, up FROM t ORDER BY id")
        == a.connection().rows("SELECT id, c6, up FROM t ORDER BY id"))
    #expect(try fleet.serverConnection().rows("SELECT c6 FROM t ORDER BY id") == [["x"], ["unsent"]])
    #expect(try fleet.serverRows("p").map { $0[1] } == ["unsent"])
    #expect(try await a.open().errorArchive().map(\.reason) == ["schema-dropped"])
    try await a.write("UPDATE p SET m_ = 1")
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverRows("p").isEmpty)
    await fleet.stop()
  }

  enum Step: CaseIterable { case other, own, flagToo, other2 }

  @Test(
    "a marked table is renamed while another column is dropped, and a delete by mark waits (never 2)",
    arguments: Step.allCases)
  func renamed(_ step: Step) async throws {
    func other(_ columns: String, _ dropped: String) -> String {
      "q: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\"\(columns) }\(dropped) }"
    }
    func marked(_ head: String, _ columns: String, _ marks: String, _ flags: String, _ rest: String = "") -> String {
      "\(head) primaryKey: \"id\", columns: { id: \"text\", n: \"text?\"\(columns), \(marks) }, \(flags)\(rest) }"
    }
    let fleet = try Fleet(
      schema: schema(
        1, other(", z: \"text?\"", ""), marked("t: {", ", w: \"text?\"", Self.marks, Self.flags)))
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await a.write(
      "INSERT INTO q (id, n) VALUES ('1', 'x')", "INSERT INTO t (id, n) VALUES ('1', 'x'), ('2', 'x')")
    try await synchronize([a, b])
    try await a.write("UPDATE t SET m_ = 1 WHERE id = '1'", "UPDATE q SET n = 'unsent'")
    let renamed = "t2: { renamedFrom: \"t\","
    let kept = other(", z: \"text?\"", "")
    let without = other("", ", dropped: [\"z\"]")
    let newMarks = "d_: \"boolean = 0\", x_: { type: \"boolean = 0\", renamedFrom: \"m_\" }"
    let now =
      switch step {
      case .other: schema(2, without, marked(renamed, ", w: \"text?\"", Self.marks, Self.flags))
      case .own: schema(2, kept, marked(renamed, "", Self.marks, Self.flags, ", dropped: [\"w\"]"))
      case .flagToo:
        schema(2, without, marked(renamed, ", w: \"text?\"", newMarks, "flags: { dirty: \"d_\", deleted: \"x_\" }"))
      case .other2:
        schema(3, without, marked(renamed, ", w: \"text?\"", Self.marks, Self.flags))
      }
    if step == .other2 {
      fleet.schemaText = schema(2, kept, marked(renamed, ", w: \"text?\"", Self.marks, Self.flags))
      try await fleet.restart()
    }
    fleet.schemaText = now
    try await fleet.restart()
    let report = try await a.sync()
    #expect(report.error == nil && report.recovery == nil, "\(report)")
    #expect(try fleet.serverRows("t2").map { $0[0] } == ["2"])
    #expect(try fleet.serverRows("q").map { $0[1] } == ["unsent"])
    try await synchronize([a, b])
    for device in [a, b] { #expect(try device.rows("t2").map { $0[0] } == ["2"]) }
    await fleet.stop()
  }
}
