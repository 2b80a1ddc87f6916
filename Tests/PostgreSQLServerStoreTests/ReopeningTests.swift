#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// What servers that run do when another history comes in their database's place (semantics 6): real PostgreSQL processes, promoted,
  /// stopped and restored under open stores.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct ReopeningTests {
    private let cluster: PrivateCluster
    private let database = "shop"
    private let schema = Schema(tables: [
      Table("item", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
    ])

    init() throws {
      cluster = try PrivateCluster.another()
      try PostgreSQLConnection(cluster.settings("postgres")).execute("CREATE DATABASE \(database)")
    }

    private func open(_ hosts: [PrivateCluster], folder: String? = nil, database: String? = nil) async throws
      -> PostgreSQLServerStore
    {
      let url =
        "host=\(hosts.map(\.folder).joined(separator: ",")) user=postgres dbname=\(database ?? self.database)"
      let store = PostgreSQLServerStore(.init(url: url, connections: 4, stateDirectory: folder))
      _ = try await store.open(ServerSetup(schema: schema))
      return store
    }

    /// A commit of another program's.
    private func write(_ id: String, _ store: PostgreSQLServerStore) async throws -> Commit {
      try await store.write([.insert(table: "item", values: [NamedValue("id", .text(Array(id.utf8)))])])
      return try await store.sweep()
    }

    /// A device's requests are answered `storage-busy` until the database is open again, and it comes again.
    private func comingAgain<Answer>(_ body: () async throws -> Answer) async throws -> Answer {
      while true {
        do {
          return try await body()
        } catch let error as SalvorError where error.code == .storageBusy {
          await Task.yield()
        }
      }
    }

    @Test("A failover that loses nothing: every process goes on with one new incarnation, and nothing is announced")
    func failover() async throws {
      let standby: PrivateCluster
      let first = try await open([cluster])
      let head = try await write("a", first)
      let before = try #require(first.opening)
      await first.close()
      standby = try PrivateCluster(standbyOf: cluster)
      let (one, other) = (try await open([cluster, standby]), try await open([cluster, standby]))
      let known = try #require(one.opening)
      #expect(known.incarnation != before.incarnation && known.incarnation == other.opening?.incarnation)
      try cluster.stop()
      try standby.start()
      try standby.promote()
      for store in [one, other] { #expect(try await comingAgain { try await store.sweep() } == head) }
      #expect(one.opening?.serverID == known.serverID)
      #expect(one.opening?.incarnation != known.incarnation)
      #expect(one.opening?.incarnation == other.opening?.incarnation)
      #expect(one.opening?.isRestored == false)
      #expect(try await one.restores(limit: 10).isEmpty)
      #expect(try await write("b", one).number == head.number + 1)
      #expect(try await other.rows(of: "item").count == 2)
      await one.close()
      await other.close()
    }

    @Test("A failover to a standby that lacks commits is a restore: written down once, sessions end, numbers go on")
    func laggingStandby() async throws {
      let first = try await open([cluster])
      let shared = try await write("a", first)
      await first.close()
      let standby = try PrivateCluster(standbyOf: cluster)
      let (one, other) = (try await open([cluster, standby]), try await open([cluster, standby]))
      let known = try #require(one.opening)
      let remote = RemoteID(from: SystemRandom())
      _ = try await write("lost", one)
      let lost = try await write("lost, too", other)
      // Each has seen it.
      #expect(try await one.sweep() == lost)
      for store in [one, other] {
        let admission = try await store.admit(
          AdmissionQuery(remote: remote, previous: nil, current: nil, cursors: [lost]))
        #expect(admission.cursors == [.known])
      }
      try cluster.stop()
      try standby.start()
      try standby.promote()
      for store in [one, other] { #expect(try await comingAgain { try await store.sweep() } == shared) }
      #expect(one.opening?.isRestored == true)
      #expect(one.opening?.incarnation != known.incarnation)
      #expect(one.opening?.incarnation == other.opening?.incarnation)
      for store in [one, other] {
        let restores = try await store.restores(limit: 10)
        #expect(restores.count == 1)
        #expect(restores.first?.parting == shared)
        #expect(restores.first?.lostLast == lost.number)
        #expect(restores.first?.lostIncarnation == known.incarnation)
        // A device that has seen more is told so.
        let admission = try await store.admit(
          AdmissionQuery(remote: remote, previous: nil, current: nil, cursors: [lost]))
        #expect(admission.cursors == [.unknown])
      }
      #expect(try await write("b", other).number == shared.number + 1)
      await one.close()
      await other.close()
    }

    @Test("A dump that is put back under an open connection is a restore for whoever writes next, however soon that is")
    func putBackUnderConnections() async throws {
      let store = try await open([cluster])
      let shared = try await write("a", store)
      try cluster.dump(cluster.settings(database), as: "old")
      let lost = try await write("lost", store)
      let before = try #require(store.opening)
      try cluster.restore("old", into: cluster.settings(database), "--clean", "--if-exists")
      // Not under the incarnation of before, and not by the number that was lost.
      try PostgreSQLConnection(cluster.settings(database)).execute("INSERT INTO item (id) VALUES ('b')")
      let next = try await comingAgain { try await store.sweep() }
      #expect(next.number == shared.number + 1 && next.number == lost.number && next.id != lost.id)
      #expect(store.opening?.isRestored == true && store.opening?.incarnation != before.incarnation)
      let restores = try await store.restores(limit: 10)
      #expect(restores.map(\.lostLast) == [lost.number])
      let admission = try await store.admit(
        AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: [lost]))
      #expect(admission.cursors == [.unknown])
      await store.close()
    }

    @Test(
      "Another server's database in the place of its own: nobody is served, and nothing is written into it, until its own is back"
    )
    func anotherServer() async throws {
      let store = try await open([cluster])
      let head = try await write("a", store)
      let admin = try PostgreSQLConnection(cluster.settings("postgres"))
      try admin.execute("CREATE DATABASE theirs")
      let other = PostgreSQLServerStore(
        .init(url: "host=\(cluster.folder) user=postgres dbname=theirs", connections: 4))
      // Of an older schema: without the column.
      let older = Schema(tables: [Table("item", primaryKey: ["id"], columns: [Column("id", .text)])])
      _ = try await other.open(ServerSetup(schema: older))
      await other.close()
      func swap(_ names: (String, String)...) throws {
        for (old, new) in names {
          try admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '\(old)'; ALTER DATABASE \(old) RENAME TO \(new)"
          )
        }
      }
      try swap((database, "mine"), ("theirs", database))
      for _ in 1...3 {
        var found: SalvorError?
        // One whose connection is gone is busy, too, and says so otherwise.
        while found?.message.contains("another server's") != true { found = await refusal(store) }
        #expect(found?.code == .storageBusy)
      }
      let theirs = try PostgreSQLConnection(cluster.settings(database))
      #expect(try theirs.integer("SELECT count(*) FROM information_schema.columns WHERE table_name = 'item'") == 1)
      theirs.close()
      try swap((database, "theirs"), ("mine", database))
      #expect(try await comingAgain { try await store.sweep() } == head)
      #expect(try await store.rows(of: "item").count == 1)
      await store.close()
    }

    @Test(
      "A dump that is put back under two processes is a restore with one new incarnation, though each finds the other there"
    )
    func putBackUnderTwo() async throws {
      let (one, other) = (try await open([cluster]), try await open([cluster]))
      let before = try #require(one.opening)
      #expect(other.opening?.incarnation == before.incarnation)
      let shared = try await write("a", one)
      try cluster.dump(cluster.settings(database), as: "old")
      // Each has seen a commit that goes.
      _ = try await write("lost", other)
      let lost = try await write("lost, too", one)
      try cluster.restore("old", into: cluster.settings(database), "--clean", "--if-exists")
      let desk = try PostgreSQLConnection(cluster.settings(database))
      // Who numbers next finds it out.
      for (id, store) in [("b", one), ("c", other)] {
        try desk.execute("INSERT INTO item (id) VALUES ('\(id)')")
        _ = try await comingAgain { try await store.sweep() }
      }
      let now = try #require(one.opening?.incarnation)
      #expect(now != before.incarnation && other.opening?.incarnation == now)
      #expect(try await one.restores(limit: 10).map(\.lostLast) == [lost.number])
      let since = try desk.rows(
        "SELECT DISTINCT incarnation FROM salvor.salvor_commit WHERE number > \(shared.number)")
      #expect(since == [[.text(Array(now.text.utf8))]])
      desk.close()
      await one.close()
      await other.close()
    }

    @Test("The old primary lives on and takes writes: each of both finds out who has met the other")
    func twoPrimaries() async throws {
      let first = try await open([cluster])
      let shared = try await write("a", first)
      let before = try #require(first.opening)
      await first.close()
      let standby = try PrivateCluster(standbyOf: cluster)
      try standby.start()
      try standby.promote()
      // Nobody has stopped the old one.
      let (old, new) = (try await open([cluster]), try await open([standby]))
      let (ofOld, ofNew) = (try await write("of the old one", old), try await write("of the new one", new))
      #expect(ofOld.number == ofNew.number && ofOld.id != ofNew.id)
      let (one, other) = (try #require(old.opening), try #require(new.opening))
      #expect(one.serverID == other.serverID && one.incarnation != other.incarnation)
      let known = Incarnation(id: before.incarnation, firstCommit: shared.number)
      for (store, opening, seen) in [(old, other, ofNew), (new, one, ofOld)] {
        let admission = try await store.admit(
          AdmissionQuery(
            remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: [seen],
            commits: [shared, seen],
            incarnations: [known, Incarnation(id: opening.incarnation, firstCommit: seen.number)],
            incarnation: opening.incarnation))
        #expect(admission.cursors == [.unknown])
        #expect(admission.lastShared == shared)
      }
      let lost = try await write("lost", old)
      await old.close()
      // A process that reaches either one: libpq takes the old one, which nobody is served by.
      await #expect(throws: SalvorError.self) { try await open([cluster, standby]) }
      // Until somebody says that it counts.
      let operating = PostgreSQLServerStore(.init(url: "host=\(cluster.folder) user=postgres dbname=\(database)"))
      await #expect(throws: SalvorError.self) { try await operating.takeHistory(over: 1) }
      _ = try await operating.takeHistory(over: 2)
      let both = try await open([cluster, standby])
      #expect(try await both.sweep() == lost)
      try cluster.stop()
      #expect(try await comingAgain { try await both.sweep() } == ofNew)
      #expect(both.opening?.isRestored == true)
      #expect(both.opening?.incarnation == other.incarnation)
      // What the process knows is its own last commit, and where the other one stands now.
      var restores = try await both.restores(limit: 10)
      #expect(restores.map(\.parting) == [ofNew])
      #expect(restores.map(\.lostLast) == [lost.number])
      // And back again: the same number is given to a third commit, under a third name.
      let after = try await write("after", both)
      #expect(after.number == lost.number && after.id != lost.id)
      try cluster.start()
      try standby.stop()
      #expect(try await comingAgain { try await both.sweep() } == lost)
      #expect(both.opening?.isRestored == true)
      // It took up the one that `new` had begun there.
      #expect(both.opening?.incarnation != other.incarnation)
      restores = try await both.restores(limit: 10)
      #expect(restores.map(\.parting) == [lost])
      #expect(restores.map(\.lostLast) == [after.number])
      #expect(try await write("b", both).number == lost.number + 1)
      await both.close()
      await new.close()
    }

    /// What everybody is told now; nil: everybody is served.
    private func refusal(_ store: PostgreSQLServerStore) async -> SalvorError? {
      do {
        _ = try await store.sweep()
        return nil
      } catch {
        return error as? SalvorError
      }
    }

    @Test(
      "A process that has seen the promoted one serves nobody on the old primary, also after a start, until a person says that it counts"
    )
    func backToTheOldPrimary() async throws {
      let folder = NSTemporaryDirectory() + "salvor-state-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: folder) }
      let first = try await open([cluster])
      let shared = try await write("a", first)
      await first.close()
      let standby = try PrivateCluster(standbyOf: cluster)
      try cluster.stop()
      try standby.start()
      try standby.promote()
      let store = try await open([cluster, standby], folder: folder)
      let lost = try await write("of the promoted one", store)
      // Somebody starts the old one, and the promoted one is lost.
      try cluster.start()
      try standby.stop()
      let server = try PostgreSQLConnection(cluster.settings(database))
      func commits() throws -> Int64? { try server.integer("SELECT max(number) FROM salvor.salvor_commit") }
      for _ in 0..<3 {
        let refused = await refusal(store)
        #expect(refused?.code == .storageBusy)
        #expect(refused?.message.contains("salvor server adopt --over 2") == true)
      }
      await #expect(throws: SalvorError.self) { try await store.answers() }
      await #expect(throws: SalvorError.self) { try await open([cluster], folder: folder) }
      #expect(try commits() == shared.number)
      // As `salvor server adopt` does it.
      let operating = PostgreSQLServerStore(.init(url: "host=\(cluster.folder) user=postgres dbname=\(database)"))
      #expect(try await operating.takeHistory(over: 2) == database)
      #expect(try await comingAgain { try await store.sweep() } == shared)
      try await store.answers()
      #expect(store.opening?.isRestored == true)
      #expect(try await store.restores(limit: 10).map(\.lostLast) == [lost.number])
      #expect(try await write("b", store).number == shared.number + 1)
      await store.close()
    }

    @Test(
      "An old primary that comes back under a server is found by the other hosts of url, and nobody is served by it any more"
    )
    func promotedBeside() async throws {
      let first = try await open([cluster])
      _ = try await write("a", first)
      await first.close()
      let standby = try PrivateCluster(standbyOf: cluster)
      let store = try await open([cluster, standby])
      let head = try await write("lost", store)
      try standby.start()
      try standby.promote()
      await store.lookAtOthers()
      #expect(await refusal(store)?.message.contains("salvor server adopt --over 2") == true)
      // It is stopped: the promoted one lacks the commit.
      try cluster.stop()
      #expect(try await comingAgain { try await store.sweep() }.number < head.number)
      #expect(store.opening?.isRestored == true)
      await store.close()
    }

    @Test("pg_upgrade makes another cluster of the same history: nothing is announced, and the numbers go on")
    func upgrade() async throws {
      let folder = NSTemporaryDirectory() + "salvor-state-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: folder) }
      var store = try await open([cluster], folder: folder)
      let head = try await write("a", store)
      let facts = try HistoryFacts(PostgreSQLConnection(cluster.settings(database)))
      await store.close()
      let upgraded = try PrivateCluster(upgradeOf: cluster)
      try upgraded.start()
      let (finding, now) = try facts.finding(in: PostgreSQLConnection(upgraded.settings(database)))
      #expect(finding == .copy)
      #expect(now.system != facts.system && now.head == facts.head)
      store = try await open([upgraded], folder: folder)
      #expect(store.opening?.isRestored == false)
      #expect(try await store.restores(limit: 10).isEmpty)
      let admission = try await store.admit(
        AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: [head]))
      #expect(admission.cursors == [.known])
      #expect(try await write("b", store).number == head.number + 1)
      await store.close()
    }

    @Test("A standby that has followed and is promoted keeps sessions from there on")
    func sessionsOfAPromotedStandby() async throws {
      let standby = try PrivateCluster(standbyOf: cluster, follows: true)
      try standby.start()
      let store = try await open([cluster, standby])
      func converse(_ token: String) async throws -> Int {
        try await comingAgain {
          try await store.conversing("bound") { desk in
            try desk.put(
              Conversation(
                kind: .session, token: token, remote: RemoteID(from: SystemRandom()), principal: "anna",
                subject: StoredSubject(bytes: []), lastSeen: 5))
            return try desk.count(.session, principal: nil)
          }
        }
      }
      #expect(try await converse("a") == 1)
      let head = try await write("a", store)
      var settings = standby.settings(database)
      settings.isWriter = false
      let follower = try PostgreSQLConnection(settings)
      while try !follower.isThere("SELECT 1 FROM salvor_commit WHERE number = \(head.number)") { usleep(5000) }
      follower.close()
      try cluster.stop()
      try standby.promote()
      // The table is empty there.
      #expect(try await converse("b") == 1)
      #expect(try await converse("c") == 2)
      await store.close()
    }

    @Test("A start on a dump that lacks what the process's folder remembers is a restore, until there is a new commit")
    func olderDump() async throws {
      let folder = NSTemporaryDirectory() + "salvor-state-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: folder) }
      await #expect(throws: SalvorError.self) { try await open([cluster], folder: folder + "/none") }
      var store = try await open([cluster], folder: folder)
      let shared = try await write("a", store)
      try cluster.restoreDump(of: database, as: "copy")
      let lost = try await write("b", store)
      await store.close()
      // The same database again is no restore.
      store = try await open([cluster], folder: folder)
      #expect(store.opening?.isRestored == false)
      await store.close()
      for _ in 0..<2 {
        store = try await open([cluster], folder: folder, database: "copy")
        #expect(store.opening?.isRestored == true)
        let restores = try await store.restores(limit: 10)
        #expect(restores.map(\.lostLast) == [lost.number])
        #expect(restores.map(\.parting) == [shared])
        await store.close()
      }
      store = try await open([cluster], folder: folder, database: "copy")
      _ = try await write("c", store)
      await store.close()
      store = try await open([cluster], folder: folder, database: "copy")
      #expect(store.opening?.isRestored == false)
      #expect(try await store.restores(limit: 10).count == 1)
      await store.close()
    }
  }
#endif
