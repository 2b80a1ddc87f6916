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
  var rows: Int
  var ratioMax: Double

  private static let bytesMax = 0.75
  private static let serverMax = 0.02

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = DataSet.records(RecordData(), count: rows)
    let serverPath = bench.path("\(name)-server.db"), clientPath = bench.path("\(name)-client.db")
    defer { bench.discard(serverPath, clientPath) }
    bench.say("\(name): loading \(grouped(rows)) rows into a server's database")
    try PlainDatabase.seed(serverPath, data)
    try bench.adopt(serverPath, data.schemaName)
    let pair = try Pair(
      serverPath: serverPath, clientPath: clientPath, schemaName: data.schemaName, snapshots: true)
    defer { pair.end() }
    let byRows = try pair.sync()
    let ddl = try PlainDatabase.tableDDL(of: clientPath, data.schema)
    let making = Measure.wall()
    let before = try pair.server.call("usage").real("cpu")
    try waitForFile(serverPath)
    let made = Cost(wall: Measure.wall() - making, cpu: try pair.server.call("usage").real("cpu") - before)
    bench.say("\(name): by rows \(TableReport.amount(byRows.wall, .seconds)), the file is made")

    var syncs: [SyncMeasurement] = []
    var limits: [Cost] = []
    for run in 1...bench.options.runs {
      try pair.renewClient(clientPath, data.schemaName)
      bench.settle()
      syncs.append(try pair.sync())
      guard syncs[run - 1].upserts == rows else {
        throw SalvorError(.failed, "\(syncs[run - 1].upserts) of \(rows) rows arrived.")
      }
      if run == 1 { try PlainDatabase.requireEqual(serverPath, clientPath, data.schema) }
      let path = bench.path("\(name)-limit.db")
      PlainDatabase.remove(path)
      bench.settle()
      limits.append(try PlainDatabase.timedInsert(path, ddl: ddl, data, inKeyOrder: true))
      PlainDatabase.remove(path)
      bench.say(
        "\(name): run \(run) of \(bench.options.runs): \(TableReport.amount(syncs[run - 1].wall, .seconds)), inserts "
          + TableReport.amount(limits[run - 1].wall, .seconds))
    }
    return WorkloadResult(
      name: name, title: "\(grouped(rows)) rows, medians of \(bench.options.runs)",
      figures: figures(syncs, byRows, limits.map(\.wall).median, made))
  }

  private func figures(
    _ syncs: [SyncMeasurement], _ byRows: SyncMeasurement, _ inserts: Double, _ made: Cost
  ) -> [Figure] {
    [
      Figure(
        name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: inserts, limitName: "inserts in key order",
        target: .ratio(atMost: ratioMax), details: syncs.details),
      Figure(
        name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: byRows.wall, limitName: "by rows",
        details: [("byRowsClientCPU", .real(byRows.clientCPU))]),
      Figure(
        name: "wire", value: Double(syncs.median { $0.bytes }), unit: .bytes, limit: Double(byRows.bytes),
        limitName: "by rows", target: .ratio(atMost: SnapshotSync.bytesMax)),
      Figure(
        name: "server CPU", value: syncs.median(\.serverCPU), unit: .seconds, limit: byRows.serverCPU,
        limitName: "by rows", target: .ratio(atMost: SnapshotSync.serverMax)),
      Figure(
        name: "making, server CPU", value: made.cpu, unit: .seconds, limit: byRows.serverCPU, limitName: "by rows",
        target: .ratio(atMost: 1.2), details: [("wall", .real(made.wall))]),
    ]
  }

  /// The server makes it after the first device's rows, by itself.
  private func waitForFile(_ serverPath: String) throws {
    let folder = serverPath + "-snapshots"
    for _ in 0..<60_000 {
      if let open = opendir(folder) {
        defer { closedir(open) }
        while let entry = readdir(open) {
          let name = withUnsafeBytes(of: &entry.pointee.d_name) {
            String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
          }
          if name.hasSuffix(".json") { return }
        }
      }
      usleep(10_000)
    }
    throw SalvorError(.failed, "No snapshot was made within ten minutes.")
  }
}
