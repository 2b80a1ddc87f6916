#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import Testing

  @testable import PostgreSQLServerStore

  /// A real standby that follows, pauses, dies and comes back, beside a server that downloads from it.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct ReplicaTests {
    private let primary: PrivateCluster
    private let standby: PrivateCluster
    private let database: String
    private let schema = Schema(tables: [
      Table("place", primaryKey: ["id"], columns: [Column("id", .text)]),
      Table(
        "visit", primaryKey: ["id"], columns: [Column("id", .text), Column("place", .text)],
        references: [Reference(column: "place", table: "place")]),
    ])
    private let hand = HandClock()

    init() throws {
      primary = try PrivateCluster.another()
      database = "shop"
      try PostgreSQLConnection(primary.settings("postgres")).execute("CREATE DATABASE shop")
      standby = try PrivateCluster(standbyOf: primary, follows: true)
      try standby.start()
    }

    private func open() async throws -> PostgreSQLServerStore {
      var options = PostgreSQLServerStore.Options(
        url: primary.settings(database).url, connections: 4, readReplica: standby.settings(database).url)
      options.clock = hand
      let store = PostgreSQLServerStore(options)
      _ = try await store.open(ServerSetup(schema: schema))
      return store
    }

    private func onStandby(_ sql: String) throws {
      var settings = standby.settings(database)
      settings.isWriter = false
      _ = try PostgreSQLConnection(settings).once(sql)
    }

    /// What a download has brought.
    private struct Fetched {
      var places: Set<Substring> = []
      var pages = 0
    }

    private func download(
      _ store: PostgreSQLServerStore, bytes: Int = 1 << 12, between: (Int) async throws -> Void = { _ in }
    ) async throws -> Fetched {
      var request = PageRequest(
        remote: RemoteID(from: SystemRandom()), principal: Principal(name: "ben"),
        groups: [GroupState(name: Schema.defaultGroup)], position: nil, bytesTarget: bytes)
      var found = Fetched()
      repeat {
        let page = try await store.page(request)
        found.places.formUnion(String(decoding: page.bytes, as: UTF8.self).matches(of: #/"(p\d+)"/#).map(\.1))
        found.pages += 1
        request.position = page.position
        try await between(found.pages)
      } while request.position != nil
      return found
    }

    private func figures(_ store: PostgreSQLServerStore) throws -> ReadReplica.Figures {
      try #require(store.replica).figures
    }

    /// Until the standby has replayed all.
    private func followed() throws {
      let desk = try PostgreSQLConnection(primary.settings(database))
      let place = try #require(try desk.scalar("SELECT pg_current_wal_lsn()::text")?.string)
      var settings = standby.settings(database)
      settings.isWriter = false
      let replica = try PostgreSQLConnection(settings)
      while try replica.integer("SELECT pg_last_wal_replay_lsn() >= CAST(?1 AS pg_lsn)", .text(Array(place.utf8))) != 1
      {
        usleep(5000)
      }
    }

    private func write(_ sql: String) throws {
      try PostgreSQLConnection(primary.settings(database)).execute("SET search_path = public; \(sql)")
    }

    @Test("A standby that still runs on a history which the primary has left does not answer, though it has the commit")
    func ofAnotherHistory() async throws {
      let before = try await open()
      try write("INSERT INTO place SELECT 'p' || generate_series(1, 500)")
      _ = try await before.sweep()
      await before.close()
      try followed()
      try onStandby("SELECT pg_wal_replay_pause()")
      // As after a restore: the primary has another incarnation, and the same commits so far.
      let store = try await open()
      #expect(try await download(store).places.count == 500)
      #expect(try figures(store).answers == 0)
      try onStandby("SELECT pg_wal_replay_resume()")
      try followed()
      #expect(try await download(store).places.count == 500)
      #expect(try figures(store).answers > 0)
      await store.close()
    }

    @Test(
      "Downloads come from a standby that has replayed their commit, and are the primary's where it lags; it is taken up again"
    )
    func lags() async throws {
      let store = try await open()
      try write("INSERT INTO place SELECT 'p' || generate_series(1, 500)")
      _ = try await store.sweep()
      try followed()
      var all = try await download(store)
      #expect(all.places.count == 500)
      #expect(all.pages > 1)
      #expect(try figures(store).answers == Int64(all.pages))
      // A download that has begun on the primary stays there while the standby lags.
      try onStandby("SELECT pg_wal_replay_pause()")
      try write("INSERT INTO place SELECT 'p' || generate_series(501, 1000)")
      let before = try figures(store)
      all = try await download(store)
      #expect(all.places.count == 1000)
      #expect(try figures(store).answers == before.answers)
      #expect(try figures(store).behind >= before.behind + Int64(all.pages))
      // One that has begun on the standby goes on there, and the rest of what it lacks comes with the next one.
      try onStandby("SELECT pg_wal_replay_resume()")
      try followed()
      let resumed = try figures(store)
      all = try await download(store) { page in
        if page == 1 {
          try self.onStandby("SELECT pg_wal_replay_pause()")
          try self.write("INSERT INTO place VALUES ('p1001')")
        }
      }
      #expect(all.places.count >= 1000)
      #expect(try figures(store).answers > resumed.answers)
      try onStandby("SELECT pg_wal_replay_resume()")
      #expect(try await download(store).places.count == 1001)
      await store.close()
    }

    @Test(
      "No page shows an earlier moment than the one before it: what a page has seen without a number, the next one sees, too"
    )
    func neverGoesBack() async throws {
      let store = try await open()
      try write("INSERT INTO place SELECT 'p' || generate_series(1, 300)")
      let head = try await store.sweep()
      try followed()
      try onStandby("SELECT pg_wal_replay_pause()")
      // The primary has it, in no commit yet; the standby has the commit that the download begins at.
      var request = PageRequest(
        remote: RemoteID(from: SystemRandom()), principal: Principal(name: "ben"),
        groups: [GroupState(name: Schema.defaultGroup)], position: nil, bytesTarget: 1 << 10)
      let first = try await store.page(request)
      #expect(try figures(store).answers == 1)
      let place = try #require(ReplicaPosition(first.position).place)
      // As the primary would have given it after it had seen the row.
      try write("INSERT INTO place VALUES ('p0'); INSERT INTO visit VALUES ('v', 'p0')")
      let now = try #require(
        try PostgreSQLConnection(primary.settings(database)).scalar("SELECT pg_current_wal_insert_lsn()::text")?.string)
      #expect(place != now)
      request.position = ReplicaPosition.joined(ReplicaPosition(first.position).text, now)
      let answered = try figures(store)
      _ = try await store.page(request)
      #expect(try figures(store).answers == answered.answers)
      #expect(try figures(store).behind > answered.behind)
      #expect(try await store.sweep().number > head.number)
      try onStandby("SELECT pg_wal_replay_resume()")
      await store.close()
    }

    @Test(
      "A standby that dies is left and taken up again; one that was promoted is asked no more; digests are the same")
    func dies() async throws {
      let store = try await open()
      let scope = ReadScope(Principal(name: "ben"))
      try write("INSERT INTO place SELECT 'p' || generate_series(1, 100)")
      _ = try await store.sweep()
      try followed()
      let digest = try await store.digest(of: "place", for: scope)
      #expect(digest.count == 100)
      #expect(try await store.rowCount(of: [Schema.defaultGroup], for: scope) == 100)
      #expect(try figures(store).answers == 2)
      try standby.stop()
      #expect(try await download(store).places.count == 100)
      #expect(try figures(store).failures > 0)
      let failed = try figures(store)
      // It is left alone for a while.
      #expect(try await download(store).places.count == 100)
      #expect(try figures(store).failures == failed.failures)
      try standby.start()
      try followed()
      hand.pass(10_000)
      #expect(try await download(store).places.count == 100)
      #expect(try figures(store).answers > failed.answers)
      let observed = await store.observation()
      #expect(observed.replica?.answers == (try figures(store).answers))
      #expect(observed.databaseBytes ?? 0 > 0 && observed.oldestLogEntry != nil)
      try standby.promote()
      try onStandby("DELETE FROM public.place")
      let promoted = try figures(store)
      #expect(try await download(store).places.count == 100)
      #expect(try figures(store).answers == promoted.answers)
      await store.close()
    }

    @Test(
      "A replica of another database is never asked, and a url that cannot be read is refused with its option's name")
    func another() async throws {
      let other = try #require(PrivateCluster.shared).database()
      let store = PostgreSQLServerStore(
        .init(url: primary.settings(database).url, connections: 4, readReplica: other.url))
      _ = try await store.open(ServerSetup(schema: schema))
      try write("INSERT INTO place VALUES ('p1')")
      #expect(try await download(store).places == ["p1"])
      #expect(try figures(store).answers == 0)
      #expect(try figures(store).failures > 0)
      await store.close()
      let error = try #require(throws: SalvorError.self) {
        _ = try ConnectionSettings(url: "host", isWriter: false, option: "readReplica").parameters()
      }
      #expect(error.message.hasPrefix("The readReplica of the module postgresql"))
    }
  }
#endif
