import SQLiteSupport
import SalvorModel
import SalvorWire

#if canImport(Glibc)
  @preconcurrency import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A device without rows synchronizes for the first time, by a file that was made before.
///
/// The limits: the same rows by prepared inserts in key order in one transaction, without a server; and a first sync of the same
/// rows one by one.
struct SnapshotSync {
  var name: String
  var data: DataSet
  var ratioMax: Double
  /// What making costs, beside others, and what has changed since a file: with large groups.
  var isWhole = false

  private static let bytesMax = 0.75
  private static let serverMax = 0.02
  private static let memoryMax = 16e6
  private static let makingMax = 1.2
  private static let besideMax = 1.3
  private static let behindMax = 1.3

  func run(_ bench: Bench) throws -> WorkloadResult {
    let empty = try bench.emptyPeaks(data.schemaName)
    let scene = try SnapshotScene(bench, name, data)
    defer { scene.end() }
    let gzip = try scene.sync(by: .gzip)
    let byRows = try scene.sync(by: .rows)
    let ddl = try PlainDatabase.tableDDL(of: scene.clientPath, data.schema)
    let (start, before) = (Measure.wall(), try scene.serverCPU())
    // One that has the files made while it gets its rows.
    _ = try scene.sync()
    try scene.waitForFiles()
    let made = Cost(wall: Measure.wall() - start, cpu: try scene.serverCPU() - before - byRows.serverCPU)
    let makingPeak = try scene.pair.server.call("usage").integer("peak")
    bench.say("\(name): by rows \(TableReport.amount(byRows.wall, .seconds)), the file is made")
    let beside = isWhole ? try Beside(scene) : nil

    try scene.restart()
    var (syncs, limits) = ([SyncMeasurement](), [Double]())
    for run in 1...bench.options.runs {
      syncs.append(try scene.sync())
      if run == 1 { try PlainDatabase.requireEqual(scene.serverPath, scene.clientPath, data.schema) }
      limits.append(try insert(bench, ddl))
      bench.say(
        "\(name): run \(run) of \(bench.options.runs): \(TableReport.amount(syncs[run - 1].wall, .seconds)), inserts "
          + TableReport.amount(limits[run - 1], .seconds))
    }
    let behind = isWhole ? try behind(bench, scene) : []
    let byRowsMemory = byRows.serverPeak
    var figures = sizes(syncs, byRows, gzip, limits.median, empty)
    figures.append(
      Figure(
        name: "making, server CPU", value: made.cpu, unit: .seconds, limit: byRows.serverCPU, limitName: "by rows",
        target: .ratio(atMost: Self.makingMax),
        details: [
          ("wall", .real(made.wall)), ("peakByRows", .integer(byRowsMemory)), ("peakAfterMaking", .integer(makingPeak)),
        ]))
    if let beside { figures.append(beside.figure(atMost: Self.besideMax)) }
    if !behind.isEmpty {
      figures.append(
        Figure(
          name: "1 % changed since", value: behind.median(\.wall), unit: .seconds, limit: syncs.median(\.wall),
          limitName: "nothing", target: .ratio(atMost: Self.behindMax), details: behind.details))
    }
    return WorkloadResult(
      name: name, title: "\(grouped(data.rowCount)) rows, medians of \(bench.options.runs)", figures: figures)
  }

  private func insert(_ bench: Bench, _ ddl: [String]) throws -> Double {
    let path = bench.path("\(name)-limit.db")
    defer { PlainDatabase.remove(path) }
    PlainDatabase.remove(path)
    bench.settle()
    return try PlainDatabase.timedInsert(path, ddl: ddl, data, inKeyOrder: true).wall
  }

  /// Another program changes one row of a hundred; the same file is still the newest.
  private func behind(_ bench: Bench, _ scene: SnapshotScene) throws -> [SyncMeasurement] {
    guard case .records(let records, let count) = data else { return [] }
    let server = try PlainDatabase.openAsServer(scene.serverPath)
    defer { server.close() }
    try PlainDatabase.updateQuantities(
      server, records, places: RecordData.spread(count / 100, of: count), quantity: 77_777)
    let syncs = try (1...bench.options.runs).map { _ in try scene.sync() }
    try PlainDatabase.requireEqual(scene.serverPath, scene.clientPath, data.schema)
    return syncs
  }

  private func sizes(
    _ syncs: [SyncMeasurement], _ byRows: SyncMeasurement, _ gzip: SyncMeasurement, _ inserts: Double,
    _ empty: (client: Int64, server: Int64)
  ) -> [Figure] {
    func memory(_ name: String, _ peak: Int64, _ base: Int64) -> Figure {
      Figure(
        name: name, value: Double(peak - base), unit: .bytes, target: .value(atMost: Self.memoryMax),
        details: [("peak", .integer(peak)), ("emptySyncPeak", .integer(base))])
    }
    return [
      Figure(
        name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: inserts, limitName: "inserts in key order",
        target: .ratio(atMost: ratioMax), details: syncs.details),
      Figure(
        name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: byRows.wall, limitName: "by rows",
        details: [("byRowsClientCPU", .real(byRows.clientCPU))]),
      Figure(
        name: "wire", value: Double(syncs.median { $0.bytes }), unit: .bytes, limit: Double(gzip.bytes),
        limitName: "by rows with gzip", target: .ratio(atMost: Self.bytesMax)),
      Figure(
        name: "wire", value: Double(syncs.median { $0.bytes }), unit: .bytes, limit: Double(byRows.bytes),
        limitName: "by rows"),
      Figure(
        name: "server CPU", value: syncs.median(\.serverCPU), unit: .seconds, limit: byRows.serverCPU,
        limitName: "by rows", target: .ratio(atMost: Self.serverMax)),
      memory("client memory", syncs.map(\.clientPeak).max() ?? 0, empty.client),
      memory("server memory", syncs.map(\.serverPeak).max() ?? 0, empty.server),
    ]
  }

  /// Small syncs of one device while the server makes a file for others, and alone.
  private struct Beside {
    private var (meanwhile, alone) = ([Double](), [Double]())

    init(_ scene: SnapshotScene) throws {
      scene.forgetFiles()
      _ = try scene.sync()
      let application = try PlainDatabase.open(scene.clientPath)
      defer { application.close() }
      guard case .records(let records, let count) = scene.data else { return }
      var number = 0
      func one() throws -> Double {
        number += 1
        try PlainDatabase.updateQuantities(
          application, records, places: [number * 37 % count], quantity: Int64(7000 + number))
        usleep(5000)
        let sync = try scene.pair.client.call("sync")
        return try sync.real("wall")
      }
      while !scene.isReady { meanwhile.append(try one()) }
      for _ in 0..<max(100, meanwhile.count) { alone.append(try one()) }
    }

    func figure(atMost most: Double) -> Figure {
      Figure(
        name: "a small sync while it is made", value: meanwhile.median, unit: .seconds, limit: alone.median,
        limitName: "alone", target: .ratio(atMost: most),
        details: [
          ("syncs", .integer(Int64(meanwhile.count))), ("p90", .real(percentile(meanwhile, 0.9))),
          ("aloneP90", .real(percentile(alone, 0.9))),
        ])
    }
  }
}
