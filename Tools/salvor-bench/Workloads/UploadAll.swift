import SQLiteSupport
import SalvorModel
import SalvorWire

/// All rows of a large table were made on one device, and go up. The limit: another device's first sync of them, by rows.
struct UploadAll {
  var rows: Int

  private static let ratioMax = 1.3
  private static let memoryMax = 48e6

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = DataSet.records(RecordData(), count: rows)
    let empty = try bench.emptyPeaks(data.schemaName)
    var (ups, downs, captures) = ([SyncMeasurement](), [SyncMeasurement](), [Double]())
    for run in 1...bench.options.runs {
      let paths = ["server", "client", "other"].map { bench.path("upload-all-\($0).db") }
      defer { for path in paths { bench.discard(path) } }
      let pair = try Pair(serverPath: paths[0], clientPath: paths[1], schemaName: data.schemaName)
      defer { pair.end() }
      // It knows the server: what it makes after that does not come back.
      _ = try pair.sync()
      bench.say("upload-1m: run \(run) of \(bench.options.runs): an application makes \(grouped(rows)) rows")
      captures.append(try make(data, in: paths[1]))
      bench.settle()
      let up = try pair.sync()
      guard up.uploaded == rows, up.refused == 0 else {
        throw SalvorError(.failed, "\(up.uploaded) of \(rows) rows went up.")
      }
      ups.append(up)
      try pair.renewClient(paths[2], data.schemaName)
      bench.settle()
      downs.append(try pair.sync())
      if run == 1 { try PlainDatabase.requireEqual(paths[0], paths[2], data.schema) }
      bench.say(
        "upload-1m: up \(TableReport.amount(up.wall, .seconds)), down "
          + TableReport.amount(downs[run - 1].wall, .seconds))
    }
    func memory(_ name: String, _ peak: Int64, _ base: Int64) -> Figure {
      Figure(
        name: name, value: Double(peak - base), unit: .bytes, target: .value(atMost: Self.memoryMax),
        details: [("peak", .integer(peak)), ("emptySyncPeak", .integer(base))])
    }
    return WorkloadResult(
      name: "upload-1m", title: "\(grouped(rows)) rows made on one device, medians of \(bench.options.runs)",
      figures: [
        Figure(
          name: "wall", value: ups.median(\.wall), unit: .seconds, limit: downs.median(\.wall),
          limitName: "a first sync by rows", target: .ratio(atMost: Self.ratioMax),
          details: ups.details + [("making", .real(captures.median))]),
        Figure(
          name: "CPU of both", value: ups.median { $0.clientCPU + $0.serverCPU }, unit: .seconds,
          limit: downs.median { $0.clientCPU + $0.serverCPU }, limitName: "a first sync by rows"),
        Figure(name: "wire", value: Double(ups.median { $0.bytes }), unit: .bytes),
        Figure(name: "round trips", value: Double(ups.median(\.roundTrips)), unit: .count),
        memory("client memory", ups.map(\.clientPeak).max() ?? 0, empty.client),
        memory("server memory", ups.map(\.serverPeak).max() ?? 0, empty.server),
      ])
  }

  /// As an application does, with the triggers that capture.
  private func make(_ data: DataSet, in path: String) throws -> Double {
    let application = try PlainDatabase.open(path)
    defer { application.close() }
    let start = Measure.wall()
    try application.transaction {
      try data.eachBatch(inKeyOrder: false) { table, rows in
        try rows.run(application.cached(PlainDatabase.insertStatement(table)))
      }
    }
    return Measure.wall() - start
  }
}
