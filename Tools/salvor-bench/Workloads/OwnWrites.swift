import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What an application on a device waits for while Salvor writes in its file: small transactions of its own, in a table of its
/// own, and reads of a synchronized one, beside a first sync, a download of many rows and an upload of them.
struct OwnWrites {
  var rows: Int
  var changes: Int

  /// Of readers, who see the state before until the transaction is there. What a writer waits for is the transaction, which is
  /// one: the guide on limits says how long.
  private static let readMax = 0.25

  private struct Waits {
    var writes: [Double] = []
    var reads: [Double] = []
    var syncing = 0.0
  }

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = RecordData()
    let (serverPath, clientPath) = (bench.path("own-server.db"), bench.path("own-client.db"))
    defer { bench.discard(serverPath, clientPath) }
    bench.say("own-writes: loading \(grouped(rows)) rows")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record")
    defer { pair.end() }
    let application = try PlainDatabase.open(clientPath)
    defer { application.close() }
    try application.execute("CREATE TABLE own (id INTEGER PRIMARY KEY, at REAL)")
    let reader = try PlainDatabase.open(clientPath)
    defer { reader.close() }
    bench.settle()
    let alone = try waits(application, reader, times: 500)

    bench.say("own-writes: a first sync")
    let first = try waits(application, reader) { _ = try pair.sync() }
    bench.settle()
    let server = try PlainDatabase.openAsServer(serverPath)
    try PlainDatabase.updateQuantities(server, data, places: RecordData.spread(changes, of: rows), quantity: 6000)
    server.close()
    bench.say("own-writes: a download of \(grouped(changes))")
    let download = try waits(application, reader) { _ = try pair.sync() }
    try PlainDatabase.updateQuantities(application, data, places: RecordData.spread(changes, of: rows), quantity: 7000)
    bench.settle()
    bench.say("own-writes: an upload of \(grouped(changes))")
    let upload = try waits(application, reader) { _ = try pair.sync() }
    let cases = [
      ("a first sync of \(grouped(rows))", first), ("a download of \(grouped(changes))", download),
      ("an upload of \(grouped(changes))", upload),
    ]
    return WorkloadResult(
      name: "own-writes", title: "an application's own small transactions on the device, the longest one",
      figures: cases.flatMap { name, waits in
        [
          figure("write beside \(name)", waits.writes, alone.writes, waits.syncing, target: nil),
          figure("read beside \(name)", waits.reads, alone.reads, waits.syncing, target: .value(atMost: Self.readMax)),
        ]
      })
  }

  private func figure(
    _ name: String, _ walls: [Double], _ alone: [Double], _ syncing: Double, target: Figure.Target?
  ) -> Figure {
    Figure(
      name: name, value: walls.max() ?? 0, unit: .seconds, limit: percentile(alone, 0.99), limitName: "alone, p99",
      target: target,
      details: [
        ("count", .integer(Int64(walls.count))), ("median", .real(walls.median)),
        ("p99", .real(percentile(walls, 0.99))), ("sync", .real(syncing)),
      ])
  }

  private func waits(
    _ application: SQLiteConnection, _ reader: SQLiteConnection, times: Int = .max,
    beside work: (() throws -> Void)? = nil
  ) throws -> Waits {
    var waits = Waits()
    let start = Measure.wall()
    let background = work.map { Background($0) }
    while background.map({ !$0.isDone }) ?? true, waits.writes.count < times {
      var before = Measure.wall()
      try application.run("INSERT INTO own (at) VALUES (?1)", .real(before))
      waits.writes.append(Measure.wall() - before)
      before = Measure.wall()
      _ = try reader.integer("SELECT max(rowid) FROM record")
      waits.reads.append(Measure.wall() - before)
      usleep(5000)
    }
    waits.syncing = Measure.wall() - start
    try background?.check()
    return waits
  }
}
