import SalvorModel
import SalvorWire

/// An application on the device changes one integer column of many rows; the next sync uploads them.
///
/// The limit: prepared updates of the same rows by key in the server's database, whose table is then the application's
/// plain one without triggers.
struct Upload {
  var name: String
  var changes: Int
  var rows: Int
  /// The device sees its rows through a join table, by what nothing changes: the server follows it for each of them.
  var isThroughMembers = false

  private static let ratioMax = 3.0
  private static let bytesEachMax = 32.0
  private static let roundTripsMax = 6.0

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let data = RecordData()
    let serverPath = bench.path("\(name)-server.db")
    let clientPath = bench.path("\(name)-client.db")
    let plainPath = bench.path("\(name)-plain.db")
    defer { bench.discard(serverPath, clientPath, plainPath) }
    bench.say("\(name): loading \(grouped(rows)) rows and synchronizing them")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    try PlainDatabase.copy(serverPath, to: plainPath)
    let places = RecordData.spread(changes, of: rows)

    let schemaName = isThroughMembers ? "record-status-member" : "record"
    if isThroughMembers {
      try bench.adopt(serverPath, schemaName)
      let server = try PlainDatabase.openAsServer(serverPath)
      try server.execute("INSERT INTO member SELECT DISTINCT status, status, 'bench' FROM record")
      server.close()
    }
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: schemaName)
    defer { pair.end() }
    _ = try pair.sync()
    let application = try PlainDatabase.open(clientPath)
    defer { application.close() }
    var syncs: [SyncMeasurement] = []
    for run in 1...runs {
      try PlainDatabase.updateQuantities(application, data, places: places, quantity: Int64(1000 + run))
      bench.settle()
      let sync = try pair.sync()
      guard sync.uploaded == changes, sync.refused == 0 else {
        throw SalvorError(.failed, "\(sync.uploaded) of \(changes) changes were accepted.")
      }
      syncs.append(sync)
      bench.say("\(name): run \(run) of \(runs): \(TableReport.amount(sync.wall, .seconds))")
    }
    try PlainDatabase.requireEqual(serverPath, clientPath, RecordData.schema)

    let plain = try PlainDatabase.openAsServer(plainPath)
    defer { plain.close() }
    var limits: [Cost] = []
    for run in 1...runs {
      bench.settle()
      limits.append(
        try PlainDatabase.updateQuantities(plain, data, places: places, quantity: Int64(1000 + run)))
    }
    return result(syncs, limits, runs: runs)
  }

  private func result(_ syncs: [SyncMeasurement], _ limits: [Cost], runs: Int) -> WorkloadResult {
    WorkloadResult(
      name: name, title: "\(grouped(changes)) changed rows of \(grouped(rows)), medians of \(runs)",
      figures: [
        Figure(
          name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: limits.map(\.wall).median,
          limitName: "updates by key", target: .ratio(atMost: Upload.ratioMax),
          details: syncs.details + [("limitCPU", .real(limits.map(\.cpu).median))]),
        Figure(name: "client CPU", value: syncs.median(\.clientCPU), unit: .seconds),
        Figure(name: "server CPU", value: syncs.median(\.serverCPU), unit: .seconds),
        Figure(
          name: "wire, both directions, per change", value: Double(syncs.median { $0.bytes }) / Double(changes),
          unit: .bytesEach, target: .value(atMost: Upload.bytesEachMax)),
        Figure(
          name: "round trips", value: Double(syncs.map(\.roundTrips).max() ?? 0), unit: .count,
          target: .value(atMost: Self.roundTripsMax)),
        Figure(name: "client peak memory", value: Double(syncs.map(\.clientPeak).max() ?? 0), unit: .bytes),
        Figure(name: "server peak memory", value: Double(syncs.map(\.serverPeak).max() ?? 0), unit: .bytes),
      ])
  }
}
