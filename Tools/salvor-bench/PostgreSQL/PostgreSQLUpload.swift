#if PostgreSQL
  import SQLiteSupport
  import SalvorModel
  import SalvorStorage
  import SalvorWire

  /// Devices upload rows that they made, and changes of them, into PostgreSQL. The limit: the same rows by libpq, a thousand in a
  /// statement, upserted from arrays into the same table without triggers.
  struct PostgreSQLUpload {
    var rows: Int
    private static let devices = 8

    private static let ratioMax = 2.5
    /// 1 / 1.5: so much of one device's time for the same rows.
    private static let besideMax = 1 / 1.5
    private static let coreSecondsMax = 1.0 / 50_000

    private let data = RecordData()

    func run(_ bench: Bench) async throws -> WorkloadResult {
      let cluster = try BenchCluster(bench, "postgresql-upload")
      defer { cluster.end() }
      var (inserts, updates, beside): ([Run], [Run], [Run]) = ([], [], [])
      var (insertLimits, updateLimits): ([Double], [Double]) = ([], [])
      for round in 1...bench.options.runs {
        let one = try await devices(bench, cluster, 1, servers: 1)
        inserts.append(one.inserts)
        updates.append(one.updates)
        let limits = try await limits(cluster)
        insertLimits.append(limits.inserts)
        updateLimits.append(limits.updates)
        beside.append(try await devices(bench, cluster, Self.devices, servers: 2).inserts)
        bench.say(
          "postgresql-upload: round \(round): inserts \(TableReport.amount(one.inserts.wall, .seconds)) (limit \(TableReport.amount(limits.inserts, .seconds))), updates \(TableReport.amount(one.updates.wall, .seconds)) (\(TableReport.amount(limits.updates, .seconds))), \(Self.devices) devices \(TableReport.amount(beside[round - 1].wall, .seconds))"
        )
      }
      func figure(_ name: String, _ runs: [Run], _ limit: Double, _ limitName: String, _ most: Double) -> Figure {
        Figure(
          name: "\(name), wall", value: runs.map(\.wall).median, unit: .seconds, limit: limit, limitName: limitName,
          target: .ratio(atMost: most),
          details: [
            ("serverCPU", .real(runs.map(\.serverCPU).median)), ("databaseCPU", .real(runs.map(\.databaseCPU).median)),
          ])
      }
      let used = beside.map { $0.serverCPU + $0.databaseCPU }.median / Double(rows)
      return WorkloadResult(
        name: "postgresql-upload", title: "\(grouped(rows)) rows, medians of \(bench.options.runs)",
        figures: [
          figure("inserts of one device", inserts, insertLimits.median, "unnest upsert", Self.ratioMax),
          figure("updates of one device", updates, updateLimits.median, "unnest upsert", Self.ratioMax),
          figure(
            "inserts of \(Self.devices) devices, two servers", beside, inserts.map(\.wall).median, "one device",
            Self.besideMax),
          Figure(
            name: "CPU of servers and database, a row of \(Self.devices) devices", value: used, unit: .seconds,
            target: .value(atMost: Self.coreSecondsMax)),
        ])
    }

    private struct Run {
      var wall: Double
      var serverCPU: Double
      var databaseCPU: Double
    }

    private func limits(_ cluster: BenchCluster) async throws -> (inserts: Double, updates: Double) {
      let url = try cluster.database()
      try await PlainPostgreSQL.adopt(url)
      try PlainPostgreSQL.silence(url)
      let inserts = try PlainPostgreSQL.upsert(url, data, 0..<rows)
      return (inserts.wall, try PlainPostgreSQL.upsert(url, data, 0..<rows).wall)
    }

    /// All of them at once, each with its part of the rows.
    private func devices(
      _ bench: Bench, _ cluster: BenchCluster, _ count: Int, servers: Int
    ) async throws -> (inserts: Run, updates: Run) {
      let url = try cluster.database()
      let hosts = try (0..<servers).map { _ in try ChildProcess(role: "server", [url, "record"]) }
      defer { for host in hosts { host.end() } }
      let addresses = try hosts.map { try $0.answer(to: "start").string("url") }
      let each = rows / count
      var clients: [(process: ChildProcess, path: String, places: Range<Int>)] = []
      defer {
        for client in clients {
          client.process.end()
          bench.discard(client.path)
        }
      }
      for device in 0..<count {
        let path = bench.path("postgresql-upload-\(device).db")
        PlainDatabase.remove(path)
        let process = try ChildProcess(
          role: "client",
          [path, "record", addresses[device % servers], "recover-unsynced-changes", HealMode.own.rawValue])
        clients.append((process, path, device * each..<(device + 1) * each))
        try process.call("open")
        _ = try process.call("sync")
        let application = try PlainDatabase.open(path)
        defer { application.close() }
        var made = RowArena(columnCount: RecordData.table.columns.count)
        for place in clients[device].places { data.append(place, to: &made) }
        try application.transaction {
          try made.run(application.cached(PlainDatabase.insertStatement(RecordData.table)))
        }
      }
      func sync() throws -> Run {
        bench.settle()
        let before = (try hosts.map { try $0.call("usage").real("cpu") }.reduce(0, +), cluster.cpu())
        let start = Measure.wall()
        // Each fetches what the others have brought by then, too.
        for client in clients { try client.process.send("sync") }
        for client in clients {
          let sync = try SyncMeasurement(try client.process.answer(to: "sync"))
          guard sync.uploaded == each, sync.refused == 0 else {
            throw SalvorError(.failed, "\(sync.uploaded) of \(each) changes were accepted.")
          }
        }
        let wall = Measure.wall() - start
        let after = (try hosts.map { try $0.call("usage").real("cpu") }.reduce(0, +), cluster.cpu())
        return Run(wall: wall, serverCPU: after.0 - before.0, databaseCPU: after.1 - before.1)
      }
      let inserts = try sync()
      guard try PlainPostgreSQL.count(url) == each * count else {
        throw SalvorError(.failed, "Not every row is in the database.")
      }
      guard count == 1 else { return (inserts, inserts) }
      for client in clients {
        let application = try PlainDatabase.open(client.path)
        defer { application.close() }
        try PlainDatabase.updateQuantities(application, data, places: Array(client.places), quantity: 5000)
      }
      return (inserts, try sync())
    }
  }
#endif
