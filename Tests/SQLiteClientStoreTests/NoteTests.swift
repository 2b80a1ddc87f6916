import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

@testable import SQLiteClientStore

/// Notes stay until a person has seen them (semantics 9).
@Suite struct NoteTests {
  private func texts(_ store: SQLiteClientStore) async throws -> [String] { try await store.notes().map(\.text) }

  @Test("triggers put back by an opening are noted, whoever opened, until the note was shown")
  func restoredTriggers() async throws {
    let bench = try await StoreBench(ApplyTests.seats)
    #expect(try await texts(bench.store) == [])
    await bench.store.close()
    try bench.write("DROP TRIGGER salvor_au_1")
    for _ in 1...2 {
      // Some command that shows no note.
      let other = SQLiteClientStore(path: bench.path)
      _ = try await other.open(ClientSetup(schema: bench.schema, principal: "anna"))
      _ = try await other.status()
      await other.close()
    }
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    let notes = try await bench.store.notes()
    #expect(notes.count == 1)
    #expect(notes.first?.text.contains("salvor_au_1") == true)
    #expect(try bench.read("SELECT notes LIKE '%salvor_au_1%' FROM salvor_status") == [[1]])
    try await bench.store.forgetNotes(upTo: notes.last?.number ?? 0)
    #expect(try await texts(bench.store) == [])
    #expect(try bench.read("SELECT notes FROM salvor_status") == [[nil]])
  }

  @Test(
    "triggers that a schema changes are not noted as missing, and the table is compared all the same",
    arguments: ["flags", "less", "column", "own column"])
  func triggersOfTheSchema(what: String) async throws {
    let table = Table(
      "form", primaryKey: ["id"],
      columns: [Column("id", .text), Column("a", .text, nullable: true), Column("b", .text, nullable: true)])
    let bench = try await StoreBench(Schema(tables: [table]))
    await bench.store.close()
    func opened(_ change: (inout Table) -> Void) async throws -> [String] {
      var table = table
      change(&table)
      _ = try await bench.store.open(ClientSetup(schema: Schema(version: 2, tables: [table]), principal: "anna"))
      let found = try await texts(bench.store)
      await bench.store.close()
      return found
    }
    let marked = { (table: inout Table) in
      table.columns += [Column("IsDirty", .boolean, defaultValue: 0), Column("IsDeleted", .boolean, defaultValue: 0)]
      table.flags = FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")
    }
    switch what {
    case "flags":
      #expect(try await opened(marked) == [])
      // One that was away is noted, also where the schema changes the table as well.
      try bench.write("DROP TRIGGER salvor_au_1")
      let notes = try await opened { table in
        marked(&table)
        table.columns.append(Column("last", .text, nullable: true))
      }
      #expect(notes.contains { $0.contains("salvor_au_1") })
    case "less":
      #expect(try await opened(marked) == [])
      #expect(
        try await opened { table in
          marked(&table)
          table.flags.deleted = nil
          table.columns.removeLast()
        } == [])
    case "column":
      #expect(
        try await opened { table in
          table.columns.remove(at: 1)
          table.dropped = ["a"]
        } == [])
      #expect(
        try await opened { table in
          table.columns[1] = Column("c", .text, nullable: true)
          table.dropped = ["a"]
        } == [])
    default:
      try bench.write("ALTER TABLE form ADD COLUMN own TEXT")
      #expect(try await opened { $0.columns.append(Column("own", .text, nullable: true)) } == [])
    }
  }

  @Test("a table that was dropped and made anew is noted")
  func tableMadeAnew() async throws {
    var bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.download([("seat", ["a", 1, nil])])
    await bench.store.close()
    try bench.write("DROP TABLE seat")
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    #expect(try await texts(bench.store).contains { $0.hasPrefix("The table seat was not there any more.") })
  }

  @Test(
    "another database beside a standing identity file is no first contact in silence",
    arguments: ["removed", "lost Salvor's tables"])
  func identityWithoutItsDatabase(what: String) async throws {
    var bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.download([("seat", ["a", 1, nil])])
    try bench.write("INSERT INTO seat VALUES ('b', 2, NULL); INSERT INTO seat VALUES ('c', 3, NULL)")
    let (_, session) = try await bench.uploadText()
    #expect(session.upload != nil)
    await bench.store.endSession()
    let remote = session.state.remoteID
    await bench.store.close()
    if what == "removed" {
      for suffix in ["", "-wal", "-shm"] { unlink(bench.path + suffix) }
    } else {
      let connection = try SQLiteConnection(bench.path)
      for kind in ["view", "trigger", "table"] {
        for row in try connection.rows(
          "SELECT name FROM sqlite_schema WHERE type = ?1 AND name LIKE 'salvor\\_%' ESCAPE '\\'", .text(kind))
        {
          try connection.execute("DROP \(kind) IF EXISTS \(quoted(row[0].string ?? ""))")
        }
      }
    }
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    let notes = try await texts(bench.store)
    #expect(notes.count == 1)
    #expect(notes[0].contains("There was a database here, remote ID \(remote)"))
    #expect(notes[0].contains("2 of its changes were not sent"))
  }

  @Test("the copy of a database, the database itself and a new one have nothing to note")
  func nothingToNote() async throws {
    let bench = try await StoreBench(ApplyTests.seats)
    try bench.write("INSERT INTO seat VALUES ('b', 2, NULL)")
    let (_, session) = try await bench.uploadText()
    try await bench.accept(session)
    await bench.store.close()
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    #expect(try await texts(bench.store) == [])
  }
}
