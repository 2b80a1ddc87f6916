import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What an application on a device waits for while Salvor writes in its file: small transactions of its own, in a table of its
/// own, and reads of a synchronized one, beside a first sync, a download of many rows and an upload of them; and how many of its
/// writes fail where it does not wait at all (no busy timeout, as GRDB has it by default) and writes a row every 20 ms.
struct OwnWrites {
  var rows: Int
  var changes: Int

  /// Of readers, who see the state before until the transaction is there. So long does a writer wait for a first sync, too, whose
  /// rows arrive in small transactions. What it waits for beside other downloads is one transaction: the guide on limits says
  /// how long.
  private static let readMax = 0.25
  private static let failedMax = 0.01
  private static let slowerMax = 1.3
  private static let smallSeconds = 4.0
  /// Of a row that is synchronized.
  private static let edit =
    "UPDATE record SET quantity = CAST(?1 * 1000 AS INTEGER) % 100000 WHERE rowid = (SELECT min(rowid) FROM record)"

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
    let impatient = try impatient(bench, data, serverPath)
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
          figure(
            "write beside \(name)", waits.writes, alone.writes, waits.syncing,
            target: name.hasPrefix("a first") ? .value(atMost: Self.readMax) : nil),
          figure("read beside \(name)", waits.reads, alone.reads, waits.syncing, target: .value(atMost: Self.readMax)),
        ]
      } + impatient)
  }

  /// What becomes of an application's writes that do not wait, one every 20 ms.
  private struct Impatience {
    var done = 0
    var failed = 0
    /// The longest time in which each of them failed.
    var lockedOut = 0.0
    var syncing = 0.0
    var share: Double { Double(failed) / Double(max(1, done + failed)) }
  }

  /// A first sync alone, and one beside a writer that gives up at once where the database is locked; then a download beside it.
  private func impatient(_ bench: Bench, _ data: RecordData, _ serverPath: String) throws -> [Figure] {
    bench.say("own-writes: a first sync alone, and one beside a writer that does not wait")
    let alone = try beside(bench, serverPath, writes: false) { try impatience($0, nil) }
    let (first, download, small) = try beside(bench, serverPath, writes: true) { pair in
      let application = try SQLiteConnection(bench.path("own-impatient-true.db"), busyTimeoutMilliseconds: 0)
      defer { application.close() }
      try application.execute("CREATE TABLE own (id INTEGER PRIMARY KEY, at REAL)")
      let first = try impatience(pair, application)
      bench.settle()
      let server = try PlainDatabase.openAsServer(serverPath)
      try PlainDatabase.updateQuantities(
        server, data, places: RecordData.spread(changes, of: rows), quantity: 5000)
      server.close()
      bench.say("own-writes: a download of \(grouped(changes)) beside a writer that does not wait")
      let download = try impatience(pair, application)
      bench.say("own-writes: small synchronizations, one after the other, beside a writer that does not wait")
      let end = Measure.wall() + Self.smallSeconds
      let small = try impatience(pair, application, writing: Self.edit) {
        while Measure.wall() < end { _ = try pair.sync() }
      }
      return (first, download, small)
    }
    return failing("beside a first sync of \(grouped(rows))", first, target: .value(atMost: Self.failedMax))
      + [
        Figure(
          name: "a first sync beside such a writer", value: first.syncing, unit: .seconds, limit: alone.syncing,
          limitName: "alone", target: .ratio(atMost: Self.slowerMax))
      ] + failing("beside a download of \(grouped(changes))", download, target: nil)
      + failing("beside small syncs without a pause, which send them", small, target: nil)
  }

  private func beside<Result>(
    _ bench: Bench, _ serverPath: String, writes: Bool, _ work: (Pair) throws -> Result
  ) throws -> Result {
    let clientPath = bench.path("own-impatient-\(writes).db")
    defer { bench.discard(clientPath) }
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record")
    defer { pair.end() }
    bench.settle()
    return try work(pair)
  }

  private func impatience(
    _ pair: Pair, _ application: SQLiteConnection?, writing sql: String = "INSERT INTO own (at) VALUES (?1)",
    beside work: (() throws -> Void)? = nil
  ) throws -> Impatience {
    var found = Impatience()
    let start = Measure.wall()
    var lastDone = start
    let background = Background(work ?? { _ = try pair.sync() })
    while !background.isDone {
      let now = Measure.wall()
      do {
        try application?.run(sql, .real(now))
        found.done += 1
        lastDone = now
      } catch let error as SalvorError where error.code == .storageBusy {
        found.failed += 1
        found.lockedOut = max(found.lockedOut, now - lastDone)
      }
      usleep(20_000)
    }
    found.syncing = Measure.wall() - start
    try background.check()
    return found
  }

  private func failing(_ what: String, _ found: Impatience, target: Figure.Target?) -> [Figure] {
    [
      Figure(
        name: "writes that fail at once, of one every 20 ms, \(what)", value: found.share, unit: .share, target: target,
        details: [
          ("done", .integer(Int64(found.done))), ("failed", .integer(Int64(found.failed))),
          ("sync", .real(found.syncing)),
        ]),
      Figure(name: "longest time in which each of them fails", value: found.lockedOut, unit: .seconds),
    ]
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
