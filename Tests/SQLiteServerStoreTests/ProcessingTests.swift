import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// What the contract's small uploads cannot show: blocks, triggers of the server's own, conflict versions.
@Suite struct ProcessingTests {
  static let tree = Schema(tables: [
    Table(
      "node", primaryKey: ["id"],
      columns: [
        Column("id", .integer), Column("up", .integer, nullable: true), Column("label", .text, nullable: true),
        Column("seats", .integer, defaultValue: 1),
      ], references: [Reference(column: "up", table: "node")], unique: [["label"]], check: ["seats < 100"])
  ])

  private func node(_ id: Int, up: Int? = nil, label: String? = nil, seats: Int = 1) -> HandChange {
    .insert(
      "node",
      [
        ("id", .integer(Int64(id))), ("up", up.map { .integer(Int64($0)) } ?? .null),
        ("label", label.map { Value.text($0) } ?? .null), ("seats", .integer(Int64(seats))),
      ])
  }

  @Test("a large upload, chunk by chunk, refuses exactly what must be, and what depends on it (semantics 7)")
  func large() async throws {
    let desk = try await ServerDesk(Self.tree)
    let device = try await desk.device()
    // Long labels make more than one block. Children stand before their parents; some parents never come.
    let filler = String(repeating: "x", count: 600)
    let count = 9_000
    var sent: [HandChange] = []
    for id in 1...count {
      let up = id % 100 == 0 ? 1_000_000 + id : id % 50 == 7 ? id + 1 : nil
      sent.append(node(id, up: up, label: "\(id)\(filler)", seats: id % 1000 == 3 ? 100 : 1))
    }
    // Depends on a refused one: node 100 lacks its parent.
    sent.append(.update("node", [100], [("label", .text("100\(filler)"), "new")]))
    sent.append(node(count + 1, up: 3))
    sent.append(.update("node", [5], [("label", .text("5\(filler)"), "five")]))
    let results = try await desk.uploaded(device, sent, perChunk: 500)
    let reasons = Dictionary(grouping: results.refused, by: \.reason).mapValues(\.count)
    #expect(reasons == [.missingParent: count / 100, .constraint: count / 1000, .blocked: 2])
    #expect(results.acceptedRequests == Int64(sent.count - results.refused.count))
    #expect(Set(results.refused.filter { $0.reason == .blocked }.compactMap(\.blockedBy?.counter)) == [100, 3])
    let other = try desk.other()
    #expect(try other.integer("SELECT count(*) FROM node") == Int64(count - count / 100 - count / 1000))
    #expect(try other.scalar("SELECT label FROM node WHERE id = 5") == "five")
    #expect(try other.rows("PRAGMA foreign_key_check") == [])
    #expect(try other.scalar("PRAGMA integrity_check") == "ok")
    // The sender has all of it.
    try await device.download()
    #expect(try await device.download() == [])
    let reader = try await desk.device("bert")
    #expect(try await reader.download().count == count - count / 100 - count / 1000 + 1)
  }

  @Test("the same upload again, under another sequence ID, changes nothing; refusals are repeated (semantics 5)")
  func settledBefore() async throws {
    let desk = try await ServerDesk(Self.tree)
    let device = try await desk.device()
    let sent = [node(1), node(2, seats: 100), node(3, up: 2)]
    let first = try await desk.uploaded(device, sent)
    let stamp = try #require(first.refused.first?.stamp)
    try desk.other().execute("DELETE FROM node")
    let head = try await desk.store.sweep()
    // The same requests from a database that took a new remote ID.
    let again = try await desk.device()
    var writer = UploadChunkWriterBox(stamp: stamp)
    for (index, change) in sent.enumerated() { writer.add(change, Int64(index + 1)) }
    let second = try await desk.store.process(
      ProcessRequest(
        remote: again.remote, sequence: SequenceID(from: SystemRandom()), principal: again.principal,
        chunks: [writer.chunk()]))
    #expect(second.refused == first.refused)
    #expect(second.acceptedRequests == first.acceptedRequests)
    #expect(second.commit == nil)
    #expect(try await desk.store.rows(of: "node") == [])
    // The sender shows rows that are gone since: they are fed, in a commit that is nobody's.
    #expect(try await desk.store.sweep().number == head.number + 1)
  }

