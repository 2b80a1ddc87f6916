import SQLiteSupport
import SalvorModel

/// Small syncs of one device while others keep the server busy: four first syncs, and a large upload. The limit: the same
/// alone, in the same run.
struct Beside {
  var rows: Int
  var changes: Int

  private static let besideFirstSyncsMax = 0.05
  private static let besideUploadMax = 0.25

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = RecordData()
    let serverPath = bench.path("beside-server.db")
    let names = ["small", "large", "first-1", "first-2", "first-3", "first-4"]
    let paths = names.map { bench.path("beside-\($0).db") }
    defer {
      bench.discard(serverPath)
      for path in paths { bench.discard(path) }
    }
    bench.say("beside: loading \(grouped(rows)) rows and synchronizing two devices")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    let pair = try Pair(serverPath: serverPath, clientPath: paths[0], schemaName: "record")
    defer { pair.end() }
    // The other devices would be other machines: on this one they get what the server and the measured device leave.
    func device(_ path: String) throws -> ChildProcess {
      let device = try ChildProcess(
        role: "client", [path, "record", pair.url, "recover-unsynced-changes"], niceness: 19)
      try device.call("open")
      return device
    }
    let large = try device(paths[1])
    defer { large.end() }
    let firsts = try paths[2...].map(device)
    defer { for first in firsts { first.end() } }
    _ = try pair.sync()
    try large.call("sync")
    let small = SmallSyncs(pair, try PlainDatabase.open(paths[0]), data, rows: rows)

    bench.settle()
    let alone = try small.run(times: 200)
    bench.say("beside: four first syncs")
    let besideFirst = try small.run(while: firsts.map { device in { try device.call("sync") } })
    let application = try PlainDatabase.open(paths[1])
    defer { application.close() }
    try PlainDatabase.updateQuantities(
      application, data, places: RecordData.spread(changes, of: rows), quantity: 5000)
    // What the others have done since comes first.
    bench.settle()
    bench.say("beside: an upload of \(grouped(changes))")
    let besideUpload = try small.run(while: [{ try large.call("sync") }])
    return WorkloadResult(
      name: "beside", title: "small syncs with \(grouped(rows)) rows on the server, p99",
      figures: [
        figure("four first syncs", besideFirst, alone, Self.besideFirstSyncsMax),
        figure("an upload of \(grouped(changes))", besideUpload, alone, Self.besideUploadMax),
      ])
  }

  private func figure(_ name: String, _ walls: [Double], _ alone: [Double], _ most: Double) -> Figure {
    Figure(
      name: "beside \(name)", value: percentile(walls, 0.99), unit: .seconds, limit: percentile(alone, 0.99),
      limitName: "alone", target: .value(atMost: most),
      details: [
        ("syncs", .integer(Int64(walls.count))), ("median", .real(walls.median)),
        ("slowest", .real(walls.max() ?? 0)), ("aloneMedian", .real(alone.median)),
      ])
  }

  /// One changed row a sync, in turns from the device and from another program at the server.
  private final class SmallSyncs {
    private let pair: Pair
    private let device: SQLiteConnection
    private let data: RecordData
    private let rows: Int
    private var count = 0

    init(_ pair: Pair, _ device: SQLiteConnection, _ data: RecordData, rows: Int) {
      (self.pair, self.device, self.data, self.rows) = (pair, device, data, rows)
    }

    deinit { device.close() }

    private func one() throws -> Double {
      count += 1
      try PlainDatabase.updateQuantities(device, data, places: [count % rows], quantity: Int64(7000 + count))
      let start = Measure.wall()
      try pair.client.call("sync")
      return Measure.wall() - start
    }

    func run(times: Int) throws -> [Double] { try (0..<times).map { _ in try one() } }

    func run(while others: [() throws -> Void]) throws -> [Double] {
      let work = others.map { Background($0) }
      var walls: [Double] = []
      while work.contains(where: { !$0.isDone }) { walls.append(try one()) }
      for other in work { try other.check() }
      return walls
    }
  }
}
