import ContentHash
import Foundation
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import SnapshotFiles
import Testing

/// A snapshot's file, made from pages and examined on a device, without a server between them.
@Suite("A snapshot's file holds what the pages said; a device takes nothing else")
struct SnapshotFileTests {
  private static let schema = Schema(tables: [
    Table(
      "note", group: "notes", primaryKey: ["id"],
      columns: [Column("id", .text), Column("title", .text, nullable: true), Column("size", .integer, nullable: true)],
      unique: [["title"]], check: ["size < 1000"])
  ])
  private static let plain = SnapshotCoding(token: "identity") { pieces, _ in pieces }
  private static let end = GroupState(
    name: "notes", cursor: Commit(number: 7, id: CommitID(from: SystemRandom())), scopeDigest: "all")

  /// The pages of one download, in their order.
  private func make(_ folder: SnapshotDirectory, _ pages: [String], bytesMax: Int64 = 1 << 30) async throws -> Snapshot
  {
    let order = SnapshotOrder(
      schema: Self.schema, server: ServerID(from: SystemRandom()), incarnation: IncarnationID(from: SystemRandom()),
      group: "notes", scope: ReadScope(Principal(name: "anna")), coding: Self.plain, bytesMax: bytesMax,
      clock: SystemClock(), random: SystemRandom())
    return try await folder.make(order) { request in
      let place = Int(request.position ?? "0") ?? 0
      let isLast = place + 1 >= pages.count
      return FeedPage(
        bytes: Array(pages[place].utf8), position: isLast ? nil : "\(place + 1)", groups: isLast ? [Self.end] : nil)
    }
  }

  private static let head = #"{"full":["note"]}"# + "\n" + #"{"table":"note","columns":["id","title","size"]}"# + "\n"

  private func offer(_ snapshot: Snapshot, id: String? = nil, bytes: Int64? = nil) -> SnapshotOffer {
    SnapshotOffer(
      id: id ?? snapshot.id, group: snapshot.group, commit: snapshot.commit, scope: snapshot.scope,
      coding: snapshot.coding, bytes: bytes ?? snapshot.bytes, size: bytes ?? snapshot.size, tables: snapshot.tables,
      link: "/")
  }

  private func content(_ folder: SnapshotDirectory, _ snapshot: Snapshot) async throws -> [UInt8] {
    let pieces = try #require(try folder.open(snapshot, from: 0, count: .max, pieceBytes: 4096)).pieces
    var bytes: [UInt8] = []
    while let piece = try await pieces() { bytes += piece }
    return bytes
  }