  @Test("what a trigger of the server's database makes of a row is fed to its sender (semantics 4)")
  func serverTriggers() async throws {
    let desk = try await ServerDesk(
      Self.tree,
      before: """
        CREATE TABLE node (id INTEGER NOT NULL PRIMARY KEY, up INTEGER REFERENCES node (id), label TEXT, seats INTEGER NOT NULL
          DEFAULT 1, UNIQUE (label), CHECK (seats < 100));
        CREATE TABLE audit (what);
        CREATE TRIGGER own_label AFTER INSERT ON node WHEN NEW.label IS NULL BEGIN
          UPDATE node SET label = 'n' || NEW.id WHERE id = NEW.id; END;
        CREATE TRIGGER own_count AFTER UPDATE OF seats ON node WHEN NEW.id > 1 BEGIN
          UPDATE node SET seats = seats + 1 WHERE id = 1; END;
        CREATE TRIGGER own_audit AFTER UPDATE ON node BEGIN INSERT INTO audit VALUES (NEW.id); END;
        """)
    let device = try await desk.device()
    try await device.download()
    _ = try await desk.uploaded(device, [node(1, label: "one"), node(2), node(3, label: "three")])
    #expect(try await device.download() == ["node 2 null n2 1"])
    _ = try await desk.uploaded(device, [.update("node", [3], [("seats", 1, 5)])])
    #expect(try await device.download() == ["node 1 null one 2"])
    // An audit elsewhere is no reason.
    _ = try await desk.uploaded(device, [.update("node", [3], [("label", "three", "3")])])
    #expect(try await device.download() == [])
  }

