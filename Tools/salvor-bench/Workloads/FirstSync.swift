import SalvorModel
import SalvorWire

/// A device without rows synchronizes for the first time with a server that has them.
///
/// The limit: the same rows by prepared inserts into the same tables (the device's own DDL, the same settings) in one
/// transaction, in this one process, without a server. Making the rows is not in its time.
struct FirstSync {
  var name: String
  var data: DataSet
  var ratioMax: Double
  /// Processor time of both sides, of what the inserts in key order take.
  var cpuMax: Double?

  private static let memoryMax = 48e6
  private static let wireBytesPer100kMax = 10e6

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let serverPath = bench.path("\(name)-server.db")
    let clientPath = bench.path("\(name)-client.db")
    defer { bench.discard(serverPath, clientPath) }
    bench.say("\(name): loading \(grouped(data.rowCount)) rows into a server's database")
    try PlainDatabase.seed(serverPath, data)
    try bench.adopt(serverPath, data.schemaName)
    let empty = try bench.emptyPeaks(data.schemaName)

    var syncs: [SyncMeasurement] = []
    var ddl: [String] = []
    for run in 1...runs {
      PlainDatabase.remove(clientPath)
      bench.settle()
      let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: data.schemaName)
      let sync = try pair.sync()
      pair.end()
      bench.say("\(name): run \(run) of \(runs): \(TableReport.amount(sync.wall, .seconds))")
      guard sync.upserts == data.rowCount else {
        throw SalvorError(.failed, "\(sync.upserts) of \(data.rowCount) rows arrived.")
      }
      if run == 1 {
        ddl = try PlainDatabase.tableDDL(of: clientPath, data.schema)
        try PlainDatabase.requireEqual(serverPath, clientPath, data.schema)
      }
      syncs.append(sync)
    }
    let limit = try limits(bench, ddl, inKeyOrder: false)
    var figures = [wall(syncs, limit: limit)]
    if case .records = data {
      let ordered = try limits(bench, ddl, inKeyOrder: true)
      figures.append(wall(syncs, limitInKeyOrder: ordered))
      figures.append(
        Figure(
          name: "CPU of both", value: syncs.median { $0.clientCPU + $0.serverCPU }, unit: .seconds, limit: ordered.cpu,
          limitName: "inserts in key order", target: cpuMax.map { .ratio(atMost: $0) }))
    }
    return WorkloadResult(
      name: name, title: "\(grouped(data.rowCount)) rows, medians of \(runs)", figures: figures + sizes(syncs, empty))
  }

  private func limits(_ bench: Bench, _ ddl: [String], inKeyOrder: Bool) throws -> Cost {
    let path = bench.path("\(name)-limit.db")
    var costs: [Cost] = []
    for run in 1...bench.options.runs {
      PlainDatabase.remove(path)
      bench.settle()
      costs.append(try PlainDatabase.timedInsert(path, ddl: ddl, data, inKeyOrder: inKeyOrder))
      bench.say(
        "\(name): limit\(inKeyOrder ? " in key order" : ""), run \(run) of \(bench.options.runs): "
          + TableReport.amount(costs[run - 1].wall, .seconds))
    }
    PlainDatabase.remove(path)
    return Cost(wall: costs.map(\.wall).median, cpu: costs.map(\.cpu).median)
  }

  private func wall(_ syncs: [SyncMeasurement], limit: Cost) -> Figure {
    Figure(
      name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: limit.wall, limitName: "inserts",
      target: .ratio(atMost: ratioMax), details: syncs.details + [("limitCPU", .real(limit.cpu))])
  }

  /// Rows come in key order from a server, which SQLite takes faster than rows in the order of their making: the
  /// stricter of the two limits, for the record.
  private func wall(_ syncs: [SyncMeasurement], limitInKeyOrder limit: Cost) -> Figure {
    Figure(
      name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: limit.wall,
      limitName: "inserts in key order", details: [("limitCPU", .real(limit.cpu))])
  }

  private func sizes(_ syncs: [SyncMeasurement], _ empty: (client: Int64, server: Int64)) -> [Figure] {
    let wire = Double(syncs.median { $0.bytes }) / Double(data.rowCount) * 100_000
    var wireTarget: Figure.Target?
    if case .records = data { wireTarget = .value(atMost: FirstSync.wireBytesPer100kMax) }
    func memory(_ name: String, _ peak: Int64, _ base: Int64) -> Figure {
      Figure(
        name: name, value: Double(peak - base), unit: .bytes, target: .value(atMost: FirstSync.memoryMax),
        details: [("peak", .integer(peak)), ("emptySyncPeak", .integer(base))])
    }
    return [
      Figure(name: "client CPU", value: syncs.median(\.clientCPU), unit: .seconds),
      Figure(name: "server CPU", value: syncs.median(\.serverCPU), unit: .seconds),
      Figure(name: "wire, per 100,000 rows", value: wire, unit: .bytes, target: wireTarget),
      memory("client memory", syncs.map(\.clientPeak).max() ?? 0, empty.client),
      memory("server memory", syncs.map(\.serverPeak).max() ?? 0, empty.server),
    ]
  }
}
