#if PostgreSQL
  import PostgreSQLServerStore
  import SQLiteSupport
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  #if canImport(Glibc)
    @preconcurrency import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// Two servers of one database. A change that one device sends to the first, until an application reads it on a device that listens to the
  /// second; the limit: a `NOTIFY` to another connection and its answer, each with a row written and committed. And a synchronization with
  /// nothing to do through HAProxy; the limit: the same from SQLite, without a balancer.
  struct PostgreSQLServers {
    var rows: Int
    var changes = 100

    private static let noticeMax = 3.0
    private static let idleMax = 2.0
    private static let idleSyncs = 200
    private static let warmUp = 10

    private let data = RecordData()

    func run(_ bench: Bench) async throws -> WorkloadResult {
      let cluster = try BenchCluster(bench, "postgresql-servers")
      defer { cluster.end() }
      let url = try cluster.database()
      let hosts = try (0..<2).map { _ in try ChildProcess(role: "server", [url, "record-telling"]) }
      defer { for host in hosts { host.end() } }
      let addresses = try hosts.map { try $0.answer(to: "start").string("url") }
      try PlainPostgreSQL.upsert(url, data, 0..<rows)
      let (seen, bare) = try notices(bench, url, addresses, cluster)
      let proxy = try HAProxyProcess(before: addresses, configuration: bench.path("haproxy.cfg"))
      defer { proxy.end() }
      let (idle, idleLimit) = (try self.idle(bench, proxy.url), try idleOfSQLite(bench))
      return WorkloadResult(
        name: "postgresql-servers", title: "\(grouped(rows)) rows, medians",
        figures: [
          Figure(
            name: "a change until it is read behind the other server", value: seen.median, unit: .seconds,
            limit: bare.median, limitName: "NOTIFY and back, two commits", target: .ratio(atMost: Self.noticeMax),
            details: [("p90", .real(percentile(seen, 0.9))), ("worst", .real(seen.max() ?? 0))]),
          Figure(
            name: "sync with nothing to do through HAProxy, p50", value: idle, unit: .seconds, limit: idleLimit,
            limitName: "SQLite", target: .ratio(atMost: Self.idleMax)),
        ])
    }

    /// In turns: each meets the same machine.
    private func notices(
      _ bench: Bench, _ url: String, _ addresses: [String], _ cluster: BenchCluster
    ) throws -> (seen: [Double], bare: [Double]) {
      let paths = addresses.indices.map { bench.path("postgresql-servers-\($0).db") }
      defer { for path in paths { bench.discard(path) } }
      let devices = try zip(paths, addresses).map { path, address in
        try ChildProcess(role: "client", [path, "record-telling", address, "recover-unsynced-changes"])
      }
      defer { for device in devices { device.end() } }
      for device in devices {
        try device.call("open")
        _ = try device.call("sync")
        try device.call("watch")
      }
      let applications = try paths.map(PlainDatabase.open)
      defer { for connection in applications { connection.close() } }
      let plain = try cluster.database()
      try PlainPostgreSQL.execute(
        plain, "CREATE TABLE bare (id int PRIMARY KEY, x int); INSERT INTO bare VALUES (0, 0), (1, 0)")
      let pair = try (0..<2).map { _ in try PostgreSQLConnection(to: plain) }
      defer { for connection in pair { connection.close() } }
      for (number, connection) in pair.enumerated() { try connection.execute("LISTEN bench_\(number)") }
      var (seen, bare): ([Double], [Double]) = ([], [])
      for number in 0..<Self.warmUp + changes * bench.options.runs {
        let place = number * 37 % rows
        let quantity = Int64(10_000 + number)
        let (writer, reader) = (number % 2, 1 - number % 2)
        var start = Measure.wall()
        try PlainDatabase.updateQuantities(applications[writer], data, places: [place], quantity: quantity)
        try ChangeToChange.waitFor(quantity, at: data.key(place), in: applications[reader])
        if number >= Self.warmUp { seen.append(Measure.wall() - start) }
        // What the devices still have to say to the servers is not the next change's.
        usleep(20_000)
        start = Measure.wall()
        for (sender, receiver) in [(0, 1), (1, 0)] {
          try pair[sender].execute(
            "BEGIN; UPDATE bare SET x = \(number) WHERE id = \(sender); NOTIFY bench_\(receiver); COMMIT")
          try hear(pair[receiver])
        }
        if number >= Self.warmUp { bare.append(Measure.wall() - start) }
      }
      return (seen, bare)
    }

    private func hear(_ connection: PostgreSQLConnection) throws {
      let end = Measure.wall() + 10
      while Measure.wall() < end {
        guard let told = connection.notifications(), let socket = connection.socket else { break }
        if !told.isEmpty { return }
        var entry = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        poll(&entry, 1, 1000)
      }
      throw SalvorError(.failed, "A notification did not come.")
    }

    private func idle(_ bench: Bench, _ url: String) throws -> Double {
      let path = bench.path("postgresql-servers-idle.db")
      defer { bench.discard(path) }
      let device = try ChildProcess(role: "client", [path, "record-telling", url, "recover-unsynced-changes"])
      defer { device.end() }
      try device.call("open")
      return try idle(bench, device)
    }

    private func idleOfSQLite(_ bench: Bench) throws -> Double {
      let (server, path) = (bench.path("postgresql-servers-sqlite.db"), bench.path("postgresql-servers-idle.db"))
      defer { bench.discard(server, path) }
      try PlainDatabase.seed(server, .records(data, count: rows))
      let pair = try Pair(serverPath: server, clientPath: path, schemaName: "record-telling")
      defer { pair.end() }
      return try idle(bench, pair.client)
    }

    private func idle(_ bench: Bench, _ device: ChildProcess) throws -> Double {
      _ = try device.call("sync")
      _ = try device.call("idle", [("count", .integer(50))])
      let answer = try device.call("idle", [("count", .integer(Int64(Self.idleSyncs * bench.options.runs)))])
      return percentile(
        try answer.array("syncs").map { if case .real(let seconds) = $0 { seconds } else { 0 } }, 0.5)
    }
  }
#endif
