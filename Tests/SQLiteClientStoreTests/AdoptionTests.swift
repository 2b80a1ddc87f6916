import MemoryStore
import SQLiteSupport
import SalvorContracts
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

@Suite("A database from before Salvor is taken over as the specification says (semantics 3, decision 10)")
struct AdoptionTests {
  private static let flags = [
    Column("IsDirty", .boolean, nullable: true), Column("IsDeleted", .boolean, nullable: true),
  ]
  private static let bothFlags = FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")

  /// Children with and without a deleted column, below each other in both ways, and one that is referenced by its own kind.
  private static let schema = Schema(tables: [
    Table(
      "form", primaryKey: ["id"], columns: [Column("id", .text), Column("title", .text, nullable: true)] + flags,
      flags: bothFlags),
    Table(
      "section", primaryKey: ["id"],
      columns: [Column("id", .text), Column("form_id", .text), Column("above", .text, nullable: true)] + flags,
      references: [Reference(column: "form_id", table: "form"), Reference(column: "above", table: "section")],
      flags: bothFlags),
    Table(
      "remark", primaryKey: ["id"],
      columns: [Column("id", .text), Column("section_id", .text), Column("note", .text, nullable: true)],
      references: [Reference(column: "section_id", table: "section")]),
    Table(
      "photo", primaryKey: ["id"], columns: [Column("id", .text), Column("remark_id", .text)] + flags,
      references: [Reference(column: "remark_id", table: "remark")], flags: bothFlags),
  ])

  private static let rows: [String: [Row]] = [
    "form": [["f", "x", 0, 1], ["g", "y", 0, 0], ["h", .null, 1, 1]],
    "section": [
      ["a", "f", .null, 0, 0], ["b", "f", "a", 0, 1], ["c", "g", "b", 0, 0], ["d", "g", .null, 0, 0],
      ["e", "g", "d", 0, 1],
    ],
    "remark": [["r", "a", "1"], ["s", "c", "2"], ["t", "d", "3"]],
    "photo": [["p", "r", 0, 0], ["q", "s", 0, 1], ["u", "t", 1, 0]],
  ]

  private func opened() async throws -> [any ClientStore] {
    let setup = ClientSetup(schema: Self.schema, principal: "anna")
    let specification = MemoryClientStore(MemoryClientDatabase(rows: Self.rows))
    let path = Scratch.path()
    let connection = try SQLiteConnection(path)
    for table in Self.schema.tables {
      try connection.execute(TableDDL(softForeignKeys: false).createTable(table, in: Self.schema))
      for row in Self.rows[table.name] ?? [] {
        try connection.execute("INSERT INTO \(table.name) VALUES (\(row.map { literal($0) }.joined(separator: ", ")))")
      }
    }
    let subject = SQLiteClientStore(path: path)
    let wanted = try await specification.open(setup)
    #expect(try await subject.open(setup) == wanted)
    return [specification, subject]
  }

  /// Rows, queue and how much is sent are the same, and the rows when all was accepted; answers them.
  private func sent(_ stores: [any ClientStore]) async throws -> String {
    var found: [String] = []
    for store in stores {
      var text = ""
      for table in Self.schema.tables { text += "\(table.name): \(try await store.rows(of: table.name))\n" }
      // Counters may leave gaps: requests are told apart by their place.
      var requests: [RequestID] = []
      for entry in try await store.requests(in: [.queued], after: nil, limit: 1000) {
        if !requests.contains(entry.id) { requests.append(entry.id) }
        text +=
          "\(requests.count) \(entry.operation.rawValue) \(entry.table) \(entry.key) \(entry.after.map(\.value))\n"
      }
      let session = try await store.beginSession(groups: nil)
      while let chunk = try await store.uploadChunk(after: 0, bytesTarget: 1 << 20) {
        text += "\(chunk.changeCount) changes are sent"
        if chunk.isLast { break }
      }
      if let upload = session.upload {
        let commit = Commit(number: 5, id: CommitID(unchecked: String(repeating: "c", count: 32)))
        _ = try await store.settle(
          sequence: upload.sequence, results: UploadResults(commit: commit, acceptedRequests: 0, refused: []))
      }
      await store.endSession()
      for table in Self.schema.tables { text += "\n\(table.name): \(try await store.rows(of: table.name))" }
      found.append(text)
    }
    #expect(found[0] == found[1])
    return found[1]
  }

  @Test("marks take along what is below them: with a mark of its own, or at once; the rest is sent")
  func marks() async throws {
    let text = try await sent(try await opened())
    #expect(text.contains(#"section: [["g""#) == false)
    #expect(text.hasSuffix("photo: \([["u", "t", 0, 0]] as [Row])"))
  }

  @Test("a mark that is taken back brings back what it took along")
  func takenBack() async throws {
    let stores = try await opened()
    for store in stores {
      try await store.write([.update(table: "form", key: ["f"], values: [NamedValue("IsDeleted", 0)])])
    }
    #expect(try await stores[1].rows(of: "remark").map { $0[0] } == ["r", "t"])
    _ = try await sent(stores)
  }
}
