import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Uploads, their acknowledgement, and what becomes durable when (semantics 4, 5, 7).
@Suite struct UploadTests {
  static let notes = Schema(tables: [
    Table(
      "note", primaryKey: ["id"],
      columns: [Column("id", .text), Column("title", .text), Column("body", .text, nullable: true)])
  ])
  static let setup = ClientSetup(schema: notes, principal: "anna")

  @Test func eachChangeOfARowCarriesItsOwnNewValues() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write(
      """
      INSERT INTO note VALUES ('n', 'a', NULL); UPDATE note SET title = 'b'; UPDATE note SET title = 'c', body = 'x';
      INSERT INTO note VALUES ('m', 'once', NULL)
      """)
    let text = try await bench.uploadText().text
    #expect(text.contains(#"[0,"n","a",null]"#))
    #expect(text.contains(#"[1,"n","a","b"]"#))
    #expect(text.contains(#"[2,"n","b","c",null,"x"]"#))
    #expect(text.contains(#"[0,"m","once",null]"#))
  }

  @Test func eachKindOfUpdateCarriesItsOwnColumnsHoweverManyKindsThereAre() async throws {
    let columns = (0..<8).map { "c\($0)" }
    let numbers = columns.map { Column($0, .integer, nullable: true) }
    let schema = Schema(tables: [Table("r", primaryKey: ["id"], columns: [Column("id", .text)] + numbers)])
    let bench = try await StoreBench(schema)
    for row in 1...255 { try bench.write("INSERT INTO r (id) VALUES ('r\(row)')") }
    try await bench.accept(bench.uploadText().session)
    var wanted: [String] = []
    for row in 1...255 {
      let changed = columns.indices.filter { row >> $0 & 1 == 1 }
      let sets = changed.map { "\(columns[$0]) = \(1000 * row + $0)" }
      try bench.write("UPDATE r SET \(sets.joined(separator: ", ")) WHERE id = 'r\(row)'")
      let values = changed.map { "null,\(1000 * row + $0)" }
      wanted.append("[\(row - 1),\"r\(row)\",\(values.joined(separator: ","))]")
    }
    let text = try await bench.uploadText().text
    for change in wanted { #expect(text.contains(change)) }
  }

  @Test func aResendGivesTheSameBytesWhateverTheApplicationWritesMeanwhile() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write(
      "INSERT INTO note VALUES ('n', 'a', NULL), ('m', 'b', NULL); UPDATE note SET body = 'x' WHERE id = 'm'")
    let first = try await bench.uploadText()
    try bench.write(
      "UPDATE note SET title = 'later'; DELETE FROM note WHERE id = 'm'; INSERT INTO note VALUES ('k', 'new', NULL)")
    #expect(try await bench.uploadText().text == first.text)
    await bench.store.close()
    _ = try await bench.store.open(Self.setup)
    let again = try await bench.uploadText()
    #expect(again.session.upload?.sequence == first.session.upload?.sequence)
    #expect(again.session.upload?.isResend == true)
    #expect(again.text == first.text)
  }

  @Test func anAcceptedRequestLeavesAndTheLaterOneKeepsItsOldValue() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write("INSERT INTO note VALUES ('n', 'a', NULL)")
    let session = try await bench.uploadText().session
    try bench.write("UPDATE note SET title = 'b'")
    try await bench.accept(session)
    #expect(try bench.read("SELECT * FROM note") == [["n", "b", nil]])
    let queued = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(queued.map(\.before) == [[NamedValue("title", "a")]])
    #expect(queued.map(\.after) == [[NamedValue("title", "b")]])
    #expect(try await bench.store.beginSession(groups: nil).state.previous == session.upload?.sequence)
  }

  @Test func countersAreNeverGivenTwice() async throws {
    let bench = try await StoreBench(Self.notes)
    var last: Int64 = 0
    for round in 1...3 {
      try bench.write("INSERT INTO note VALUES ('n\(round)', 'a', NULL)")
      let session = try await bench.uploadText().session
      let upload = try #require(session.upload)
      #expect(upload.lastCounter > last)
      last = upload.lastCounter
      try await bench.accept(session)
      #expect(try bench.read("SELECT count(*) FROM salvor_log WHERE op <> 0") == [[0]])
    }
  }

  @Test func aDatabasePutBackIsOlderThanItsIdentityFile() async throws {
    let bench = try await StoreBench(Self.notes)
    let file = IdentityFile.path(of: bench.path)
    try bench.write("INSERT INTO note VALUES ('n', 'a', NULL)")
    let copy = Scratch.path()
    try SQLiteConnection(bench.path).backup(into: try SQLiteConnection(copy))
    let session = try await bench.uploadText().session
    #expect(IdentityFile(path: file)?.current == session.upload?.sequence)
    try await bench.accept(session)
    #expect(IdentityFile(path: file)?.previous == session.upload?.sequence)
    #expect(try await bench.store.status().state.isOlderThanIdentityFile == false)
    await bench.store.close()
    try SQLiteConnection(copy).backup(into: try SQLiteConnection(bench.path))
    _ = try await bench.store.open(Self.setup)
    #expect(try await bench.store.status().state.isOlderThanIdentityFile)
  }

  @Test func oneSessionAtATime() async throws {
    let bench = try await StoreBench(Self.notes)
    let other = SQLiteClientStore(path: bench.path)
    _ = try await other.open(Self.setup)
    _ = try await bench.store.beginSession(groups: nil)
    var code: ErrorCode?
    do { _ = try await other.beginSession(groups: nil) } catch let error as SalvorError { code = error.code }
    #expect(code == .sessionInUse)
    await bench.store.endSession()
    _ = try await other.beginSession(groups: nil)
  }

  @Test func missingTriggersAreNamedAndPutBack() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write("DROP TRIGGER salvor_ad_1")
    let notices = try await bench.store.beginSession(groups: nil).notices
    #expect(notices.count == 1 && notices[0].contains("salvor_ad_1"))
    try bench.write("INSERT INTO note VALUES ('n', 'a', NULL); DELETE FROM note")
    #expect(try await bench.store.status().queued == 2)
    #expect(try await bench.store.beginSession(groups: nil).notices.isEmpty)
  }

  @Test func adoptedRowsBecomeInsertsAndFlagColumnsNeverTravel() async throws {
    let schema = Schema(tables: [
      Table(
        "note", primaryKey: ["id"],
        columns: [
          Column("id", .text), Column("title", .text, nullable: true), Column("IsDirty", .boolean, defaultValue: 0),
        ], flags: FlagColumns(dirty: "IsDirty"))
    ])
    let bench = try await StoreBench(
      schema,
      sql: """
        CREATE TABLE note (id TEXT PRIMARY KEY, title VARCHAR(20), IsDirty BOOLEAN DEFAULT 0);
        INSERT INTO note VALUES ('a', 'x', 0), ('b', NULL, 1)
        """)
    #expect(try await bench.store.status().queued == 2)
    try bench.write("UPDATE note SET IsDirty = 1")
    #expect(try await bench.store.status().queued == 2)
    let text = try await bench.uploadText().text
    #expect(text.contains(#""columns":["id","title"]"#) && text.contains(#"[0,"b",null]"#))
  }

  @Test func theViewsCanBeReadByAnyone() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write(
      """
      INSERT INTO salvor_request (tag) VALUES ('visit 17'); INSERT INTO note VALUES ('n', 'a', NULL);
      UPDATE note SET title = 'b'; DELETE FROM salvor_request; INSERT INTO note VALUES ('m', 'a', NULL)
      """)
    let session = try await bench.uploadText().session
    let stamp = try #require(try await bench.store.requests(in: [.sent], after: nil, limit: 1).first).id.stamp
    #expect(
      try bench.read("SELECT \"table\", \"key\", operation, state, tag FROM salvor_queue") == [
        ["note", "n", "insert", "sent", "visit 17"], ["note", "n", "update", "sent", "visit 17"],
        ["note", "m", "insert", "sent", nil],
      ])
    let last = try #require(session.upload).lastCounter
    try await bench.accept(
      session, refusing: [Refusal(counter: last, stamp: stamp, reason: .outOfScope, message: "not yours")])
    #expect(
      try bench.read("SELECT id, \"key\", state, reason, status FROM salvor_error_archive") == [
        [.text("\(stamp)-\(last)"), "m", "refused", "out-of-scope", 403]
      ])
    #expect(
      try bench.read("SELECT \"before\", \"after\" FROM salvor_error_archive") == [
        [nil, "id = 'm', title = 'a', body = NULL"]
      ])
    #expect(try bench.read("SELECT \"key\", dirty, in_error FROM salvor_row_state WHERE dirty") == [["m", 1, 1]])
    #expect(try bench.read("SELECT principal, queued_changes, in_error FROM salvor_status") == [["anna", 0, 1]])
  }
}
