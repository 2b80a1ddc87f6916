import Foundation
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

/// First synchronizations by a file: what a device has by it is what another has by rows.
@Suite("Snapshots: a first synchronization takes a group over from a file")
struct SnapshotTests {
  private static let snapshots = "snapshots: { minRows: 10, maxBehind: 100 },"
  private static let plain = """
    {
      version: 1,
      groups: { stock: {} },
      tables: {
        place: { maintained: "dual", group: "stock", primaryKey: "id",
                 columns: { id: "text", name: "text", city: "text?", size: "real?", mark: "blob?" }, unique: [["name"]] },
        item: { maintained: "dual", group: "stock", primaryKey: ["place_id", "number"],
                columns: { place_id: "text", number: "integer", note: "text?", count: "integer = 0" },
                check: ["count >= 0"], references: { place_id: { table: "place", onDelete: "cascade" } } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  private func fleet(_ options: String = snapshots) async throws -> Fleet {
    let fleet = try Fleet(schema: Self.plain, serverOptions: "authentication: { module: \"none\" }, \(options)")
    try await fleet.start()
    try fill(fleet, 1...200)
    return fleet
  }

  private func fill(_ fleet: Fleet, _ range: ClosedRange<Int>) throws {
    let connection = try fleet.serverConnection()
    try connection.transaction {
      for number in range {
        try connection.execute(
          """
          INSERT INTO place VALUES ('p\(number)', 'Plätze \(number)', \(number % 3 == 0 ? "NULL" : "'city'"), \(number).5, x'00ff\(number % 10)0');
          INSERT INTO item (place_id, number, note) VALUES ('p\(number)', 1, 'line
          two'), ('p\(number)', -9000000000000000000, '');
          """)
      }
    }
  }

  // MARK: Taken over

  @Test("the first device is answered by rows, the next by the file; both have the server's rows and go on alike")
  func byFile() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    #expect(fleet.snapshotsSent == 0)
    let second = try fleet.device("second")
    let report = try await second.sync()
    #expect(report.error == nil)
    #expect(report.upserts == 600)
    #expect(report.snapshots == 1)
    #expect(fleet.snapshotsSent == 1)
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(try fleet.snapshotLeftovers() == [])
    // The queue, the feed and the comparison go on as after rows.
    try await second.write("UPDATE place SET city = 'own' WHERE id = 'p1'", "DELETE FROM place WHERE id = 'p2'")
    try fleet.serverConnection().execute("UPDATE item SET note = 'theirs' WHERE place_id = 'p3'")
    for device in [second, first, second] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(try await second.sync().upserts == 0)
    // A process was killed after its commit: the next one removes what it left.
    await second.close()
    for kind in ["part", "db"] { try writeText("left", to: "\(second.path)-snapshot-\(fleet.snapshots[0]).\(kind)") }
    #expect(try await second.sync().error == nil)
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test("a limit of bytes a second holds for all downloads together, and cuts none off")
  func limited() async throws {
    let fleet = try await fleet("snapshots: { minRows: 10, bytesPerSecond: 200000, bytesPerSecondTotal: 40000 },")
    try await fleet.warm()
    let began = ContinuousClock.now
    let devices = try (0..<5).map { try fleet.device("device\($0)") }
    for device in devices { #expect(try await device.sync().snapshots == 1) }
    // The first piece goes at once; each further one waits for its turn among all.
    let bytes = fleet.server?.engine.metrics.snapshotBytesSent.value ?? 0
    #expect(ContinuousClock.now - began > .seconds(Double(bytes - 16384) / 40_000) * 0.9)
    try fleet.expectEqual(["place", "item"], devices)
  }

  @Test(
    "what changed since the file comes with the same synchronization: updates, deletes, inserts, an exchanged unique value"
  )
  func changedSince() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    try fleet.serverConnection().execute(
      """
      UPDATE place SET name = 'x' WHERE id = 'p1'; UPDATE place SET name = 'Plätze 1' WHERE id = 'p2';
      UPDATE place SET name = 'Plätze 2' WHERE id = 'p1'; DELETE FROM place WHERE id = 'p3';
      UPDATE item SET count = 7 WHERE place_id = 'p4';
      INSERT INTO place VALUES ('new', 'new', NULL, NULL, NULL);
      """)
    let second = try fleet.device("second")
    #expect(try await second.sync().error == nil)
    #expect(fleet.snapshotsSent == 1)
    #expect(try await first.sync().error == nil)
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(try second.rows("item").contains { $0[0] == "p3" } == false)
  }

  @Test("a device with rows of its own keeps them, sends them, and has the others by the file")
  func ownRows() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    let second = try fleet.device("second")
    try await second.write(
      "INSERT INTO place (id, name) VALUES ('mine', 'mine')", "INSERT INTO draft VALUES ('d', 'kept')",
      "INSERT INTO item (place_id, number) VALUES ('mine', 1)")
    let report = try await second.sync()
    #expect(report.error == nil)
    // That it took longer is said.
    for table in ["place", "item"] {
      #expect(report.notices.contains { $0.hasPrefix("The rows of \(table) came from their file one by one") })
    }
    #expect(fleet.snapshotsSent == 1)
    #expect(try await first.sync().error == nil)
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(try second.rows("draft") == [["d", "kept"]])
  }

  @Test("the application's own column, index and trigger stay and work; the rows are the same")
  func applicationsOwn() async throws {
    let fleet = try await fleet()
    try await fleet.warm()
    let second = try fleet.device("second")
    _ = try await second.open()
    try second.connection().execute(
      """
      CREATE INDEX by_city ON place (city); CREATE TABLE seen (id TEXT);
      CREATE TRIGGER note_place AFTER INSERT ON place BEGIN INSERT INTO seen VALUES (NEW.id); END;
      """)
    #expect(try await second.sync().error == nil)
    #expect(fleet.snapshotsSent == 1)
    try fleet.expectEqual(["place", "item"], [second])
    #expect(try second.connection().integer("SELECT count(*) FROM seen") == 200)
  }

  @Test("the file has the digests of the tables as the server compares them, and nothing of Salvor's or of who asked")
  func content() async throws {
    let fleet = try await fleet()
    try await fleet.warm()
    let id = try #require(fleet.snapshots.first)
    let facts = try JSONValue(
      parsing: Array(Data(contentsOf: URL(fileURLWithPath: fleet.snapshotFolder + "/\(id).json"))))
    let snapshot = try Snapshot(facts)
    for table in snapshot.tables {
      let rows = try fleet.serverRows(table.table)
      let sum = rows.reduce(UInt64(0)) { $0 &+ RowDigest($1).value }
      #expect(TableDigest(table: table.table, count: Int64(rows.count), digest: RowDigest.text(sum)) == table)
    }
    #expect(snapshot.tables.map(\.table) == ["place", "item"])
    let names = try FileManager.default.contentsOfDirectory(atPath: fleet.snapshotFolder)
    for name in names {
      let rights = try FileManager.default.attributesOfItem(atPath: fleet.snapshotFolder + "/" + name)[
        .posixPermissions]
      #expect((rights as? Int) == 0o600, "\(name)")
    }
  }

  // MARK: Scopes

  private static let regions = """
    {
      version: 1, parameters: { region: "text" },
      tables: {
        site: { primaryKey: "id", columns: { id: "text", region: "text?", note: "text?" },
                scope: { region: "parameter:region" } },
        visit: { primaryKey: "id", columns: { id: "text", site_id: "text", note: "text?" },
                 references: { site_id: { table: "site", scope: "inherit" } } },
      },
    }
    """

  /// The tokens `anna-token` and `ben-token`.
  private func allow(_ regions: [(hash: String, name: String, region: String)], _ fleet: Fleet) throws {
    let tokens = regions.map {
      "{ sha256: \"\($0.hash)\", principal: \"\($0.name)\", parameters: { region: [\"\($0.region)\"] } }"
    }
    try writeText("{ tokens: [ \(tokens.joined(separator: ", ")) ] }", to: fleet.directory + "/tokens.json5")
  }

  private static let anna = "c3cdf8b93111159d4a078d5b124d961890ae85d5aa9a955cfbe670c1d85f98ff"

  @Test("who sees other rows gets another file; a row out of scope is in none of his")
  func scopes() async throws {
    let fleet = try Fleet(
      schema: Self.regions,
      serverOptions: "authentication: { module: \"tokens\", file: \"tokens.json5\" }, \(Self.snapshots)",
      principals: "token: \"anna-token\"")
    try allow([(Self.anna, "anna", "UK")], fleet)
    try await fleet.start()
    let connection = try fleet.serverConnection()
    for number in 0..<100 {
      try connection.execute(
        "INSERT INTO site VALUES ('s\(number)', '\(["UK", "US"][number % 2])', 'a'); INSERT INTO visit VALUES ('v\(number)', 's\(number)', 'a')"
      )
    }
    try await fleet.warm()
    let second = try fleet.device("second")
    #expect(try await second.sync().error == nil)
    #expect(fleet.snapshotsSent == 1)
    #expect(try second.rows("site").map { $0[1] } == Array(repeating: "UK", count: 50))
    #expect(try second.rows("visit").count == 50)
    // The same principal may see something else now: the file of before is not his any more.
    try allow([(Self.anna, "anna", "US")], fleet)
    let third = try fleet.device("third")
    #expect(try await third.sync().error == nil)
    #expect(fleet.snapshotsSent == 1)
    #expect(try third.rows("site").map { $0[1] } == Array(repeating: "US", count: 50))
    try await until { fleet.snapshots.count == 2 }
    let fourth = try fleet.device("fourth")
    #expect(try await fourth.sync().error == nil)
    #expect(fleet.snapshotsSent == 2)
    #expect(try fourth.rows("site") == third.rows("site"))
    #expect(try fourth.rows("visit") == third.rows("visit"))
  }

  @Test("a scope that changes between the file and the feed: the rows of before do not land")
  func scopeChangesMeanwhile() async throws {
    let fleet = try Fleet(
      schema: Self.regions,
      serverOptions: "authentication: { module: \"tokens\", file: \"tokens.json5\" }, \(Self.snapshots)",
      principals: "token: \"anna-token\"")
    try allow([(Self.anna, "anna", "UK")], fleet)
    try await fleet.start()
    let connection = try fleet.serverConnection()
    for number in 0..<100 {
      try connection.execute("INSERT INTO site VALUES ('s\(number)', '\(["UK", "US"][number % 2])', 'a')")
    }
    try await fleet.warm()
    let second = try fleet.device("second")
    let tokens = fleet.directory + "/tokens.json5"
    let other = """
      { tokens: [ { sha256: "\(Self.anna)", principal: "anna", parameters: { region: ["US"] } } ] }
      """
    // The begin, the file, then the begin that goes on from it.
    fleet.faults.pass(2)
    fleet.faults.inject(.meanwhile { try writeText(other, to: tokens) })
    #expect(try await second.sync().error == nil)
    #expect(fleet.faults.left == 0)
    #expect(try second.rows("site").map { $0[1] } == Array(repeating: "US", count: 50))
  }

  @Test("rows of one principal are in no file unless the server is told so")
  func personal() async throws {
    for isPersonal in [false, true] {
      let fleet = try Fleet(
        schema: """
          { version: 1, tables: { note: { primaryKey: "id", columns: { id: "text", owner: "text?" },
              scope: { owner: "principal" } } } }
          """,
        serverOptions: "authentication: { module: \"none\" }, snapshots: { minRows: 10, personal: \(isPersonal) },")
      try await fleet.start()
      for number in 0..<50 {
        try fleet.serverConnection().execute(
          "INSERT INTO note VALUES ('n\(number)', '\(["anna", "ben"][number % 2])')")
      }
      if isPersonal {
        try await fleet.warm()
        let second = try fleet.device("second")
        #expect(try await second.sync().error == nil)
        #expect(try second.rows("note").map { $0[1] } == Array(repeating: "anna", count: 25))
        let ben = try fleet.device("ben", credentials: "principal: \"ben\"")
        #expect(try await ben.sync().error == nil)
        #expect(try ben.rows("note").map { $0[1] } == Array(repeating: "ben", count: 25))
        #expect(fleet.snapshotsSent == 1)
      } else {
        for name in ["first", "second"] { #expect(try await fleet.device(name).sync().error == nil) }
        #expect(fleet.snapshots == [])
      }
    }
  }

  // MARK: What does not hold

  /// What becomes of the file before the device fetches it.
  enum Damage: String, CaseIterable, Sendable { case truncated, oneBit, anotherFile, gone, notItsLength }

  @Test(
    "a file that is not what the server named goes, the log says so, and the same synchronization goes on by rows",
    arguments: Damage.allCases)
  func damaged(_ damage: Damage) async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    let path = try fleet.snapshotFile(try #require(fleet.snapshots.first))
    let second = try fleet.device("second")
    fleet.faults.pass(1)
    fleet.faults.inject(
      .meanwhile {
        var bytes = Array(try Data(contentsOf: URL(fileURLWithPath: path)))
        switch damage {
        case .truncated: bytes.removeLast(bytes.count / 2)
        case .oneBit: bytes[bytes.count / 2] ^= 4
        case .anotherFile: bytes = bytes.map { $0 ^ 0x55 }
        case .notItsLength: bytes += bytes
        case .gone:
          removeFile(path)
          return
        }
        try Data(bytes).write(to: URL(fileURLWithPath: path))
      })
    #expect(try await second.sync().error == nil)
    #expect(fleet.faults.left == 0)
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test("a cut is gone on with where it was, by the next synchronization, in a new process, too")
  func resumed() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    let size = try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile(try #require(fleet.snapshots.first))))
      .count
    let second = try fleet.device("second") { $0.limits.attemptsMax = 1 }
    fleet.faults.pass(1)
    fleet.faults.inject(.cutAnswer(after: size / 2))
    #expect(try await second.sync().error?.code == .unreachable)
    #expect(try fleet.snapshotLeftovers().count == 1)
    #expect(try second.rows("place") == [])
    await second.close()
    let report = try await second.sync()
    #expect(report.error == nil)
    #expect(report.bytesReceived < Int64(size / 2 + 8000))
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test("a purge discards every file, and one that a device has fetched does not bring the row back")
  func purged() async throws {
    let fleet = try await fleet()
    try await fleet.warm()
    let second = try fleet.device("second")
    let path = fleet.serverPath
    // Between the file and the feed, by hand: the engine's own purge is asked after it.
    fleet.faults.pass(2)
    fleet.faults.inject(
      .meanwhile { try SQLiteConnection(path).execute("PRAGMA foreign_keys = ON; DELETE FROM place WHERE id = 'p9'") })
    #expect(try await second.sync().error == nil)
    #expect(try second.rows("place").contains { $0[0] == "p9" } == false)
    _ = try await fleet.server?.engine.purge([["p10"]], of: "place")
    #expect(fleet.snapshots == [])
    let third = try fleet.device("third")
    #expect(try await third.sync().error == nil)
    try fleet.expectEqual(["place"], [third])
    #expect(try third.rows("place").contains { $0[0] == "p10" } == false)
  }

  @Test("a server that is restored to before the file's commit does not offer it, nor goes on from it")
  func restored() async throws {
    let fleet = try await fleet()
    try await fleet.backup("night")
    try fill(fleet, 201...210)
    try await fleet.warm()
    try await fleet.restore("night")
    let second = try fleet.device("second")
    #expect(try await second.sync().error == nil)
    #expect(fleet.snapshotsSent == 0)
    try fleet.expectEqual(["place", "item"], [second])
  }

  @Test("a group with few rows comes by rows")
  func unsuited() async throws {
    let small = try await self.fleet("snapshots: { minRows: 1000 },")
    for name in ["first", "second"] { #expect(try await small.device(name).sync().error == nil) }
    #expect(small.snapshots == [])
  }

  @Test("a link is good for its own file until it expires; ranges as RFC 9110 has them")
  func links() async throws {
    let fleet = try await fleet()
    try await fleet.warm()
    let engine = try #require(fleet.server?.engine)
    let begin = """
      {"begin":{"version":1,"remote":"\(String(repeating: "a", count: 32))","schema":{"version":1,"digest":"none"},"groups":[{"name":"stock"}],"upload":"none","history":{"sequences":[],"incarnations":[],"commits":[],"tables":[]},"snapshot":{"take":["zstd","gzip"]}}}
      """
    let answer = await engine.handle(
      TransportRequest(
        method: "POST", path: "/v1/sync", headers: ["salvor-principal": "anna"],
        body: .bytes(Array((begin + "\n").utf8)),
        contentLength: begin.utf8.count + 1))
    let lines = try await answer.body.collect(upTo: 1 << 20).split(separator: 10)
    let last = try JSONValue(parsing: Array(try #require(lines.last)))
    let offer = try SnapshotOffer(try #require(last["snapshots"]?.array?.first))
    let whole = Array(try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile(offer.id))))
    func get(_ headers: [String: String] = [:], _ link: String? = nil, _ method: String = "GET") async throws
      -> (status: Int, headers: [String: String], body: [UInt8])
    {
      let response = await engine.handle(
        TransportRequest(method: method, path: link ?? offer.link, headers: headers))
      return (response.status, response.headers, try await response.body.collect(upTo: 1 << 24))
    }
    #expect(try await get().body == whole)
    #expect(try await get([:], nil, "HEAD").body == [])
    let tag = "\"\(offer.id)\""
    #expect(try await get().headers["etag"] == tag)
    #expect(try await get(["if-none-match": tag]).status == 304)
    let part = try await get(["range": "bytes=10-19", "if-range": tag])
    #expect(part.status == 206)
    #expect(part.body == Array(whole[10..<20]))
    #expect(part.headers["content-range"] == "bytes 10-19/\(whole.count)")
    #expect(try await get(["range": "bytes=10-"]).body == Array(whole[10...]))
    #expect(try await get(["range": "bytes=-7"]).body == Array(whole.suffix(7)))
    #expect(try await get(["range": "bytes=10-99999999999"]).body == Array(whole[10...]))
    #expect(try await get(["range": "bytes=\(whole.count)-"]).status == 416)
    for ignored in ["bytes=1-2,4-5", "bytes=9-3", "rows=1-2", "bytes=a-b", "bytes=-"] {
      let answer = try await get(["range": ignored])
      #expect(answer.status == 200, "\(ignored)")
      #expect(answer.body == whole, "\(ignored)")
    }
    // A range of another file.
    #expect(try await get(["range": "bytes=10-19", "if-range": "\"other\""]).body == whole)
    // Guessed, or not any more: the same answer, whether there is such a file or not.
    let other = String(repeating: "0", count: 64)
    let later = offer.link.replacing("expires=", "expires=9")
    for link in [
      "/v1/snapshots/\(offer.id)", offer.link.replacing(offer.id, other), later,
      offer.link.replacing("signature=", "signature=0"), offer.link.replacing("scope=", "scope=x"),
    ] {
      #expect(try await get([:], link).status == 403, "\(link)")
    }
    removeFile(try fleet.snapshotFile(offer.id))
    #expect(try await get().status == 404)
  }

  @Test(
    "a snapshot that the application brings along; one that the server cannot go on from is as if it were not there")
  func seed() async throws {
    let fleet = try await fleet("snapshots: { minRows: 10, compression: \"identity\" },")
    let first = try await fleet.warm()
    let file = try fleet.snapshotFile(try #require(fleet.snapshots.first))
    let seed = fleet.directory + "/seed.db"
    try copyDatabase(file, to: seed, companions: [""])
    try fleet.serverConnection().execute(
      "UPDATE place SET city = 'later' WHERE id = 'p5'; DELETE FROM place WHERE id = 'p6'")
    let second = try fleet.device("second") { $0.seed = seed }
    let report = try await second.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 1)
    #expect(fleet.snapshotsSent == 0)
    #expect(try await first.sync().error == nil)
    try fleet.expectEqual(["place", "item"], [first, second])
    #expect(FileManager.default.fileExists(atPath: seed))
    // Of another server.
    let other = try await self.fleet("")
    let third = try other.device("third") { $0.seed = seed }
    let byRows = try await third.sync()
    #expect(byRows.error == nil)
    #expect(byRows.snapshots == 0)
    #expect(byRows.notices.contains { $0.contains("client.seed") && $0.contains("another server") })
    try other.expectEqual(["place", "item"], [third])
    // None at all.
    let nothing = fleet.directory + "/schema.json5"
    let fourth = try other.device("fourth") { $0.seed = nothing }
    let passedOver = try await fourth.sync()
    #expect(passedOver.error == nil)
    #expect(passedOver.notices.contains { $0.contains("client.seed") })
    try other.expectEqual(["place", "item"], [fourth])
  }

  @Test(
    "a file that the application brings along and in which a value was changed is passed over, and the sync says so",
    arguments: [
      "UPDATE place SET city = 'forged' WHERE id = 'p7'", "UPDATE item SET count = 7 WHERE place_id = 'p7'",
      "UPDATE place SET id = 'p7000' WHERE id = 'p200'",
      "UPDATE salvor_apart SET payload = replace(payload, 'Plätze', 'Platze')",
    ])
  func forgedSeed(change: String) async throws {
    let fleet = try await fleet("snapshots: { minRows: 10, compression: \"identity\" },")
    try fleet.serverConnection().execute("UPDATE place SET mark = randomblob(70000) WHERE id = 'p9'")
    _ = try await fleet.warm()
    let seed = fleet.directory + "/seed.db"
    try copyDatabase(try fleet.snapshotFile(try #require(fleet.snapshots.first)), to: seed, companions: [""])
    let file = try SQLiteConnection(seed, mode: .readWrite)
    try file.execute(change)
    #expect(file.changes > 0)
    file.close()
    let device = try fleet.device("second") { $0.seed = seed }
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.notices.contains { $0.contains("client.seed") && $0.contains("not those that it was made with") })
    try fleet.expectEqual(["place", "item"], [device])
  }

  @Test(
    "a file of which the server has one large value no more is passed over in the same synchronization, and it says so",
    arguments: [false, true])
  func blobOfAFileIsGone(isSeed: Bool) async throws {
    let fleet = try await fleet("snapshots: { minRows: 10, maxBehind: 100, compression: \"identity\" },")
    try fleet.serverConnection().execute("UPDATE place SET mark = randomblob(70000) WHERE id IN ('p8', 'p9')")
    let first = try await fleet.warm()
    let seed = fleet.directory + "/seed.db"
    try copyDatabase(try fleet.snapshotFile(try #require(fleet.snapshots.first)), to: seed, companions: [""])
    try fleet.serverConnection().execute("UPDATE place SET mark = NULL WHERE id = 'p9'")
    #expect(try await first.sync().error == nil)
    let device = try fleet.device("second", limits: "{ attemptsMax: 1 }") { if isSeed { $0.seed = seed } }
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 0)
    #expect(report.notices.contains { $0.contains("passed over") && $0.contains("large value") })
    try fleet.expectEqual(["place", "item"], [first, device])
  }

  @Test("ten devices that ask at once get one file, made once")
  func stampede() async throws {
    let fleet = try await fleet()
    let devices = try (0..<10).map { try fleet.device("d\($0)") }
    for device in devices { #expect(try await device.sync().error == nil) }
    try await until { fleet.snapshots.count == 1 }
    let later = try (0..<10).map { try fleet.device("e\($0)") }
    for device in later { #expect(try await device.sync().error == nil) }
    #expect(fleet.server?.engine.metrics.snapshotsMade.value == 1)
    #expect(fleet.snapshotsSent >= 10)
    try fleet.expectEqual(["place", "item"], [later[0], later[9]])
  }
}