  @Test("rows that come, change, go and exchange a unique value while it is made are as they are at the end")
  func changesMeanwhile() async throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let snapshot = try await make(
      folder,
      [
        Self.head + #"{"rows":[["a","one",1],["b","two",2],["c","a secret that went",3]]}"# + "\n",
        #"{"table":"note","columns":["id","title","size"]}"# + "\n"
          + #"{"version":6,"rows":[["a","two",1],["b","one",2],["d",null,null]]}"# + "\n"
          + #"{"version":7,"deleted":[["c"]]}"# + "\n",
      ])
    let bytes = try await content(folder, snapshot)
    #expect(snapshot.id == bytes.withUnsafeBytes { BlobHash(of: $0).text })
    #expect(String(decoding: bytes, as: UTF8.self).contains("a secret") == false)
    try writeFile(place.path + "/copy.db", bytes)
    let connection = try SQLiteConnection(place.path + "/copy.db")
    #expect(
      try connection.rows("SELECT * FROM note ORDER BY id") == [["a", "two", 1], ["b", "one", 2], ["d", nil, nil]])
    #expect(try connection.integer("PRAGMA freelist_count") == 0)
    #expect(try connection.integer("PRAGMA page_size") == 4096)
    #expect(
      try connection.rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") == [
        ["note"], ["salvor_apart"], ["salvor_snapshot"],
      ])
    #expect(try folder.list() == [snapshot])
    try folder.remove(snapshot.id)
    #expect(try folder.list() == [])
  }

  @Test("what is too large, or no page, leaves no file")
  func noFile() async throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let page = Self.head + #"{"rows":[["a","one",1]]}"# + "\n"
    await #expect(throws: SalvorError.self) { try await make(folder, [page], bytesMax: 100) }
    await #expect(throws: SalvorError.self) { try await make(folder, [Self.head, "no page"]) }
    #expect(try folder.list() == [])
  }

  @Test("a row with a large value stands apart as long as it has one; the value is not in the file")
  func apart() async throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let large = "{\"ref\":\"\(String(repeating: "0", count: 64))\",\"size\":40000}"
    let snapshot = try await make(
      folder,
      [
        Self.head + "{\"rows\":[[\"a\",\(large),1],[\"b\",\"two\",2],[\"c\",\(large),3],[\"d\",\(large),4]]}\n",
        Self.head
          + "{\"version\":6,\"rows\":[[\"a\",\"small\",1],[\"b\",\(large),2]]}\n{\"version\":6,\"deleted\":[[\"c\"]]}\n",
      ])
    #expect(snapshot.tables.map(\.count) == [3])
    try writeFile(place.path + "/copy.db", try await content(folder, snapshot))
    let connection = try SQLiteConnection(place.path + "/copy.db")
    #expect(try connection.rows("SELECT * FROM note") == [["a", "small", 1]])
    #expect(try connection.rows("SELECT key FROM salvor_apart ORDER BY key") == [["[\"b\"]"], ["[\"d\"]"]])
    #expect(try connection.integer("PRAGMA freelist_count") == 0)
    let received = ReceivedSnapshots(database: place.path + "/device.db")
    try received.keep(try await content(folder, snapshot), of: offer(snapshot), at: 0)
    let opened = try await received.open(
      offer(snapshot), decoding: Self.plain, bytesMax: 1 << 30, SyncConfig(Self.schema))
    var lines: [String] = []
    try opened.eachApart { lines.append(String(decoding: $0, as: UTF8.self)) }
    #expect(lines.count == 2)
    #expect(lines.first?.contains("[[\"b\",\(large),2]]") == true, "\(lines)")
  }

  @Test("removing everything gives up what is being made, by whichever process")
  func removedMeanwhile() async throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let other = try SnapshotDirectory(place.path + "/files")
    #expect(try folder.signature(of: "x") == other.signature(of: "x"))
    let order = SnapshotOrder(
      schema: Self.schema, server: ServerID(from: SystemRandom()), incarnation: IncarnationID(from: SystemRandom()),
      group: "notes", scope: ReadScope(Principal(name: "anna")), coding: Self.plain, bytesMax: 1 << 30,
      clock: SystemClock(), random: SystemRandom())
    let error = await #expect(throws: SalvorError.self) {
      try await folder.make(order) { _ in
        try other.removeAll()
        return FeedPage(bytes: Array(Self.head.utf8), position: nil, groups: [Self.end])
      }
    }
    #expect(error?.code == .overloaded)
    #expect(try folder.list() == [])
  }

  @Test("removing everything removes what a killed process left, too: it has the same rows")
  func removedLeftOver() throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let id = String(repeating: "a", count: 64)
    for name in ["making-0011.db", "making-0011.coded", id + ".zstd", id + ".json.new", "README"] {
      try writeFile(place.path + "/files/" + name, [1, 2, 3])
    }
    try folder.removeAll()
    let left = try FileManager.default.contentsOfDirectory(atPath: place.path + "/files")
    #expect(Set(left) == ["README", "key", "discarded"])
  }

  /// What somebody who means harm makes of a file.
  static let harms: [String] = [
    "CREATE TRIGGER t AFTER INSERT ON note BEGIN DELETE FROM note; END",
    "CREATE VIEW v AS SELECT * FROM note",
    "CREATE TABLE more (x)",
    "CREATE INDEX i ON note (size)",
    "CREATE VIRTUAL TABLE f USING fts5(x)",
    "DROP TABLE note; CREATE TABLE note (id TEXT NOT NULL, title TEXT, size INTEGER AS (length(title)))",
    "DROP TABLE note; CREATE VIEW note AS SELECT 'a' AS id, 'one' AS title, 1 AS size",
    "ALTER TABLE note ADD COLUMN later TEXT",
    "DELETE FROM note",
    "DROP TABLE note",
    "DROP TABLE salvor_snapshot",
    "UPDATE salvor_snapshot SET value = 'other' WHERE key = 'scope'",
    "UPDATE salvor_snapshot SET value = '[8,\"00000000000000000000000000000000\"]' WHERE key = 'commit'",
    "UPDATE salvor_snapshot SET value = '1' WHERE key = 'format'",
    "DROP TABLE salvor_apart",
    // As many rows as were named, and what stands apart is none of them.
    "DELETE FROM note; INSERT INTO salvor_apart VALUES ('note', '[\"a\"]', '{\"table\":\"note\",\"columns\":[\"id\"]}' || char(10) || '{\"deleted\":[[\"a\"]]}' || char(10))",
    "DELETE FROM note; INSERT INTO salvor_apart VALUES ('note', '[\"a\"]', '{\"table\":\"other\",\"columns\":[\"id\"]}' || char(10) || '{\"rows\":[[\"a\"]]}' || char(10))",
    "DELETE FROM note; INSERT INTO salvor_apart VALUES ('note', '[\"a\"]', 'no lines')",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE note (id TEXT, title TEXT, size INTEGER)' WHERE name = 'note'",
    // Functions that an open connection would call, at a write or at a read.
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (', 'CHECK (load_extension(title) IS NULL AND ') WHERE name = 'note'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ' TEXT,', ' TEXT DEFAULT (load_extension(''x'')),') WHERE name = 'note'",
    "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('trigger', 't', 'note', 0, 'CREATE TRIGGER t AFTER INSERT ON note BEGIN SELECT load_extension(''x''); END')",
    "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'note'",
  ]

  @Test(
    "a file with anything else than the device's own statements make is not used, whoever has named it",
    arguments: harms)
  func harmful(_ statements: String) async throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let snapshot = try await make(folder, [Self.head + #"{"rows":[["a","one",1]]}"# + "\n"])
    let path = place.path + "/harm.db"
    try writeFile(path, try await content(folder, snapshot))
    let connection = try SQLiteConnection(path)
    try connection.execute(statements)
    connection.close()
    let bytes = try readFile(path)
    // The server itself has named it: length and hash hold.
    let named = offer(snapshot, id: BlobHash(of: bytes).text, bytes: Int64(bytes.count))
    let error = try await expectUnusable(place, snapshot, bytes, named)
    #expect(error?.context[SnapshotOffer.itselfUnusable] == named.id)
  }

  @Test("a file of another length or hash, and one with a damaged page, is not used")
  func damaged() async throws {
    let place = try Directory()
    defer { place.remove(); removeTree(place.path + "/files") }
    let folder = try SnapshotDirectory(place.path + "/files")
    let rows = (0..<500).map { "[\"k\($0)\",\"title \($0)\",\($0)]" }.joined(separator: ",")
    let snapshot = try await make(folder, [Self.head + "{\"rows\":[\(rows)]}\n"])
    let bytes = try await content(folder, snapshot)
    var other = bytes
    other[bytes.count / 2] ^= 1
    let error = try await expectUnusable(place, snapshot, other, offer(snapshot))
    #expect(error?.context[SnapshotOffer.itselfUnusable] == nil)
    var broken = bytes
    for offset in 5 * 4096..<5 * 4096 + 200 { broken[offset] = 0xFF }
    try await expectUnusable(place, snapshot, broken, offer(snapshot, id: BlobHash(of: broken).text))
    try await expectUnusable(place, snapshot, Array(bytes.dropLast(4096)), offer(snapshot))
    // It becomes more than was named: a bomb.
    let received = ReceivedSnapshots(database: place.path + "/device.db")
    try received.keep(bytes, of: offer(snapshot), at: 0)
    let bomb = SnapshotCoding(token: "bomb") { pieces, _ in
      { try await pieces().map { $0 + $0 } }
    }
    await #expect(throws: SalvorError.self) {
      try await received.open(offer(snapshot), decoding: bomb, bytesMax: 1 << 30, SyncConfig(Self.schema))
    }
    // The very one is used.
    try received.keep(bytes, of: offer(snapshot), at: 0)
    let opened = try await received.open(
      offer(snapshot), decoding: Self.plain, bytesMax: 1 << 30, SyncConfig(Self.schema))
    #expect(opened.tables.map(\.name) == ["note"])
    try received.removeAll(partsToo: true)
    #expect(try received.received([offer(snapshot)]) == [snapshot.id: 0])
  }

  @discardableResult
  private func expectUnusable(
    _ place: Directory, _ snapshot: Snapshot, _ bytes: [UInt8], _ offer: SnapshotOffer
  ) async throws -> SalvorError? {
    let received = ReceivedSnapshots(database: place.path + "/device.db")
    try received.keep(bytes, of: offer, at: 0)
    let error = await #expect(throws: SalvorError.self) {
      try await received.open(offer, decoding: Self.plain, bytesMax: 1 << 30, SyncConfig(Self.schema))
    }
    #expect(error?.code == .snapshotUnusable, "\(error?.message ?? "")")
    // Nothing of it is left.
    #expect(try received.received([offer]) == [offer.id: 0])
    return error
  }
}
