#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire

  /// What devices get from PostgreSQL, beside the same from SQLite, in turns: a first synchronization, a few changes in many rows and
  /// in few, and a sync with nothing to do.
  struct PostgreSQLDownload {
    var rows: Int
    var fewRows: Int
    var changes = 100

    private static let firstMax = 1.3
    private static let changesMax = 1.5
    private static let idleMax = 2.0
    private static let idleSyncs = 200

    private let data = RecordData()

    func run(_ bench: Bench) async throws -> WorkloadResult {
      let cluster = try BenchCluster(bench, "postgresql-download")
      defer { cluster.end() }
      bench.say("postgresql-download: loading \(grouped(rows)) and \(grouped(fewRows)) rows")
      let (many, few) = (try cluster.database(), try cluster.database())
      for (url, count) in [(many, rows), (few, fewRows)] {
        try await PlainPostgreSQL.adopt(url)
        try PlainPostgreSQL.silence(url)
        try PlainPostgreSQL.upsert(url, data, 0..<count, rowsEach: 10_000)
        try PlainPostgreSQL.execute(url, "ALTER TABLE record ENABLE TRIGGER USER")
        try PlainPostgreSQL.execute(url, "VACUUM ANALYZE record")
      }
      let sqlite = bench.path("postgresql-download-server.db"), device = bench.path("postgresql-download-device.db")
      defer { bench.discard(sqlite, device) }
      try PlainDatabase.seed(sqlite, .records(data, count: rows))
      try bench.adopt(sqlite, "record")

      var (first, limit): ([SyncMeasurement], [SyncMeasurement]) = ([], [])
      for round in 1...bench.options.runs {
        for server in [sqlite, many] {
          PlainDatabase.remove(device)
          bench.settle()
          let pair = try Pair(serverPath: server, clientPath: device, schemaName: "record")
          let sync = try pair.sync()
          pair.end()
          guard sync.upserts == rows else { throw SalvorError(.failed, "\(sync.upserts) of \(rows) rows arrived.") }
          if server == many { first.append(sync) } else { limit.append(sync) }
        }
        bench.say(
          "postgresql-download: round \(round): \(TableReport.amount(first[round - 1].wall, .seconds)), SQLite \(TableReport.amount(limit[round - 1].wall, .seconds))"
        )
      }
      let empty = try bench.emptyPeaks("record")
      let (ofMany, ofFew) = (try changed(bench, many, rows), try changed(bench, few, fewRows))
      let (idle, idleLimit) = (try idle(bench, few), try idle(bench, sqlite))
      return WorkloadResult(
        name: "postgresql-download", title: "\(grouped(rows)) rows, medians of \(bench.options.runs)",
        figures: [
          Figure(
            name: "first sync, wall", value: first.median(\.wall), unit: .seconds, limit: limit.median(\.wall),
            limitName: "SQLite", target: .ratio(atMost: Self.firstMax), details: first.details),
          Figure(
            name: "first sync, server's memory", value: Double((first.map(\.serverPeak).max() ?? 0) - empty.server),
            unit: .bytes, limit: Double((limit.map(\.serverPeak).max() ?? 0) - empty.server), limitName: "SQLite"),
          Figure(
            name: "\(changes) changes in \(grouped(rows)) rows, wall", value: ofMany, unit: .seconds, limit: ofFew,
            limitName: "in \(grouped(fewRows))", target: .ratio(atMost: Self.changesMax)),
          Figure(
            name: "sync with nothing to do, p50", value: idle, unit: .seconds, limit: idleLimit, limitName: "SQLite",
            target: .ratio(atMost: Self.idleMax)),
        ])
    }

    /// Seconds in which a device gets what another program changed.
    private func changed(_ bench: Bench, _ url: String, _ rows: Int) throws -> Double {
      let device = bench.path("postgresql-changes-device.db")
      defer { bench.discard(device) }
      let pair = try Pair(serverPath: url, clientPath: device, schemaName: "record")
      defer { pair.end() }
      _ = try pair.sync()
      let keys = RecordData.spread(changes, of: rows).map { "'\(String(decoding: data.key($0), as: UTF8.self))'" }
      var walls: [Double] = []
      // The first round fills caches; it is not counted.
      for round in 0...5 * bench.options.runs {
        try PlainPostgreSQL.execute(
          url, "UPDATE record SET quantity = \(round + 5000) WHERE id IN (\(keys.joined(separator: ", ")))")
        let sync = try pair.sync()
        guard sync.upserts == changes else {
          throw SalvorError(.failed, "\(sync.upserts) of \(changes) changes arrived.")
        }
        if round > 0 { walls.append(sync.wall) }
      }
      return walls.median
    }

    private func idle(_ bench: Bench, _ server: String) throws -> Double {
      let device = bench.path("postgresql-idle-device.db")
      defer { bench.discard(device) }
      let pair = try Pair(serverPath: server, clientPath: device, schemaName: "record")
      defer { pair.end() }
      _ = try pair.sync()
      _ = try pair.client.call("idle", [("count", .integer(50))])
      let answer = try pair.client.call("idle", [("count", .integer(Int64(Self.idleSyncs * bench.options.runs)))])
      return percentile(
        try answer.array("syncs").map { if case .real(let seconds) = $0 { seconds } else { 0 } }, 0.5)
    }
  }
#endif
