#if PostgreSQL
  import Foundation
  import MemoryStore
  import SalvorContracts
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import Testing

  @testable import PostgreSQLServerStore

  /// What is PostgreSQL's own of a server store; the rules that every one keeps are in the contract.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct StoreTests {
    private let settings: ConnectionSettings
    private let schema = Schema(tables: [
      Table("item", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
    ])

    init() throws { settings = try #require(PrivateCluster.shared).database() }

    private func store() async throws -> (PostgreSQLServerStore, ServerOpening) {
      // No test of how long somebody waits.
      let store = PostgreSQLServerStore(
        PostgreSQLServerStore.Options(url: settings.url, connections: 4, lockTimeoutMilliseconds: 600_000))
      return (store, try await store.open(ServerSetup(schema: schema)))
    }

    private func chunk(_ rows: [(String, [UInt8])], from first: Int64 = 1, _ stamp: RequestStamp) -> UploadChunk {
      var writer = UploadChunkWriter()
      for (place, row) in rows.enumerated() {
        let shape = writer.place(of: UploadShape(table: "item", operation: .insert, columns: ["id", "body"]))
        writer.beginChange(shape: shape, stamp: stamp, counter: first + Int64(place), made: 0)
        writer.value(.text(row.0))
        writer.value(.text(row.1))
        writer.endChange()
      }
      return UploadChunk(
        bytes: writer.finish(), firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
        changeCount: writer.changeCount, isLast: true)
    }

    private func upload(
      _ store: PostgreSQLServerStore, _ remote: RemoteID, _ sequence: SequenceID, _ chunk: UploadChunk
    ) async throws -> UploadResults {
      try await store.process(
        ProcessRequest(remote: remote, sequence: sequence, principal: Principal(name: "anna"), chunks: [chunk]))
    }

    private func eventually(_ what: String, _ condition: () async throws -> Bool) async throws {
      for _ in 0..<6000 where try await !condition() { try await Task.sleep(for: .milliseconds(10)) }
      #expect(try await condition(), "\(what)")
    }

    /// Until nothing is told any more: from then on nothing was.
    private func silence(_ heard: borrowing Mutex<Int>) async throws {
      while heard.withLock({ count in
        defer { count = 0 }; return count
      }) > 0 {
        try await Task.sleep(for: .milliseconds(100))
      }
    }

    @Test("Two processes share one incarnation, and a resent upload is applied once, whichever of them gets it")
    func twoProcesses() async throws {
      let (one, opening) = try await store()
      let (other, joined) = try await store()
      #expect(joined.serverID == opening.serverID)
      #expect(joined.incarnation == opening.incarnation)
      let remote = RemoteID(from: SystemRandom()), sequence = SequenceID(from: SystemRandom())
      try await one.register(remote, principal: "anna")
      let chunk = chunk([("a", Array("x".utf8))], RequestStamp(from: SystemRandom()))
      async let first = upload(one, remote, sequence, chunk)
      async let second = upload(other, remote, sequence, chunk)
      let results = try await [first, second]
      #expect(results[0] == results[1])
      #expect(results[0].acceptedRequests == 1)
      #expect(try await other.rows(of: "item") == [["a", "x"]])
      #expect(try await one.sweep() == other.sweep())
      await one.close()
      await other.close()
      let (again, later) = try await store()
      #expect(later.serverID == opening.serverID)
      #expect(later.incarnation != opening.incarnation)
      await again.close()
    }

    @Test(
      "A commit of one process is told to the others at once, and again after the connection that listens was ended")
    func commitsAreTold() async throws {
      let (one, _) = try await store()
      let (other, _) = try await store()
      let remote = RemoteID(from: SystemRandom())
      try await one.register(remote, principal: "anna")
      let heard = Mutex(0)
      let stream = try #require(other.writes())
      let listening = Task { for await _ in stream { heard.withLock { $0 += 1 } } }
      let desk = try PostgreSQLConnection(settings)
      let listeners = "pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
      for row in 0..<3 {
        // A connection that begins to listen tells of what it may have missed.
        try await eventually("it listens") { try desk.isThere("SELECT \(listeners)") && heard.withLock { $0 } > 0 }
        try await silence(heard)
        let results = try await upload(
          one, remote, SequenceID(from: SystemRandom()),
          chunk([("r\(row)", [0x78])], RequestStamp(from: SystemRandom())))
        #expect(results.acceptedRequests == 1)
        try await eventually("the commit is told") { heard.withLock { $0 } > 0 }
        // What another program writes is told once somebody has looked.
        try await silence(heard)
        try desk.execute("UPDATE item SET body = body || 'y'")
        _ = try await one.sweep()
        try await eventually("another program's commit is told") { heard.withLock { $0 } > 0 }
        try await silence(heard)
        try desk.execute("SELECT pg_terminate_backend(pid) FROM (SELECT \(listeners)) AS l")
      }
      listening.cancel()
      desk.close()
      await one.close()
      await other.close()
    }

    @Test(
      "ConversationContract: two processes know the same sessions and recoveries", arguments: ConversationContract.cases
    )
    func keepsConversations(_ rule: ConversationContract.Case) async throws {
      let (one, _) = try await store()
      let (other, _) = try await store()
      try await rule.run(ConversationContract.Subject(here: one, there: other))
      await one.close()
      await other.close()
    }

    @Test("A begin with nothing to do is two statements: its checks, and the look for a session")
    func nothingToDo() async throws {
      // Nobody else writes into its log.
      let cluster = try PrivateCluster.another()
      let settings = try cluster.database()
      let desk = try PostgreSQLConnection(settings)
      try desk.execute("ALTER DATABASE \(PrivateCluster.name(settings)) SET log_statement = 'all'")
      let store = PostgreSQLServerStore(.init(url: settings.url, connections: 4))
      _ = try await store.open(ServerSetup(schema: schema))
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      func request(_ groups: [GroupState]) -> PageRequest {
        PageRequest(
          remote: remote, principal: Principal(name: "anna"), groups: groups, position: nil, bytesTarget: 1 << 20)
      }
      _ = try await upload(
        store, remote, SequenceID(from: SystemRandom()), chunk([("a", [0x78])], RequestStamp(from: SystemRandom())))
      let groups = try #require(await store.page(request([GroupState(name: "default")])).groups)
      let incarnation = try desk.scalar("SELECT id FROM salvor_incarnation ORDER BY first_commit DESC LIMIT 1")
      let query = AdmissionQuery(
        remote: remote, previous: nil, current: nil, cursors: groups.compactMap(\.cursor),
        incarnation: incarnation?.string.flatMap { IncarnationID($0) }, download: request(groups))
      let own = try desk.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
      )
      .compactMap { $0[0].integer }
      let log = cluster.folder + "/log"
      func statements() throws -> Int {
        try String(decoding: Data(contentsOf: URL(fileURLWithPath: log)), as: UTF8.self).split(separator: "\n").count {
          line in
          (line.contains(" LOG:  execute ") || line.contains(" LOG:  statement: "))
            && own.contains { line.contains("[\($0)]") }
        }
      }
      var fewest = Int.max
      // Now and then the database is looked at, too.
      for _ in 0..<200 where fewest > 2 {
        let before = try statements()
        #expect(try await store.admit(query).page?.groups?.map(\.cursor) == groups.map(\.cursor))
        #expect(try await store.conversing(nil) { try $0.all(.session, of: remote).isEmpty })
        fewest = min(fewest, try statements() - before)
      }
      #expect(fewest == 2)
      desk.close()
      await store.close()
    }

    @Test("A lock that is not given in time fails what asked for it, and nothing that comes after")
    func lockTimeout() async throws {
      var options = PostgreSQLServerStore.Options(url: settings.url, connections: 4)
      options.headTimeoutMilliseconds = 100
      let store = PostgreSQLServerStore(options)
      _ = try await store.open(ServerSetup(schema: schema))
      let remote = RemoteID(from: SystemRandom()), sequence = SequenceID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      let chunk = chunk([("a", Array("x".utf8))], RequestStamp(from: SystemRandom()))
      let other = try PostgreSQLConnection(settings)
      try other.execute("BEGIN; LOCK TABLE salvor.salvor_head IN EXCLUSIVE MODE")
      for _ in 0..<2 {
        let error = await #expect(throws: SalvorError.self) { try await upload(store, remote, sequence, chunk) }
        #expect(error?.code == .storageBusy)
      }
      try other.execute("COMMIT")
      #expect(try await upload(store, remote, sequence, chunk).acceptedRequests == 1)
      await store.close()
    }

    @Test("A row that another program holds for long keeps an upload of other rows from nothing")
    func heldRow() async throws {
      // So long that whoever looks sees it wait.
      var options = PostgreSQLServerStore.Options(url: settings.url, connections: 4, lockTimeoutMilliseconds: 600_000)
      options.heldLockTimeoutMilliseconds = 2000
      let (store, beside) = (PostgreSQLServerStore(options), PostgreSQLServerStore(options))
      for store in [store, beside] { _ = try await store.open(ServerSetup(schema: schema)) }
      let other = try PostgreSQLConnection(settings), desk = try PostgreSQLConnection(settings)
      try other.execute("INSERT INTO item VALUES ('a', 'x')")
      try other.execute("BEGIN; SELECT 1 FROM item WHERE id = 'a' FOR UPDATE")
      let (one, two) = (RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom()))
      for remote in [one, two] { try await store.register(remote, principal: "anna") }
      let held = chunk([("a", Array("held".utf8))], RequestStamp(from: SystemRandom()))
      async let waiting = upload(store, one, SequenceID(from: SystemRandom()), held)
      try await eventually("it waits for the row") {
        try desk.isThere(
          "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
      }
      let free = chunk([("b", Array("free".utf8))], RequestStamp(from: SystemRandom()))
      #expect(try await upload(beside, two, SequenceID(from: SystemRandom()), free).acceptedRequests == 1)
      #expect(try await store.rows(of: "item") == [["a", "x"], ["b", "free"]])
      try other.execute("COMMIT")
      #expect(try await waiting.acceptedRequests == 1)
      await beside.close()
      await store.close()
    }

    @Test("Another program's open transaction keeps nobody from opening the database")
    func openedBesideWriters() async throws {
      let (store, _) = try await store()
      let other = try PostgreSQLConnection(settings)
      try other.execute("BEGIN; INSERT INTO public.item (id, body) VALUES ('a', 'not committed yet')")
      var options = PostgreSQLServerStore.Options(url: settings.url, connections: 4)
      options.lockTimeoutMilliseconds = 100
      let beside = PostgreSQLServerStore(options)
      _ = try await beside.open(ServerSetup(schema: schema))
      try other.execute("COMMIT")
      #expect(try await beside.rows(of: "item") == [["a", "not committed yet"]])
      await beside.close()
      await store.close()
    }

    @Test("Several processes that open a new database at once all open it")
    func openedAtOnce() async throws {
      let (settings, schema) = (settings, schema)
      let ids = try await withThrowingTaskGroup(of: ServerID.self) { group in
        for _ in 0..<4 {
          group.addTask {
            let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
            let opening = try await store.open(ServerSetup(schema: schema))
            _ = try await store.sweep()
            await store.close()
            return opening.serverID
          }
        }
        return try await group.reduce(into: Set<ServerID>()) { $0.insert($1) }
      }
      #expect(ids.count == 1)
    }

    @Test("A value that PostgreSQL does not store refuses its request; the rest of the upload stands")
    func notStorable() async throws {
      let (store, _) = try await store()
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      let results = try await upload(
        store, remote, SequenceID(from: SystemRandom()),
        chunk([("a", [0x61, 0, 0x62]), ("b", Array("fine".utf8))], RequestStamp(from: SystemRandom())))
      #expect(results.refused.map(\.reason) == [.notStorable])
      #expect(try await store.rows(of: "item") == [["b", "fine"]])
      await store.close()
    }

    @Test("Uploads of two processes beside other programs: each change is fed once it is committed, and none is lost")
    func besideOthers() async throws {
      let (one, _) = try await store()
      let (other, _) = try await store()
      let url = settings.url
      let rows = 1200
      try await withThrowingTaskGroup(of: Void.self) { group in
        for (place, store) in [one, other].enumerated() {
          group.addTask {
            let remote = RemoteID(from: SystemRandom()), stamp = RequestStamp(from: SystemRandom())
            try await store.register(remote, principal: "anna")
            for round in 0..<15 {
              let sent = (0..<20).map { ("u\(place)-\(round)-\($0)", Array("x".utf8)) }
              let results = try await upload(
                store, remote, SequenceID(from: SystemRandom()), chunk(sent, from: Int64(round * 20 + 1), stamp))
              #expect(results.acceptedRequests == 20)
            }
          }
        }
        for writer in 0..<3 {
          group.addTask {
            let connection = try PostgreSQLConnection(ConnectionSettings(url: url))
            for round in 0..<40 {
              try connection.execute(
                """
                BEGIN; INSERT INTO item SELECT 'w\(writer)-\(round)-' || n FROM generate_series(1, 5) n;
                SAVEPOINT s; INSERT INTO item VALUES ('gone \(writer)'); ROLLBACK TO s; COMMIT
                """)
              if round % 7 == 0 { try connection.execute("SELECT pg_sleep(0.01)") }
            }
          }
        }
        // A device that downloads all the time, from whichever process.
        group.addTask {
          let principal = Principal(name: "ben"), remote = RemoteID(from: SystemRandom())
          var groups = [GroupState(name: Schema.defaultGroup)]
          var seen: [String: Int] = [:]
          var rounds = 0
          // On a loaded machine the writers take long.
          let patience = ContinuousClock.now + .seconds(240)
          while seen.count < rows, ContinuousClock.now < patience {
            rounds += 1
            try await Task.sleep(for: .milliseconds(2))
            var position: String?
            repeat {
              let page = try await (rounds.isMultiple(of: 2) ? one : other).page(
                PageRequest(
                  remote: remote, principal: principal, groups: groups, position: position, bytesTarget: 1 << 14))
              for text in String(decoding: page.bytes, as: UTF8.self).matches(of: #/"([uw]\d-[\d-]+)"/#) {
                seen[String(text.1), default: 0] += 1
              }
              position = page.position
              if let after = page.groups { groups = after }
            } while position != nil
          }
          #expect(seen.count == rows)
        }
        try await group.waitForAll()
      }
      #expect(try await one.rows(of: "item").count == rows)
      await one.close()
      await other.close()
    }

    @Test(
      "A sender's change and another program's of the same row at the same moment: the upload is begun anew and sees it"
    )
    func serialization() async throws {
      let (store, _) = try await store()
      let connection = try PostgreSQLConnection(settings)
      try connection.execute("INSERT INTO item VALUES ('a', 'old')")
      let head = try await store.sweep()
      try connection.execute("BEGIN; UPDATE item SET body = 'theirs' WHERE id = 'a'")
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      var writer = UploadChunkWriter()
      let shape = writer.place(of: UploadShape(table: "item", operation: .update, columns: ["body"]))
      writer.beginChange(shape: shape, stamp: RequestStamp(from: SystemRandom()), counter: 1, made: head.number)
      for value in ["a", "old", "mine"] { writer.value(.text(value)) }
      writer.endChange()
      let chunk = UploadChunk(
        bytes: writer.finish(), firstCounter: 1, lastCounter: 1, changeCount: 1, isLast: true)
      async let results = upload(store, remote, SequenceID(from: SystemRandom()), chunk)
      // It waits for the row by now, or will read what is committed.
      try await Task.sleep(for: .milliseconds(300))
      try connection.execute("COMMIT")
      #expect(try await results.conflicts == 1)
      #expect(try await store.rows(of: "item") == [["a", "mine"]])
      await store.close()
    }

    @Test(
      "A unique value that another program takes while an upload runs, and gives up again: the upload is begun anew")
    func lateUniqueValue() async throws {
      var settings = try #require(PrivateCluster.shared).database()
      // No test of how long somebody waits.
      settings.lockTimeout = 600_000
      let schema = Schema(tables: [
        Table(
          "seat", primaryKey: ["id"], columns: [Column("id", .text), Column("number", .text)], unique: [["number"]])
      ])
      var options = PostgreSQLServerStore.Options(
        url: settings.url, connections: 4, lockTimeoutMilliseconds: 600_000)
      options.heldLockTimeoutMilliseconds = 600_000
      let store = PostgreSQLServerStore(options)
      _ = try await store.open(ServerSetup(schema: schema))
      let other = try PostgreSQLConnection(settings)
      defer { other.close() }
      // The upload waits in a trigger of the application's until the other program has committed twice.
      try other.execute(
        """
        INSERT INTO seat VALUES ('s', 'old');
        CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END$$;
        CREATE TRIGGER hold BEFORE UPDATE ON seat FOR EACH ROW EXECUTE FUNCTION hold()
        """)
      let head = try await store.sweep()
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      try other.execute("BEGIN; SELECT pg_advisory_xact_lock(77)")
      let sender = try PostgreSQLConnection(settings)
      var writer = UploadChunkWriter()
      let stamp = RequestStamp(from: SystemRandom())
      let shape = writer.place(of: UploadShape(table: "seat", operation: .update, columns: ["number"]))
      writer.beginChange(shape: shape, stamp: stamp, counter: 1, made: head.number)
      for value in ["s", "old", "wanted"] { writer.value(.text(value)) }
      writer.endChange()
      let chunk = UploadChunk(bytes: writer.finish(), firstCounter: 1, lastCounter: 1, changeCount: 1, isLast: true)
      async let results = upload(store, remote, SequenceID(from: SystemRandom()), chunk)
      let waits =
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory' AND datname = current_database()"
      try await eventually("the upload waits") { try sender.isThere(waits) }
      // Taken after the upload's snapshot, and given up before its next one.
      try sender.execute("INSERT INTO seat VALUES ('t', 'wanted')")
      try other.execute("COMMIT; BEGIN; SELECT pg_advisory_xact_lock(77)")
      try await eventually("it is begun anew") { try sender.isThere(waits) }
      try sender.execute("DELETE FROM seat WHERE id = 't'")
      try other.execute("COMMIT")
      #expect(try await results.refused.isEmpty)
      #expect(try await store.rows(of: "seat") == [["s", "wanted"]])
      await store.close()
    }

    @Test(
      "A key that another program takes while an upload is processed is a row that the upload meets, not a broken constraint"
    )
    func takenMeanwhile() async throws {
      let (store, _) = try await store()
      let connection = try PostgreSQLConnection(settings)
      try connection.execute("BEGIN; INSERT INTO item VALUES ('a', 'theirs')")
      let remote = RemoteID(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      // One request of two changes.
      var writer = UploadChunkWriter()
      let shape = writer.place(of: UploadShape(table: "item", operation: .insert, columns: ["id", "body"]))
      let stamp = RequestStamp(from: SystemRandom())
      writer.request(first: 1, last: 2, tag: nil)
      for (counter, key) in [(Int64(1), "b"), (2, "a")] {
        writer.beginChange(shape: shape, stamp: stamp, counter: counter, made: 0)
        for value in [key, "mine"] { writer.value(.text(Array(value.utf8))) }
        writer.endChange()
      }
      let chunk = UploadChunk(bytes: writer.finish(), firstCounter: 1, lastCounter: 2, changeCount: 2, isLast: true)
      async let results = upload(store, remote, SequenceID(from: SystemRandom()), chunk)
      // It waits for the key by now, or will read what is committed.
      try await Task.sleep(for: .milliseconds(300))
      try connection.execute("COMMIT")
      let found = try await results
      #expect(found.acceptedRequests == 1)
      #expect(found.refused.isEmpty)
      #expect(found.conflicts == 1)
      #expect(try await store.rows(of: "item") == [["a", "mine"], ["b", "mine"]])
      await store.close()
    }

    @Test("A trigger that somebody dropped is put back at the next start, and its group comes whole once")
    func droppedTrigger() async throws {
      let (store, _) = try await store()
      let connection = try PostgreSQLConnection(settings)
      await store.close()
      try connection.execute(
        "DROP TRIGGER \"!salvor_1_insert\" ON item; INSERT INTO item VALUES ('unseen', 'x'); ANALYZE item")
      let (again, _) = try await self.store()
      try connection.execute("INSERT INTO item VALUES ('seen', 'x')")
      #expect(try await again.sweep().number > 0)
      #expect(try await again.rows(of: "item").count == 2)
      #expect(try again.view().catalog.tables[0].name == "item")
      #expect(
        try connection.integer("SELECT generation FROM salvor_table WHERE name = 'item'") == 1)
      await again.close()
    }
  }
#endif
