#if PostgreSQL
  import ContentHash
  import Foundation
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import Testing

  @testable import PostgreSQLServerStore

  /// What a database in use does to a server: somebody alters tables, drops triggers, takes locks and connections, ends processes.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct BadInputTests {
    private let settings: ConnectionSettings
    private let desk: PostgreSQLConnection
    private let schema = Schema(tables: [
      Table("item", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
    ])
    private let hand = HandClock()

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      desk = try PostgreSQLConnection(settings)
    }

    private func options(_ change: (inout PostgreSQLServerStore.Options) -> Void = { _ in })
      -> PostgreSQLServerStore.Options
    {
      var options = PostgreSQLServerStore.Options(url: settings.url, connections: 4)
      options.clock = hand
      change(&options)
      return options
    }

    private func open(_ change: (inout PostgreSQLServerStore.Options) -> Void = { _ in }) async throws
      -> PostgreSQLServerStore
    {
      let store = PostgreSQLServerStore(options(change))
      _ = try await store.open(ServerSetup(schema: schema))
      return store
    }

    private func admit(_ store: PostgreSQLServerStore) async throws {
      _ = try await store.admit(
        AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: []))
    }

    private func page(_ store: PostgreSQLServerStore) async throws -> String {
      let page = try await store.page(
        PageRequest(
          remote: RemoteID(from: SystemRandom()), principal: Principal(name: "ben"),
          groups: [GroupState(name: Schema.defaultGroup)], position: nil, bytesTarget: 1 << 20))
      return String(decoding: page.bytes, as: UTF8.self)
    }

    private func failure(_ body: () async throws -> Void) async throws -> SalvorError {
      do {
        try await body()
      } catch let error as SalvorError {
        return error
      }
      throw SalvorError(.failed, "nothing failed")
    }

    private func role(_ words: String = "") throws -> String {
      let role = "r\(UInt32.random(in: .min ... .max))"
      try desk.execute("CREATE ROLE \(role) LOGIN SUPERUSER \(words)")
      return settings.url.replacing("user=postgres", with: "user=\(role)")
    }

    @Test(
      "A trigger that somebody drops or disables under a running server is put back within a minute; the group comes whole"
    )
    func droppedTrigger() async throws {
      let store = try await open()
      try await admit(store)
      for harm in [
        "DROP TRIGGER \"!salvor_1_insert\" ON item", "ALTER TABLE item DISABLE TRIGGER \"!salvor_1_insert\"",
      ] {
        let generation = try desk.integer("SELECT generation FROM salvor_table") ?? 0
        try desk.execute("\(harm); INSERT INTO item VALUES (md5(random()::text), 'unseen')")
        let count = try desk.integer("SELECT count(*) FROM item") ?? 0
        hand.pass(61_000)
        try await admit(store)
        #expect(try desk.integer("SELECT generation FROM salvor_table") == generation + 1)
        #expect(try DatabaseCheck(desk).uncaptured(store.view().catalog.tables, capturesReplicas: false) == [])
        #expect(try await page(store).matches(of: /unseen/).count == Int(count))
      }
      await store.close()
    }

    @Test(
      "A column's type that is altered under a running server is read as it is now, and one that goes keeps devices waiting"
    )
    func alteredTable() async throws {
      let store = try await open()
      try desk.execute("INSERT INTO item VALUES ('a', 'one')")
      #expect(try await page(store).contains("one"))
      // A prepared statement has another answer now. PostgreSQL wants the trigger away for it, which is put back.
      try desk.execute(
        "DROP TRIGGER \"!salvor_1_columns\" ON item; ALTER TABLE item ALTER COLUMN body TYPE varchar(40)")
      for _ in 0..<4 { #expect(try await page(store).contains("one")) }
      try desk.execute("ALTER TABLE item ADD COLUMN more text DEFAULT 'ours'")
      #expect(try await !page(store).contains("ours"))
      // Its trigger goes with it.
      try desk.execute("ALTER TABLE item DROP COLUMN id CASCADE")
      hand.pass(61_000)
      for _ in 0..<2 {
        let error = try await failure { try await admit(store) }
        #expect(error.code == .storageBusy && error.retryAfterMilliseconds != nil, "\(error)")
        #expect(error.message.contains("item"), "\(error.message)")
      }
      #expect(try await failure { try await store.answers() }.code == .storageBusy)
      try desk.execute("ALTER TABLE item ADD COLUMN id text COLLATE \"C\" PRIMARY KEY DEFAULT 'b'")
      hand.pass(61_000)
      try await admit(store)
      try await store.answers()
      #expect(try await page(store).contains("\"b\""))
      await store.close()
    }

    @Test(
      "Locks for minutes, the role's statement_timeout: what waits is put off with a time, and the server goes on after it"
    )
    func locks() async throws {
      // Long enough for every statement of a slow machine, the opening's among them.
      let timed = try role()
      try desk.execute(
        "ALTER ROLE \(timed.split(separator: "user=")[1].split(separator: " ")[0]) SET statement_timeout = 10000")
      for store in [
        try await open { $0.lockTimeoutMilliseconds = 100 },
        try await open { ($0.url, $0.lockTimeoutMilliseconds) = (timed, 600_000) },
      ] {
        let other = try PostgreSQLConnection(settings)
        try other.execute("BEGIN; LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
        let error = try await failure { _ = try await page(store) }
        #expect(error.code == .storageBusy && error.retryAfterMilliseconds == 1000, "\(error)")
        // The server itself is ready: what it has of its own is free.
        try await store.answers()
        try other.execute("COMMIT")
        _ = try await page(store)
        await store.close()
      }
    }

    @Test("Connections that are used up are an answer that devices come again after, and no failure")
    func connections() async throws {
      let url = try role("CONNECTION LIMIT 0")
      // A superuser has no limit.
      try desk.execute("ALTER ROLE \(url.split(separator: "user=")[1].split(separator: " ")[0]) NOSUPERUSER")
      let error = try #require(throws: SalvorError.self) { try PostgreSQLConnection(ConnectionSettings(url: url)) }
      #expect(
        error.code == .storageBusy && error.retryAfterMilliseconds == 1000 && error.sqlState == "53300", "\(error)")
      #expect(error.code.httpStatus == 503)
    }

    @Test("A process whose connections are ended goes on, and still counts as one that has the database open")
    func ended() async throws {
      let store = try await open()
      try desk.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
      )
      #expect(try await page(store).isEmpty == false)
      hand.pass(11_000)
      try await admit(store)
      let another = PostgreSQLServerStore(options())
      #expect(try await another.open(ServerSetup(schema: schema)).incarnation == store.opening?.incarnation)
      await another.close()
      await store.close()
    }

    @Test("A process that was cut off while another one began an incarnation takes it up: a timeline has one at a time")
    func cutOff() async throws {
      let store = try await open()
      try desk.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
      )
      let another = PostgreSQLServerStore(options())
      let begun = try await another.open(ServerSetup(schema: schema)).incarnation
      #expect(begun != store.opening?.incarnation)
      for (id, writer) in [("a", store), ("b", another), ("c", store)] {
        try desk.execute("INSERT INTO item VALUES ('\(id)', 'one')")
        _ = try await writer.sweep()
      }
      // The database's beginning has none.
      let incarnations = try desk.rows("SELECT DISTINCT incarnation FROM salvor_commit WHERE number > 0").map {
        $0[0].string
      }
      #expect(incarnations == [begun.text])
      #expect(store.opening?.incarnation == begun)
      await store.close()
      await another.close()
    }

    @Test("Quotes and Unicode in every name, names of 63 bytes, a table of 1,600 columns")
    func names() async throws {
      let long = "n" + String(repeating: "ä", count: 31)
      #expect(long.utf8.count == 63)
      try desk.execute(
        """
        CREATE SCHEMA "Öl \"\"Haus\"\" 'x'"; SET search_path = "Öl \"\"Haus\"\" 'x'";
        CREATE TABLE "\(long)" ("\(long)" text COLLATE "C" PRIMARY KEY, "sel""ect" text);
        CREATE TABLE wide (id bigint PRIMARY KEY, \((1...1599).map { "c\($0) text" }.joined(separator: ", ")))
        """)
      let schema = Schema(tables: [
        Table(long, primaryKey: [long], columns: [Column(long, .text), Column("sel\"ect", .text, nullable: true)]),
        Table(
          "wide", primaryKey: ["id"],
          columns: [Column("id", .integer)] + (1..<Limits().columnsMax).map { Column("c\($0)", .text, nullable: true) }),
      ])
      let store = PostgreSQLServerStore(
        options {
          ($0.tablesIn, $0.schema) = ("Öl \"Haus\" 'x'", "salvor's \"own\" ü")
        })
      _ = try await store.open(ServerSetup(schema: schema))
      try desk.execute(
        """
        INSERT INTO "\(long)" VALUES ('k', 'v'); INSERT INTO wide (id, c199, c1599) VALUES (1, 'first', 'ours');
        UPDATE wide SET c199 = 'last', c1 = 'one'
        """)
      _ = try await store.sweep()
      #expect(try await store.rows(of: long) == [["k", "v"]])
      let found = try await page(store)
      #expect(found.contains("\"last\"") && found.contains("\"k\"") && !found.contains("ours"))
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      var writer = UploadChunkWriter()
      let shape = writer.place(
        of: UploadShape(table: "wide", operation: .insert, columns: schema.tables[1].columns.map(\.name)))
      writer.beginChange(shape: shape, stamp: RequestStamp(from: SystemRandom()), counter: 1, made: 0)
      let values: [Value] = [2] + (1..<Limits().columnsMax).map { Value.text(Array("v\($0)".utf8)) }
      for value in values { writer.value(value) }
      writer.endChange()
      let chunk = UploadChunk(bytes: writer.finish(), firstCounter: 1, lastCounter: 1, changeCount: 1, isLast: true)
      let results = try await store.process(
        ProcessRequest(
          remote: remote, sequence: SequenceID(from: SystemRandom()), principal: Principal(name: "anna"),
          chunks: [chunk]))
      #expect(results.acceptedRequests == 1, "\(results.refused)")
      #expect(try desk.rows("SELECT c1, c199, c1599 FROM wide WHERE id = 2") == [["v1", "v199", .null]])
      await store.close()
    }

    @Test(
      "A wrong password, a standby, a read-only server, another encoding: each is named, and no password stands anywhere"
    )
    func wrongServers() async throws {
      let cluster = try PrivateCluster.another()
      let direct = try cluster.database()
      let postgres = try PostgreSQLConnection(direct)
      try postgres.execute("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right-password'")
      try cluster.allow("local all locked scram-sha-256")
      try postgres.execute("SELECT pg_reload_conf()")
      let url = direct.url.replacing("user=postgres", with: "user=locked")
      func opening(_ url: String) async throws -> SalvorError {
        let lines = Mutex<[String]>([])
        let store = PostgreSQLServerStore(
          options {
            $0.url = url
            $0.log = .lines { line in lines.withLock { $0.append(line) } }
          })
        let error = try await failure { _ = try await store.open(ServerSetup(schema: schema)) }
        await store.close()
        for text in lines.withLock({ $0 }) + ["\(error)", "\(error.context)"] { #expect(!text.contains("hunter2")) }
        return error
      }
      var refused = try await opening(url + " password=hunter2")
      while refused.code == .storageBusy || !refused.message.contains("authentication") {
        // The reload comes a moment later.
        refused = try await opening(url + " password=hunter2")
      }
      #expect(refused.code == .storage, "\(refused)")
      try postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
      let latin = try await opening(cluster.settings("latin").url)
      #expect(latin.code == .configuration && latin.message.contains("LATIN1"), "\(latin)")
      try postgres.execute("ALTER DATABASE \(PrivateCluster.name(direct)) SET default_transaction_read_only = on")
      let frozen = try await opening(direct.url)
      #expect(frozen.code == .storageBusy && frozen.message.contains("read-only"), "\(frozen)")
      let standby = try PrivateCluster(standbyOf: cluster, follows: true)
      try standby.start()
      let passive = try await opening(standby.settings(PrivateCluster.name(direct)).url)
      #expect(passive.code == .storageBusy && passive.message.contains("standby"), "\(passive)")
      try standby.stop()
    }

    @Test(
      "Two releases serve one database for the length of a rolling update, where the later one has only added to it")
    func laterFormat() async throws {
      let first = try await open()
      await first.close()
      let made = "SELECT value FROM salvor_server WHERE key = 'triggers.1'"
      let later = PostgreSQLTables.format + 1
      // As a later release would leave it: triggers and tables of its own.
      try desk.execute(
        "UPDATE salvor_server SET value = '\(later)' WHERE key = 'format'; UPDATE salvor_server SET value = 'later' WHERE key = 'triggers.1'"
      )
      let store = try await open()
      #expect(try desk.scalar(made) == "later")
      #expect(try desk.scalar("SELECT value FROM salvor_server WHERE key = 'format'")?.string == "\(later)")
      try desk.execute("INSERT INTO item VALUES ('a', 'one')")
      #expect(try await page(store).contains("one"))
      await store.close()
      try desk.execute("UPDATE salvor_server SET value = '\(later)' WHERE key = 'format-served'")
      let refused = try await failure { _ = try await open() }
      #expect(refused.code == .schemaRefused && refused.message.contains("Update this server"), "\(refused)")
    }

    @Test(
      "A database that has moved to another cluster says so at the first start there, once: the old one may live on")
    func clones() async throws {
      let lines = Mutex<[String]>([])
      let store = try await open()
      await store.close()
      try desk.execute("UPDATE salvor_server SET value = '1/1' WHERE key = 'cluster'")
      for expected in [1, 1] {
        let again = try await open { $0.log = .lines { line in lines.withLock { $0.append(line) } } }
        #expect(lines.withLock { $0.filter { $0.contains("adopt --new-id") }.count } == expected)
        await again.close()
      }
    }

    @Test("A blob that one process was asked about is kept by the others, where a limit is reached")
    func blobs() async throws {
      let limit = { (options: inout PostgreSQLServerStore.Options) in options.limits.blobStagingBytesMax = 800 }
      let (one, other) = (try await open(limit), try await open(limit))
      let anna = Principal(name: "anna")
      func blob(_ byte: UInt8) -> ([UInt8], BlobReference) {
        let bytes = [UInt8](repeating: byte, count: 600)
        return (bytes, BlobReference(hash: BlobHash(digest: bytes.withUnsafeBytes { sha256($0) }), size: 600))
      }
      let (bytes, wanted) = blob(1)
      _ = try await one.missingBlobs(of: [wanted], for: anna)
      #expect(try await one.stageBlob(Array(bytes[..<300]), of: wanted, at: 0, for: anna) == 300)
      // Nobody asked for this one: it does not take the room of the other.
      let (more, unasked) = blob(2)
      let refused = try await failure { _ = try await other.stageBlob(more, of: unasked, at: 0, for: anna) }
      #expect(refused.blobRoom == 800, "\(refused)")
      #expect(try await other.stageBlob(Array(bytes[300...]), of: wanted, at: 300, for: anna) == 600)
      // A device that is silent for long is given up.
      hand.pass(BlobsAtWork.patience(Limits()) + 1)
      #expect(try await other.stageBlob(more, of: unasked, at: 0, for: anna) == 600)
      for store in [one, other] { await store.close() }
    }
  }

  /// A clock that the test moves.
  final class HandClock: Clock {
    private let time = Mutex<Int64>(1_000_000_000)
    func now() -> Int64 { time.withLock { $0 } }
    func pass(_ milliseconds: Int64) { time.withLock { $0 += milliseconds } }
    func sleep(milliseconds: Int64) async throws { try await Task.sleep(for: .milliseconds(milliseconds)) }
  }
#endif