  @Test(
    "NULL where the schema has none, in a table from before that allows it, is refused: no device could take the row, and the server would not start again (semantics 7)"
  )
  func nullInALaxTable() async throws {
    let schema = Schema(tables: [
      Table(
        "t", primaryKey: ["id"], columns: [Column("id", .text), Column("n", .text), Column("v", .text, nullable: true)])
    ])
    let desk = try await ServerDesk(
      schema,
      before:
        "CREATE TABLE t (id TEXT PRIMARY KEY, n TEXT, v TEXT); INSERT INTO t VALUES ('1', 'a', 'b'), ('5', 'a', 'b'), ('6', 'a', 'b')"
    )
    let device = try await desk.device()
    try await device.download()
    let results = try await desk.uploaded(
      device,
      [
        .insert("t", [("id", "2"), ("n", nil), ("v", nil)]), .insert("t", [("id", nil), ("n", "x"), ("v", nil)]),
        .update("t", ["5"], [("n", "a", nil)]), .update("t", ["6"], [("id", "6", nil)]),
        .update("t", ["1"], [("v", "b", nil)]), .insert("t", [("id", "3"), ("n", "x"), ("v", nil)]),
      ])
    #expect(results.refused.map(\.reason) == Array(repeating: .constraint, count: 4))
    #expect(
      try desk.other().rows("SELECT * FROM t ORDER BY id") == [
        ["1", "a", nil], ["3", "x", nil], ["5", "a", "b"], ["6", "a", "b"],
      ])
    try await desk.restart()
    // What another program wrote so stays, and its other columns may be changed.
    try desk.other().execute("INSERT INTO t VALUES ('4', NULL, 'b')")
    let again = try await desk.uploaded(device, [.update("t", ["4"], [("v", "b", "c")])])
    #expect(again.refused.isEmpty)
  }

  @Test("offers leave their version with their own entries of the log, whatever triggers write beside them")
  func offersBesideTriggers() async throws {
    let desk = try await ServerDesk(
      Self.tree,
      before: """
        CREATE TABLE node (id INTEGER NOT NULL PRIMARY KEY, up INTEGER REFERENCES node (id), label TEXT, seats INTEGER NOT NULL
          DEFAULT 1, UNIQUE (label), CHECK (seats < 100));
        CREATE TABLE audit (what);
        CREATE TRIGGER own_audit AFTER UPDATE ON node WHEN NEW.id % 3 = 0 BEGIN INSERT INTO audit VALUES (NEW.id); END;
        CREATE TRIGGER own_count AFTER UPDATE OF label ON node WHEN NEW.id = 5 BEGIN
          UPDATE node SET seats = seats + 1 WHERE id = 1; END;
        """)
    let lost = IncarnationID(unchecked: String(repeating: "a", count: 32))
    let filler = String(repeating: "x", count: 200)
    let count = 500
    for id in 1...count { try desk.other().execute("INSERT INTO node VALUES (\(id), NULL, 'l\(id)', 1)") }
    let parting = try await desk.store.sweep().number
    func offer(_ id: Int, _ label: String) -> HandChange {
      .update("node", [.integer(Int64(id))], [("up", .null, .null), ("label", .text("l\(id)"), .text(label))])
    }
    // Every seventh is so already: its statement writes a row, and maybe an audit, and no entry.
    func label(_ id: Int) -> String { id % 7 == 0 ? "l\(id)" : "\(id)\(filler)" }
    let version = LostVersion(incarnation: lost, number: parting + 5, parting: parting)
    let offers = (1...count).map { offer($0, label($0)) }
    let device = try await desk.device()
    let results = try await desk.uploaded(device, offers, made: parting, version: version)
    #expect(results.healed == Int64(count - count / 7))
    #expect(results.superseded == Int64(count / 7))
    let entries = try desk.other().rows(
      """
      SELECT c.v0 FROM salvor_change c JOIN salvor_healed_entry r ON c.seq BETWEEN r.first AND r.last
      WHERE r.number = ?1 ORDER BY c.v0
      """, .integer(parting + 5))
    let written = (1...count).filter { $0 % 7 != 0 }.map { [Value.integer(Int64($0))] }
    #expect(entries == written, "each written row's one entry, and none of the trigger's")
    let lines = try desk.other().integer("SELECT count(*) FROM salvor_healed")
    #expect(lines == Int64(count / 7))
    // An older version changes none of them; the trigger's change of a seat was nobody's offer, and stands.
    let older = LostVersion(incarnation: lost, number: parting + 3, parting: parting)
    let again = (1...count).map { offer($0, "old \($0)") } + [.update("node", [1], [("seats", 1, 9)])]
    let bert = try await desk.device("bert")
    let second = try await desk.uploaded(bert, again, made: parting, version: older)
    #expect(second.healed == 0)
    #expect(second.superseded == Int64(count))
    #expect(second.conflicts == 1)
    #expect(try desk.other().integer("SELECT seats FROM node WHERE id = 1") == 2)
  }

  @Test("keep-versions: the client's and the server's row are kept for a person (semantics 7)")
  func conflictVersions() async throws {
    let desk = try await ServerDesk(Self.tree, policies: ["node": UniformConflictPolicy(.both)])
    try desk.other().execute("INSERT INTO node VALUES (1, NULL, 'a', 1)")
    let device = try await desk.device("anna")
    try await device.download()
    try desk.other().execute("UPDATE node SET label = 'server'")
    let results = try await desk.uploaded(device, [.update("node", [1], [("label", "a", "client")])])
    #expect(results.conflicts == 1)
    let kept = try desk.other().rows(
      """
      SELECT id, first, "table", key, principal, made, operation, seen, client, server, server_commit, server_remote,
        resolution FROM salvor_conflict
      """)
    #expect(
      kept == [
        [
          1, 1, "node", "[1]", "anna", 1, "update", "{\"label\":\"a\"}", "{\"label\":\"client\"}",
          "{\"id\":1,\"up\":null,\"label\":\"server\",\"seats\":1}", 2, nil, nil,
        ]
      ])
  }

  @Test("conflict versions are in a copy of the database, and come back with it (semantics 11.2)")
  func conflictVersionsAreRestored() async throws {
    let desk = try await ServerDesk(Self.tree, policies: ["node": UniformConflictPolicy(.both)])
    try desk.other().execute("INSERT INTO node VALUES (1, NULL, 'a', 1)")
    let device = try await desk.device("anna")
    try await device.download()
    try desk.other().execute("UPDATE node SET label = 'server'")
    _ = try await desk.uploaded(device, [.update("node", [1], [("label", "a", "client")])])
    let open = try await desk.store.conflicts(after: 0, limit: 10, state: .open)
    #expect(open.count == 1)
    try await desk.store.backup(to: desk.path + ".night")
    _ = try await desk.store.resolveConflict(1, keep: .server, by: "olga")
    await desk.store.close()
    _ = try await desk.store.restore(from: desk.path + ".night")
    try await desk.restart()
    #expect(try await desk.store.conflicts(after: 0, limit: 10, state: nil) == open)
    _ = try await desk.store.resolveConflict(1, keep: .client, by: "olga")
    #expect(try desk.other().rows("SELECT label FROM node") == [["client"]])
  }

  @Test("conflict versions of an earlier layout of the database are kept (semantics 11.2)")
  func conflictVersionsOfBefore() async throws {
    let desk = try await ServerDesk(Self.tree)
    let remote = RemoteID(from: SystemRandom()), stamp = RequestStamp(from: SystemRandom())
    await desk.store.close()
    try desk.other().execute(
      """
      INSERT INTO node VALUES (1, NULL, 'server', 1);
      DROP TABLE salvor_conflict;
      CREATE TABLE salvor_conflict (
        id INTEGER PRIMARY KEY, "table" TEXT NOT NULL, key TEXT NOT NULL, operation TEXT NOT NULL, client TEXT NOT NULL,
        server TEXT, version INTEGER NOT NULL, remote TEXT NOT NULL, principal TEXT NOT NULL, request TEXT NOT NULL,
        time INTEGER NOT NULL);
      INSERT INTO salvor_conflict VALUES
        (4, 'node', '[1]', 'update', '{"label":"client"}', '{"id":1,"label":"server"}', 7, '\(remote)', 'anna', '\(stamp)-3', 9),
        (5, 'node', '[2]', 'delete', '{}', NULL, 7, '\(remote)', 'anna', '\(stamp)-3', 9);
      """)
    try await desk.restart()
    let versions = try await desk.store.conflicts(after: 0, limit: 10, state: .open)
    #expect(versions.map(\.id) == [4, 5])
    #expect(versions.map(\.first) == [4, 4])
    #expect(versions[0].client.columns == [ConflictColumn("label", old: nil, new: "client")])
    #expect(versions[0].server.commit == 7)
    _ = try await desk.store.resolveConflict(5, keep: .client, by: "olga")
    #expect(try desk.other().rows("SELECT label FROM node") == [["client"]])
  }

  @Test(
    "keep-versions: a row of a kept group that the server does not have leaves its sender, scoped or not (semantics 7)")
  func keptGroup() async throws {
    let schema = Schema(tables: [
      Table(
        "diary", primaryKey: ["id"], columns: [Column("id", .text), Column("owner", .text), Column("text", .text)],
        scope: [ScopeColumn(column: "owner", source: .principal)])
    ])
    let desk = try await ServerDesk(schema, policies: ["diary": UniformConflictPolicy(.both)])
    try desk.other().execute("INSERT INTO diary VALUES ('d1', 'anna', 'a')")
    let device = try await desk.device("anna"), stranger = try await desk.device("bert")
    try await device.download()
    try await stranger.download()
    try desk.other().execute("UPDATE diary SET text = 'server'")
    var writer = UploadChunkWriterBox(stamp: RequestStamp(from: SystemRandom()))
    writer.group(1, 2)
    writer.add(.insert("diary", [("id", "d2"), ("owner", "anna"), ("text", "new")]), 1)
    writer.add(.update("diary", ["d1"], [("text", "a", "client")]), 2)
    let results = try await desk.store.process(
      ProcessRequest(
        remote: device.remote, sequence: SequenceID(from: SystemRandom()), principal: device.principal,
        chunks: [writer.chunk()]))
    #expect(results.conflicts == 1)
    #expect(results.refused == [])
    #expect(Set(try await device.download()) == ["diary d1 anna server", "-diary d2"])
    #expect(try await stranger.download() == [])
  }

  @Test("refusals name tables and columns, never values (interfaces, errors)")
  func messages() async throws {
    let desk = try await ServerDesk(Self.tree)
    let device = try await desk.device()
    let results = try await desk.uploaded(
      device, [node(1, label: "secret"), node(2, label: "secret"), node(3, seats: 4242), node(4, up: 777)])
    #expect(results.refused.map(\.reason) == [.constraint, .constraint, .missingParent])
    #expect(results.refused[0].message.contains("node.label"))
    #expect(results.refused[2].message.contains("node.up"))
    for refusal in results.refused {
      for value in ["secret", "4242", "777"] { #expect(!refusal.message.contains(value)) }
    }
  }

  @Test(
    "direct writers, an upload and downloads at the same time: every reader ends with the server's rows (semantics 11.4)"
  )
  func concurrent() async throws {
    let desk = try await ServerDesk(Self.tree)
    let store = desk.store, path = desk.path
    let writing = Task.detached {
      let other = try SQLiteConnection(path)
      for id in 0..<200 {
        try other.execute("INSERT OR REPLACE INTO node (id, label) VALUES (\(id % 40), 'w\(id)')")
        if id % 7 == 0 { try other.execute("DELETE FROM node WHERE id = \(id % 40)") }
      }
    }
    let device = try await desk.device()
    var rows: [String: String] = [:]
    func take(_ lines: [String]) {
      for line in lines {
        let parts = line.split(separator: " ")
        if parts[0] == "-node" { rows[String(parts[1])] = nil }
        if parts[0] == "node" { rows[String(parts[1])] = line }
      }
    }
    for _ in 0..<40 { take(try await device.download(bytesTarget: 200)) }
    try await writing.value
    take(try await device.download(bytesTarget: 200))
    let wanted = try await store.rows(of: "node").map { "node " + $0.map(\.description).joined(separator: " ") }
    #expect(Set(rows.values) == Set(wanted))
  }
}
