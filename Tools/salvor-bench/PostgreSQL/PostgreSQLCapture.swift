#if PostgreSQL
  import Dispatch
  import PostgreSQLServerStore
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport
  import Synchronization

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// What capture and sealing cost eight writers, beside the same without triggers, in turns. Reached where the writers keep this
  /// share of their rows a second.
  struct PostgreSQLCapture {
    private static let writers = 8
    private static let shareOfSets = 0.55
    private static let shareOfRows = 0.75
    private static let shareBesideOpen = 0.8
    private static let sealMax = 0.5

    private struct Rate {
      var rows: Double
      /// Seconds of the longest sealing.
      var longest = 0.0
    }

    func run(_ bench: Bench) async throws -> WorkloadResult {
      let cluster = try BenchCluster(bench, "postgresql-capture")
      defer { cluster.end() }
      let seconds = bench.options.isQuick ? 1.0 : 4.0
      var figures: [Figure] = []
      for (rows, share) in [(100, Self.shareOfSets), (1, Self.shareOfRows)] {
        var (plain, captured, sealed): ([Rate], [Rate], [Rate]) = ([], [], [])
        for round in 1...bench.options.runs {
          plain.append(try await rate(cluster, rows, isCaptured: false, sealsEach: nil, seconds))
          captured.append(try await rate(cluster, rows, isCaptured: true, sealsEach: nil, seconds))
          sealed.append(try await rate(cluster, rows, isCaptured: true, sealsEach: 0.01, seconds))
          bench.say(
            "postgresql-capture: \(rows) rows, round \(round): plain \(grouped(Int(plain[round - 1].rows)))/s, captured \(grouped(Int(captured[round - 1].rows)))/s, sealed \(grouped(Int(sealed[round - 1].rows)))/s"
          )
        }
        let limit = plain.map(\.rows).median
        func figure(_ name: String, _ rates: [Rate], _ share: Double?) -> Figure {
          Figure(
            name: "\(rows) rows a transaction, \(name): time a row", value: 1 / rates.map(\.rows).median,
            unit: .seconds,
            limit: 1 / limit, limitName: "without triggers", target: share.map { .ratio(atMost: 1 / $0) },
            details: [
              ("share", .real(rates.map(\.rows).median / limit)),
              ("longestSealing", .real(rates.map(\.longest).max() ?? 0)),
            ])
        }
        figures += [figure("captured", captured, nil), figure("captured and sealed", sealed, share)]
      }
      let open = bench.options.isQuick ? 6.0 : 60.0
      let alone = try await rate(cluster, 100, isCaptured: true, sealsEach: 0.01, open)
      let beside = try await rate(cluster, 100, isCaptured: true, sealsEach: 0.01, open, besideOpen: true)
      figures += [
        Figure(
          name: "beside a transaction open for \(Int(open)) s: time a row", value: 1 / beside.rows, unit: .seconds,
          limit: 1 / alone.rows, limitName: "without it", target: .ratio(atMost: 1 / Self.shareBesideOpen),
          details: [("share", .real(beside.rows / alone.rows))]),
        Figure(
          name: "longest sealing beside it", value: beside.longest, unit: .seconds, limit: alone.longest,
          limitName: "without it", target: .value(atMost: Self.sealMax)),
      ]
      return WorkloadResult(
        name: "postgresql-capture", title: "\(Self.writers) writers, medians of \(bench.options.runs)", figures: figures
      )
    }

    /// - Parameter sealsEach: seconds between two sealings; nil: nobody seals.
    private func rate(
      _ cluster: BenchCluster, _ rows: Int, isCaptured: Bool, sealsEach: Double?, _ seconds: Double,
      besideOpen: Bool = false
    ) async throws -> Rate {
      let url = try cluster.database()
      let store = PostgreSQLServerStore(url: url)
      _ = try await store.open(ServerSetup(schema: RecordData.schema))
      if !isCaptured { try PlainPostgreSQL.silence(url) }
      let holder = try PostgreSQLConnection(to: url)
      defer { holder.close() }
      if besideOpen { try holder.execute("BEGIN; \(Self.insert(1, "1"))") }
      let total = Atomic(0), end = Measure.wall() + seconds
      let failure = Mutex<(any Error)?>(nil)
      let sealing = Task { () throws -> Double in
        var longest = 0.0
        guard let sealsEach else { return longest }
        while Measure.wall() < end {
          let began = Measure.wall()
          _ = try await store.sweep()
          longest = max(longest, Measure.wall() - began)
          try await Task.sleep(for: .seconds(sealsEach))
        }
        return longest
      }
      await withCheckedContinuation { continuation in
        let group = DispatchGroup()
        for writer in 0..<Self.writers {
          DispatchQueue(label: "writer \(writer)").async(group: group) {
            do {
              let connection = try PostgreSQLConnection(to: url)
              defer { connection.close() }
              let statement = try connection.prepare(Self.insert(rows, "\(rows)"), persistent: true)
              while Measure.wall() < end {
                try statement.run()
                total.add(rows, ordering: .relaxed)
              }
            } catch { failure.withLock { $0 = error } }
          }
        }
        group.notify(queue: .global()) { continuation.resume() }
      }
      let longest = try await sealing.value
      if let error = failure.withLock({ $0 }) { throw error }
      if besideOpen { try holder.execute("COMMIT") }
      _ = try await store.sweep()
      await store.close()
      return Rate(rows: Double(total.load(ordering: .relaxed)) / seconds, longest: longest)
    }

    /// Rows as long as those of `RecordData`.
    private static func insert(_ rows: Int, _ count: String) -> String {
      """
      INSERT INTO record SELECT gen_random_uuid()::text, 'Kitchen Inspection', '4711 Counter Street', 'Northfield',
        'check the oven door; replace the filter of the hood; order a new sign for the door', substr(md5(g::text), 1, 16),
        '2019-05-05T12:34:56Z', g, g / 100.0, 'open' FROM generate_series(1, \(count)) g
      """
    }
  }
#endif
