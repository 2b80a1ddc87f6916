#if PostgreSQL
  import Foundation
  import SQLiteSupport
  import SalvorModel
  import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  /// A server whose database is in PostgreSQL, and devices that notice nothing of it: all of them real processes.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"), .serialized)
  struct PostgreSQLTests {
    private let cluster: PrivateCluster
    private let settings: ConnectionSettings
    private let place: Workspace

    init() throws { try self.init(schema: Workspace.schema) }

    private init(
      schema: String, options: String = "", authentication: String = #"{ module: "none" }"#,
      in own: PrivateCluster? = nil, before: String = ""
    ) throws {
      cluster = try own ?? #require(PrivateCluster.shared)
      settings = try cluster.database()
      if !before.isEmpty { try PostgreSQLConnection(settings).execute("SET search_path = public; \(before)") }
      place = try Workspace(
        schema: schema, authentication: authentication, serverOptions: options,
        storage: #"{ module: "postgresql", url: "\#(settings.url)", lockTimeoutMilliseconds: 1000 }"#)
    }

    /// As psql does: another program of the application's.
    private func psql(_ sql: String) throws {
      let connection = try PostgreSQLConnection(settings)
      try connection.execute("SET search_path = public; \(sql)")
    }

    private func rows(_ sql: String) throws -> [[Value]] { try PostgreSQLConnection(settings).rows(sql) }

    /// Every row of the synchronized tables, as `contents` gives them of a device.
    private func contents() throws -> [String: [[Value]]] {
      let connection = try PostgreSQLConnection(settings)
      var out: [String: [[Value]]] = [:]
      for table in Workspace.tables {
        let columns = try connection.rows(
          """
          SELECT string_agg(quote_ident(attname), ', ' ORDER BY attname COLLATE "C") FROM pg_attribute
          WHERE attrelid = 'public.\(table)'::regclass AND attnum > 0 AND NOT attisdropped
          """
        )[0][0].string
        out[table] = try connection.rows("SELECT \(columns ?? "") FROM public.\(table) ORDER BY id")
      }
      return out
    }

    @Test("salvor doctor asks the database what is in the way, and says which one it is where nothing is")
    func doctor() async throws {
      try psql("CREATE TABLE site (id integer, name text)")
      let bad = try await place.server.salvor("doctor", "--json")
      #expect(bad.code == 2)
      #expect(bad.out.contains("site: its primary key is none, and id in the schema."), "\(bad.out)")
      try psql("DROP TABLE site")
      let good = try await place.server.salvor("doctor")
      #expect(good.out.contains("server's database: PostgreSQL "), "\(good.out)\(good.err)")
      #expect(try rows("SELECT 1 FROM pg_namespace WHERE nspname = 'salvor'") == [])
    }

    @Test("Rows travel up and down, and what psql writes comes to every device")
    func rowsTravel() async throws {
      let check = try await place.server.salvor("check")
      #expect(check.code == 0, "\(check.out)\(check.err)")
      let url = try await place.server.start()
      try psql("INSERT INTO severity VALUES (1, 'minor'), (2, 'crucial')")
      let anna = try place.device("anna", url: url), ben = try place.device("ben", url: url)
      try await anna.sync()
      try await ben.sync()
      try anna.sqlite().execute(
        """
        INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 40), ('s2', 'Corner Bakery', 8);
        INSERT INTO visit VALUES ('v1', 's1', 1, NULL, 2.5, x'00ff10'), ('v2', 's1', NULL, 'äöü 漢字', -0.1, NULL);
        """)
      #expect(try await anna.sync()["uploaded"] == 4)
      #expect(try await ben.sync()["downloaded"]["upserts"] == 4)
      try psql(
        """
        UPDATE visit SET note = 'by psql' WHERE id = 'v1'; INSERT INTO site SELECT 'p' || n, 'Site ' || n, n FROM
          generate_series(1, 500) n; DELETE FROM visit WHERE id = 'v2'
        """)
      try ben.sqlite().execute("UPDATE visit SET score = 7.25 WHERE id = 'v1'")
      try await ben.sync()
      try await anna.sync()
      try await ben.sync()
      let all = try contents()
      #expect(all["site"]?.count == 502)
      #expect(try EndToEndTests.contents(anna.database) == all)
      #expect(try EndToEndTests.contents(ben.database) == all)
      #expect(try rows("SELECT note, score FROM public.visit") == [["by psql", 7.25]])
      let idle = try await ben.sync()
      #expect(idle["roundTrips"] == 1)
      #expect(idle["downloaded"]["upserts"] == 0)
    }

    @Test(
      "A conflict is settled and listed, and what PostgreSQL refuses is refused by name; the rest of the upload stands")
    func conflictsAndRefusals() async throws {
      let url = try await place.server.start()
      let anna = try place.device("anna", url: url)
      try await anna.sync()
      try psql(
        """
        INSERT INTO site VALUES ('s1', 'Harbour', 1);
        CREATE FUNCTION seats() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.seats > 1000 THEN RAISE EXCEPTION 'no house is so large'; END IF;
          NEW.name := trim(NEW.name); RETURN NEW; END$$;
        CREATE TRIGGER seats BEFORE INSERT OR UPDATE ON site FOR EACH ROW EXECUTE FUNCTION seats()
        """)
      try await anna.sync()
      try psql("UPDATE site SET name = 'Theirs' WHERE id = 's1'")
      try anna.sqlite().execute(
        """
        UPDATE site SET name = 'Mine' WHERE id = 's1'; INSERT INTO site VALUES ('s2', '  blanks  ', 2);
        INSERT INTO site VALUES ('s3', 'huge', 2000); INSERT INTO site VALUES ('s4', 'fine', 4);
        """)
      let report = try await anna.sync(expecting: 6)
      #expect(report["refused"] == 1)
      let errors = try await anna.salvor("errors", "--json")
      #expect(errors.out.contains("no house is so large"), "\(errors.out)")
      // What the trigger made of the row has come back to its sender.
      #expect(try anna.sqlite().rows("SELECT name FROM site WHERE id = 's2'") == [["blanks"]])
      #expect(
        try rows("SELECT id, name FROM public.site ORDER BY id") == [
          ["s1", "Mine"], ["s2", "blanks"], ["s4", "fine"],
        ])
      let conflicts = try await place.server.salvor("conflicts", "--settled", "--json")
      #expect(conflicts.out.contains("Theirs"), "\(conflicts.out) \(conflicts.err)")
    }

    @Test(
      "A restart of the server, and a crash of PostgreSQL under it, lose nothing; meanwhile devices are told to try later"
    )
    func crashes() async throws {
      let test = try PostgreSQLTests(schema: Workspace.schema, in: PrivateCluster.another())
      var url = try await test.place.server.start()
      let anna = try test.place.device("anna", url: url)
      try await anna.sync()
      try anna.sqlite().execute("INSERT INTO site VALUES ('s1', 'one', 1)")
      try await anna.sync()
      try test.cluster.stop()
      try anna.sqlite().execute("INSERT INTO site VALUES ('s2', 'two', 2)")
      let failed = try await anna.salvor("sync", "--json")
      #expect(failed.code != 0)
      try test.cluster.start()
      try await anna.sync()
      #expect(try test.rows("SELECT id FROM public.site ORDER BY id") == [["s1"], ["s2"]])
      await test.place.server.killAndWait()
      try test.psql("INSERT INTO site VALUES ('s3', 'while it was away', 3)")
      url = try await test.place.server.start()
      try anna.connect(to: url)
      #expect(try await anna.sync()["downloaded"]["upserts"] == 1)
      #expect(try EndToEndTests.contents(anna.database) == test.contents())
    }

    @Test(
      "A device may reach another process with each request: uploads in chunks, downloads in pages, a recovery; one process is killed",
      .enabled(if: HAProxy.isThere, "HAProxy is not installed here"))
    func severalProcesses() async throws {
      var others: [ServerSide] = []
      var urls = [try await place.server.start()]
      for number in 2...3 {
        let other = try place.anotherServer("server-\(number)")
        urls.append(try await other.start())
        others.append(other)
      }
      let balancer = try await HAProxy(urls, in: place.directory)
      defer { balancer.end() }
      try psql("INSERT INTO site SELECT 'p' || n, repeat('Site ' || n, 20), n FROM generate_series(1, 2000) n")
      let small = "{ chunkBytesTarget: 4096 }"
      let anna = try place.device("anna", url: balancer.url, limits: small)
      let ben = try place.device("ben", url: balancer.url)
      for device in [anna, ben] { try await device.sync() }
      for round in 1...3 {
        for device in [anna, ben] {
          try device.sqlite().execute(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
            INSERT INTO site SELECT '\(device.directory.lastPathComponent)-\(round)-' || i, hex(randomblob(40)), i FROM n
            """)
          let report = try await device.sync()
          #expect(report["uploaded"] == 400)
        }
        if round == 2 { await others[0].killAndWait() }
        let id = try #require(try await anna.salvor("status", "--json").json["remoteID"].string)
        // A lock that others hold for longer than a second is an error of the command, which is given again then.
        var demanded = try await place.server.salvor("remotes", "reset", id)
        while demanded.code != 0, demanded.err.contains("try again") {
          try await Task.sleep(for: .milliseconds(200))
          demanded = try await place.server.salvor("remotes", "reset", id)
        }
        #expect(demanded.code == 0, "\(demanded.err)")
        #expect(try await anna.sync()["recovery"] != nil)
        try await ben.sync()
        try await anna.sync()
        #expect(try EndToEndTests.contents(anna.database) == contents())
        #expect(try EndToEndTests.contents(ben.database) == contents())
      }
      #expect(try contents()["site"]?.count == 2000 + 6 * 400)
      // Each process has had a part of it.
      for url in [urls[0], urls[2]] {
        let metrics = try await RawHTTP(url).request("GET", "/metrics").text
        // Of sessions and of recoveries that another process may have begun; which of them `process` reaches is the balancer's.
        for route in ["/v1/sync/{token}/", "/v1/recovery/{token}/"] {
          #expect(metrics.contains(route), "\(route): \(metrics)")
        }
      }
      #expect(try rows("SELECT count(*) FROM salvor_conversation WHERE kind = 'session'") == [[0]])
    }

    @Test("An existing database is adopted as it is: uuid, timestamps, numbers, enums travel as one text each")
    func adopts() async throws {
      let schema = """
        {
          version: 1,
          tables: {
            customer: { primaryKey: "id", columns: { id: "text", name: "text", joined: "timestamp?", credit: "text?", mood: "text?",
              active: "boolean", extra: "json?", tags: "text?" } },
            orders: { primaryKey: "id", columns: { id: "integer", customer_id: "text", amount: "real", placed: "text?" },
              references: { customer_id: "customer" } },
            visit: { primaryKey: "id", columns: { id: "text", customer_id: "text", note: "text?" }, references: { customer_id: "customer" } },
          },
        }
        """
      let test = try PostgreSQLTests(
        schema: schema,
        before: """
          CREATE TYPE mood AS ENUM ('good', 'bad');
          CREATE TABLE customer (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name varchar(20) NOT NULL, joined timestamptz,
            credit numeric(10, 2), mood mood, active boolean NOT NULL, extra jsonb, tags text[], internal text);
          CREATE TABLE orders (id integer PRIMARY KEY, customer_id uuid NOT NULL REFERENCES customer (id), amount float8 NOT NULL,
            placed date);
          INSERT INTO customer VALUES ('11111111-2222-3333-4444-555555555555', 'Anna', '2026-01-02 03:04:05+02', 12.5, 'good',
            true, '{"b": 1, "a": [2]}', '{x,y}', 'ours');
          INSERT INTO orders VALUES (1, '11111111-2222-3333-4444-555555555555', 9.5, '2026-02-03')
          """)
      let url = try await test.place.server.start()
      let anna = try test.place.device("anna", url: url)
      try await anna.sync()
      #expect(
        try anna.sqlite().rows("SELECT * FROM customer") == [
          [
            "11111111-2222-3333-4444-555555555555", "Anna", "2026-01-02 01:04:05+00", "12.50", "good", 1,
            #"{"a": [2], "b": 1}"#, "{x,y}",
          ]
        ])
      #expect(
        try anna.sqlite().rows("SELECT * FROM orders") == [
          [1, "11111111-2222-3333-4444-555555555555", 9.5, "2026-02-03"]
        ])
      try anna.sqlite().execute(
        """
        UPDATE customer SET credit = '7', joined = '2026-05-06T07:08:09Z', active = 0;
        INSERT INTO orders VALUES (2, '11111111-2222-3333-4444-555555555555', 1, '2026-03-04');
        INSERT INTO orders VALUES (3, '11111111-2222-3333-4444-555555555555', 1, 'no date');
        INSERT INTO orders VALUES (99999999999, '11111111-2222-3333-4444-555555555555', 1, NULL)
        """)
      let report = try await anna.sync(expecting: 6)
      #expect(report["refused"] == 2)
      // Normalised by the database: its form has come back.
      #expect(
        try anna.sqlite().rows("SELECT credit, joined, active FROM customer") == [
          ["7.00", "2026-05-06 07:08:09+00", 0]
        ])
      #expect(try test.rows("SELECT internal FROM public.customer") == [["ours"]])
      #expect(try test.rows("SELECT id FROM public.orders ORDER BY id") == [[1], [2]])
      // A table that Salvor made takes the type of the key that it references.
      try anna.sqlite().execute(
        "INSERT INTO visit VALUES ('v1', '11111111-2222-3333-4444-555555555555', 'well')")
      _ = try await anna.salvor("sync")
      #expect(
        try test.rows("SELECT id, customer_id::text, note FROM public.visit") == [
          ["v1", "11111111-2222-3333-4444-555555555555", "well"]
        ])
    }
  }

  /// What readers by cursor see of a PostgreSQL database that programs and devices write at once: all of them real processes, the
  /// servers behind a balancer without stickiness.
  @Suite(.enabled(if: PrivateCluster.isThere && HAProxy.isThere, "PostgreSQL or HAProxy is not installed here"))
  struct LinearityTests {
    private let settings: ConnectionSettings
    private let place: Workspace

    private static let programs = 4
    private static let transactions = 40
    private static let rounds = 10

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      place = try Workspace(
        authentication: #"{ module: "none" }"#, storage: #"{ module: "postgresql", url: "\#(settings.url)" }"#)
    }

    /// Transactions with savepoints, of which some are taken back, as psql would send them.
    private static func write(_ program: Int, _ settings: ConnectionSettings) throws {
      let connection = try PostgreSQLConnection(settings)
      defer { connection.close() }
      try connection.execute("SET search_path = public")
      for number in 0..<transactions {
        let key = "p\(program)-\(number)-"
        let rows = Int.random(in: 1...20)
        try connection.execute(
          """
          BEGIN; INSERT INTO site SELECT '\(key)' || n, 'by a program', n FROM generate_series(1, \(rows)) n; SAVEPOINT s;
          INSERT INTO site SELECT '\(key)s' || n, 'in a savepoint', n FROM generate_series(1, 5) n;
          \(Int.random(in: 0..<3) == 0 ? "ROLLBACK TO s;" : "")
          SELECT pg_sleep(\(Double.random(in: 0...0.05))); INSERT INTO site VALUES ('\(key)last', 'the last', 1);
          \(Int.random(in: 0..<5) == 0 ? "ROLLBACK" : "COMMIT")
          """)
      }
    }

    private enum Part: Sendable { case program, writer(Int64), reader(Int64) }

    /// Who still writes.
    private final class Writers: Sendable {
      private let count: Mutex<Int>
      init(_ count: Int) { self.count = Mutex(count) }
      var areDone: Bool { count.withLock { $0 == 0 } }
      func end() { count.withLock { $0 -= 1 } }
    }

    @Test("Each row of programs and of devices comes to every reader once, whichever of three processes it asks")
    func eachOnce() async throws {
      var urls = [try await place.server.start()]
      for number in 2...3 { urls.append(try await place.anotherServer("server-\(number)").start()) }
      let balancer = try await HAProxy(urls, in: place.directory)
      defer { balancer.end() }
      let writers = try ["carl", "dora"].map { try place.device($0, url: balancer.url) }
      let readers = try ["anna", "ben"].map { try place.device($0, url: balancer.url) }
      for device in writers + readers { try await device.sync() }
      let open = Writers(Self.programs + writers.count)
      let settings = settings
      var (sent, arrived): (Int64, [Int64]) = (0, [])
      try await withThrowingTaskGroup(of: Part.self) { group in
        for program in 0..<Self.programs {
          group.addTask {
            defer { open.end() }
            try await withCheckedThrowingContinuation { continuation in
              Thread { continuation.resume(with: Result { try Self.write(program, settings) }) }.start()
            }
            return .program
          }
        }
        for writer in writers {
          group.addTask {
            defer { open.end() }
            let name = writer.directory.lastPathComponent
            var sent: Int64 = 0
            for round in 0..<Self.rounds {
              try writer.sqlite().execute(
                """
                WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < \(Int.random(in: 1...60)))
                INSERT INTO site SELECT '\(name)-\(round)-' || i, 'by a device', i FROM n
                """)
              sent += try await writer.sync()["uploaded"].integer ?? 0
            }
            return .writer(sent)
          }
        }
        for reader in readers {
          group.addTask {
            var arrived: Int64 = 0
            var isLast = false
            while true {
              let mayBeLast = open.areDone
              arrived += try await reader.sync()["downloaded"]["upserts"].integer ?? 0
              if isLast { return .reader(arrived) }
              isLast = mayBeLast
            }
          }
        }
        for try await part in group {
          switch part {
          case .program: break
          case .writer(let rows): sent += rows
          case .reader(let rows): arrived.append(rows)
          }
        }
      }
      let desk = try PostgreSQLConnection(settings)
      let rows = try desk.rows("SELECT id, name, seats FROM public.site ORDER BY id COLLATE \"C\"")
      #expect(arrived == [Int64(rows.count), Int64(rows.count)])
      #expect(sent == (try desk.integer("SELECT count(*) FROM public.site WHERE name = 'by a device'")))
      #expect(try desk.integer("SELECT max(seq) FROM salvor.salvor_change") == Int64(rows.count))
      for device in writers { try await device.sync() }
      for device in writers + readers {
        #expect(try device.sqlite().rows("SELECT id, name, seats FROM site ORDER BY id") == rows)
      }
    }
  }
#endif
