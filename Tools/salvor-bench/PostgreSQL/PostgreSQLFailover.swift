#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire

  #if canImport(Glibc)
    @preconcurrency import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// The primary dies, and the standby that is promoted lacks the last 1,000 commits, which 20 devices made: what each needs to find out, and to
  /// give back what is its own. The limit: a first synchronization of one.
  struct PostgreSQLFailover {
    var rows: Int
    var commits: Int
    private static let devices = 20
    private static let ratioMax = 0.1

    private let data = RecordData()

    func run(_ bench: Bench) async throws -> WorkloadResult {
      let cluster = try BenchCluster(bench, "postgresql-failover")
      defer { cluster.end() }
      let name = try cluster.database()
      bench.say("postgresql-failover: loading \(grouped(rows)) rows")
      try await PlainPostgreSQL.adopt(name)
      try PlainPostgreSQL.silence(name)
      try PlainPostgreSQL.upsert(name, data, 0..<rows, rowsEach: 10_000)
      try PlainPostgreSQL.execute(name, "ALTER TABLE record ENABLE TRIGGER USER")
      try PlainPostgreSQL.execute(name, "VACUUM ANALYZE record")
      // Servers know both from the start.
      let url = "\(name),\(bench.path("postgresql-failover-standby"))"
      let host = try ChildProcess(role: "server", [url, "record"])
      defer { host.end() }
      let address = try host.answer(to: "start").string("url")
      var devices: [(process: ChildProcess, path: String)] = []
      defer {
        for device in devices {
          device.process.end()
          bench.discard(device.path)
        }
      }
      var first: [Double] = []
      for number in 0..<Self.devices {
        let path = bench.path("postgresql-failover-\(number).db")
        let process = try ChildProcess(role: "client", [path, "record", address, "recover-unsynced-changes"])
        devices.append((process, path))
        try process.call("open")
        first.append(try SyncMeasurement(try process.call("sync")).wall)
      }
      let standby = try BenchCluster(bench, "postgresql-failover-standby", standbyOf: cluster)
      defer { standby.end() }
      let each = max(1, commits / Self.devices)
      bench.say("postgresql-failover: \(grouped(each * Self.devices)) commits that the standby lacks")
      for round in 0..<each {
        for (number, device) in devices.enumerated() {
          let application = try PlainDatabase.open(device.path)
          defer { application.close() }
          try PlainDatabase.updateQuantities(
            application, data, places: [place(number, round, each)], quantity: quantity(number, round))
          let sync = try SyncMeasurement(try device.process.call("sync"))
          guard sync.uploaded == 1 else { throw SalvorError(.failed, "A change was not accepted.") }
        }
      }
      bench.settle()
      try cluster.stop()
      try standby.start()
      try standby.promote()
      var walls: [Double] = []
      for device in devices {
        let start = Measure.wall()
        try sync(device.process)
        walls.append(Measure.wall() - start)
      }
      let lost = try lost(in: standby.url(of: name), each)
      return WorkloadResult(
        name: "postgresql-failover",
        title: "\(grouped(rows)) rows, \(Self.devices) devices, \(grouped(each * Self.devices)) commits",
        figures: [
          Figure(
            name: "the slowest device", value: walls.max() ?? 0, unit: .seconds, limit: first.median,
            limitName: "first sync of one", target: .ratio(atMost: Self.ratioMax),
            details: [("walls", .array(walls.map(JSONValue.real)))]),
          Figure(
            name: "the median device", value: walls.median, unit: .seconds, limit: first.median,
            limitName: "first sync of one"),
          Figure(name: "changes lost", value: Double(lost), unit: .count, target: .value(atMost: 0)),
        ])
    }

    private func place(_ device: Int, _ round: Int, _ each: Int) -> Int { (device * each + round) % rows }
    private func quantity(_ device: Int, _ round: Int) -> Int64 { Int64(1_000_000 + device * 10_000 + round) }

    /// A server that finds another history asks to come again.
    private func sync(_ process: ChildProcess) throws {
      let end = Measure.wall() + 60
      while true {
        do {
          _ = try process.call("sync")
          return
        } catch {
          guard Measure.wall() < end else { throw error }
        }
      }
    }

    private func lost(in url: String, _ each: Int) throws -> Int {
      var wanted: [Int: Int64] = [:]
      for round in 0..<each {
        for device in 0..<Self.devices { wanted[place(device, round, each)] = quantity(device, round) }
      }
      let values = wanted.map { "('\(String(decoding: data.key($0), as: UTF8.self))', \($1))" }
      return try wanted.count
        - PlainPostgreSQL.count(
          url, where: "(id, quantity) IN (VALUES \(values.joined(separator: ", ")))")
    }
  }
#endif
