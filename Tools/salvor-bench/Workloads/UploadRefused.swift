import SQLiteSupport
import SalvorModel

/// An upload of many changed rows of which 1 % break a constraint of the server's table, spread over all of it.
///
/// The limit: as many changes of other rows of the same database, all accepted, in turns with it.
struct UploadRefused {
  var rows: Int
  /// One of so many changes is refused.
  private let refusedOneOf = 100
  private var changes: Int { rows / RowSet.count }

  private static let ratioMax = 1.5

  /// Rows that are changed together. Those of a refused change are not changed again: its next upload would be a retry.
  private struct RowSet {
    static let count = 10
    var number: Int
    func places(of rows: Int) -> [Int] { Array(stride(from: number, to: rows - rows % Self.count, by: Self.count)) }
  }

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = min(bench.options.runs, RowSet.count - 1)
    let data = RecordData()
    let serverPath = bench.path("upload-refused-server.db")
    let clientPath = bench.path("upload-refused-client.db")
    defer { bench.discard(serverPath, clientPath) }
    bench.say("upload-refused: loading \(grouped(rows)) rows and synchronizing them")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    try makeRule(serverPath)
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record")
    defer { pair.end() }
    _ = try pair.sync()
    let application = try PlainDatabase.open(clientPath)
    defer { application.close() }

    var accepted: [SyncMeasurement] = []
    var refused: [SyncMeasurement] = []
    for run in 1...runs {
      accepted.append(try upload(pair, application, data, RowSet(number: 0), run, refusing: 0, bench))
      refused.append(
        try upload(pair, application, data, RowSet(number: run), run, refusing: changes / refusedOneOf, bench))
      bench.say(
        "upload-refused: run \(run) of \(runs): \(TableReport.amount(refused[run - 1].wall, .seconds)), all accepted \(TableReport.amount(accepted[run - 1].wall, .seconds))"
      )
    }
    return result(refused, accepted, runs: runs)
  }

  /// A constraint of the server's own: the device's table has none.
  private func makeRule(_ path: String) throws {
    let server = try PlainDatabase.open(path)
    defer { server.close() }
    try server.execute(
      "CREATE TRIGGER rule BEFORE UPDATE ON record WHEN NEW.quantity < 0 BEGIN SELECT RAISE(ABORT, 'negative'); END")
  }

  private func upload(
    _ pair: Pair, _ application: SQLiteConnection, _ data: RecordData, _ set: RowSet, _ run: Int, refusing: Int,
    _ bench: Bench
  ) throws -> SyncMeasurement {
    let places = set.places(of: rows)
    try PlainDatabase.updateQuantities(application, data, places: places) { index in
      refusing > 0 && index % refusedOneOf == refusedOneOf / 2 ? -1 : Int64(1000 + run)
    }
    bench.settle()
    let sync = try pair.sync()
    guard sync.refused == refusing, sync.uploaded == places.count - refusing else {
      throw SalvorError(.failed, "\(sync.uploaded) of \(places.count) changes were accepted, \(sync.refused) refused.")
    }
    return sync
  }

  private func result(_ syncs: [SyncMeasurement], _ limits: [SyncMeasurement], runs: Int) -> WorkloadResult {
    func both(_ sync: SyncMeasurement) -> Double { sync.clientCPU + sync.serverCPU }
    return WorkloadResult(
      name: "upload-refused",
      title: "\(grouped(changes)) changed rows of \(grouped(rows)), 1 % refused, medians of \(runs)",
      figures: [
        Figure(
          name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: limits.median(\.wall),
          limitName: "all accepted", target: .ratio(atMost: Self.ratioMax),
          details: syncs.details + [
            ("limitClientCPU", .real(limits.median(\.clientCPU))),
            ("limitServerCPU", .real(limits.median(\.serverCPU))),
          ]),
        Figure(
          name: "CPU of both sides", value: syncs.median(both), unit: .seconds, limit: limits.median(both),
          limitName: "all accepted"),
      ])
  }
}
