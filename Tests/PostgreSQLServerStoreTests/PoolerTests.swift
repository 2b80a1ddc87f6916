#if PostgreSQL
  import Foundation
  import SalvorContracts
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// Through PgBouncer in transaction mode: each transaction may run on another connection of the database's, after any other
  /// program's.
  @Suite(
    .enabled(
      if: PrivateCluster.isThere && (PgBouncer.isThere || ProcessInfo.processInfo.environment["CI"] != nil),
      "PostgreSQL or PgBouncer is not installed here: these tests did not run"), .serialized)
  struct PoolerTests {
    private static let shared = Mutex<PgBouncer?>(nil)

    private static func pooler() throws -> PgBouncer {
      let cluster = try PrivateCluster.shared ?? PrivateCluster.another()
      return try shared.withLock { shared in
        let pooler = try shared ?? PgBouncer(cluster)
        shared = pooler
        return pooler
      }
    }

    private let schema = Schema(tables: [
      Table("item", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
    ])

    private static let subject = StoreSubject<any ServerStore>(holdsAnyText: false) {
      let settings = try pooler().settings((PrivateCluster.shared ?? PrivateCluster.another()).database())
      let folder = try StateFolder()
      return { PostgreSQLServerStore(.init(url: settings.url, connections: 4, stateDirectory: folder.path)) }
    }

    @Test("A pooler is known by the process that it names, and a direct connection is none")
    func isKnown() throws {
      let direct = try #require(PrivateCluster.shared).database()
      #expect(try !PostgreSQLConnection(direct).isPooled)
      #expect(try PostgreSQLConnection(Self.pooler().settings(direct)).isPooled)
    }

    @Test("Settings, statements and temporary tables hold, whatever others have left on the pooler's connections")
    func connections() throws {
      let direct = try #require(PrivateCluster.shared).database()
      let pooled = try Self.pooler().settings(direct)
      // One connection of the database's is all that there is until both are in a transaction.
      let other = try PostgreSQLConnection(pooled)
      let one = try PostgreSQLConnection(pooled)
      func disturb() throws {
        try other.execute(
          "COMMIT; SET search_path = pg_catalog; SET \"TimeZone\" = 'Asia/Tokyo'; SET IntervalStyle = 'postgres'; DEALLOCATE ALL"
        )
      }
      try one.execute("CREATE TABLE public.moment (id bigint PRIMARY KEY, at timestamptz, long interval)")
      try other.execute("COMMIT; CREATE TEMP TABLE moment (LIKE public.moment)")
      try other.execute("COMMIT; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; SET ROLE pg_monitor")
      try disturb()
      try one.run("INSERT INTO moment VALUES (?1, '2026-01-02 03:04:05+02', '90 min')", 1)
      for _ in 0..<3 {
        try disturb()
        // From the cache: its text is prepared anew.
        #expect(
          try one.rows("SELECT at, long FROM moment WHERE id = ?1", 1) == [["2026-01-02 01:04:05+00", "PT1H30M"]])
      }
      for round in 0..<2 {
        try disturb()
        try one.transaction {
          for statement in one.dialect.temporaryTable("held_\(round)", [.init("v", .value)], indexes: []) {
            try one.execute(statement)
          }
          try one.run("INSERT INTO pg_temp.held_\(round) VALUES (?1)", "a")
          let here = try one.integer("SELECT pg_backend_pid()")
          let there = try other.transaction { try other.integer("SELECT pg_backend_pid()") }
          #expect(here != there)
          #expect(try one.rows("SELECT v FROM pg_temp.held_\(round)") == [["a"]])
          let found = try one.stream("SELECT n::bigint FROM generate_series(1, 2000) n")
          var sum: Int64 = 0
          while try found.step() { sum += found.int64(0) }
          found.reset()
          #expect(sum == 2_001_000)
        }
        #expect(try one.integer("SELECT count(*) FROM pg_class WHERE relname = 'held_\(round)'") == 0)
      }
      // What fails fails, and the connection goes on.
      #expect(throws: SalvorError.self) { try one.run("INSERT INTO moment VALUES (1)") }
      #expect(try one.integer("SELECT count(*) FROM moment") == 1)
      #expect(try PostgreSQLConnection(direct).integer("SELECT count(*) FROM public.moment") == 1)
    }

    @Test(
      "Processes behind a pooler share an incarnation, find commits by looking, say so, and begin anew when all are gone"
    )
    func processes() async throws {
      let direct = try #require(PrivateCluster.shared).database()
      let pooled = try Self.pooler().settings(direct)
      let said = Mutex<[String]>([])
      var options = PostgreSQLServerStore.Options(url: pooled.url, connections: 4)
      options.log = .lines { line in said.withLock { $0.append(line) } }
      let (one, other) = (PostgreSQLServerStore(options), PostgreSQLServerStore(options))
      let opening = try await one.open(ServerSetup(schema: schema))
      #expect(try await other.open(ServerSetup(schema: schema)).incarnation == opening.incarnation)
      #expect(said.withLock { $0.contains { $0.contains("pooler") } })
      try await one.write([.insert(table: "item", values: [NamedValue("id", "a")])])
      #expect(try await other.sweep() == one.sweep())
      #expect(try await other.rows(of: "item").count == 1)
      await one.close()
      // One process is left: the incarnation is still its own.
      let third = PostgreSQLServerStore(options)
      #expect(try await third.open(ServerSetup(schema: schema)).incarnation == opening.incarnation)
      await third.close()
      await other.close()
      let again = PostgreSQLServerStore(options)
      #expect(try await again.open(ServerSetup(schema: schema)).incarnation != opening.incarnation)
      await again.close()
    }

    /// All of them with SALVOR_LONG_TESTS=1; else those about what a pooler could break: uploads, pages, moves between scopes, healing,
    /// recoveries.
    private static let cases = ServerStoreContract.cases.filter { rule in
      ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] != nil
        || ["scope", "moves", "page", "recover", "resent", "offer", "unique", "blob", "restart"].contains {
          rule.name.contains($0)
        }
    }

    @Test("ServerStoreContract", arguments: cases)
    func keepsTheContract(_ rule: ServerStoreContract.Case) async throws { try await rule.run(Self.subject) }
  }
#endif
