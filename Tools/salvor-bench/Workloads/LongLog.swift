import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Devices that nobody knows yet upload rows made on commit 0, while the server's change log is long. The limit: the same
/// with an empty log, in turns with it. An upload's cost must follow the upload.
///
/// One row in four is in no entry of the log, and devices change those: the work is the same on both sides. A row that others
/// have changed, too, is asked for its conflict, which the empty log does not have.
struct LongLog {
  var rows: Int
  /// Of the long log.
  var entries: Int
  /// That come at once.
  var devices: Int
  private let rowsOfDevice = 5

  private static let oneRowMax = 1.5
  private static let atOnceMax = 1.3

  func run(_ bench: Bench) throws -> WorkloadResult {
    let empty = try Place(bench, "empty", rows: rows, entries: 0)
    defer { empty.end(bench) }
    let long = try Place(bench, "long", rows: rows, entries: entries)
    defer { long.end(bench) }
    bench.settle()
    var alone: (empty: [Double], long: [Double]) = ([], [])
    // The first round fills caches; it is not counted.
    for round in 0...20 * bench.options.runs {
      let pair = (try empty.oneDevice(), try long.oneDevice())
      guard round > 0 else { continue }
      alone.empty.append(pair.0)
      alone.long.append(pair.1)
    }
    var atOnce: (empty: [Double], long: [Double]) = ([], [])
    for run in 1...bench.options.runs {
      bench.settle()
      atOnce.empty.append(try empty.atOnce(devices, rowsOfDevice))
      bench.settle()
      atOnce.long.append(try long.atOnce(devices, rowsOfDevice))
      bench.say(
        "long-log: run \(run): \(TableReport.amount(atOnce.long[run - 1], .seconds)), empty log \(TableReport.amount(atOnce.empty[run - 1], .seconds))"
      )
    }
    return WorkloadResult(
      name: "long-log", title: "uploads made on commit 0, log of \(grouped(entries)) entries / empty",
      figures: [
        Figure(
          name: "one row, wall", value: alone.long.median, unit: .seconds, limit: alone.empty.median,
          limitName: "empty log", target: .ratio(atMost: Self.oneRowMax),
          details: [
            ("p99", .real(percentile(alone.long, 0.99))), ("limitP99", .real(percentile(alone.empty, 0.99))),
          ]),
        Figure(
          name: "\(grouped(devices)) devices at once with \(rowsOfDevice) rows each, wall", value: atOnce.long.median,
          unit: .seconds, limit: atOnce.empty.median, limitName: "empty log", target: .ratio(atMost: Self.atOnceMax)),
      ])
  }

  /// A server whose rows other programs have changed so often.
  private final class Place {
    private let path: String
    private let server: ChildProcess
    private let port: UInt16
    private let serverID: String
    private let plain: SQLiteConnection
    private var next = 0
    private let rows: Int
    /// One row in so many is not in the log.
    private static let keptEach = 4

    init(_ bench: Bench, _ name: String, rows: Int, entries: Int) throws {
      self.rows = rows
      path = bench.path("long-log-\(name).db")
      bench.say("long-log: \(grouped(rows)) rows, \(grouped(entries)) entries")
      try PlainDatabase.seed(path, .records(RecordData(), count: rows))
      try bench.adopt(path, "record")
      plain = try PlainDatabase.openAsServer(path)
      try plain.execute(
        "CREATE TEMP TABLE kept AS SELECT id FROM record ORDER BY rowid LIMIT 0; CREATE UNIQUE INDEX temp.of_kept ON kept (id)"
      )
      for place in stride(from: 0, to: rows, by: Self.keptEach) {
        try plain.run("INSERT INTO kept VALUES (?1)", .text(RecordData().key(place)))
      }
      var left = entries
      while left > 0 {
        try plain.execute("UPDATE record SET price = price + 1 WHERE id NOT IN (SELECT id FROM kept)")
        left -= rows - rows / Self.keptEach
      }
      try plain.execute("DROP TABLE kept")
      try plain.checkpoint(.truncate)
      server = try ChildProcess(role: "server", [path, "record"])
      port = try RawPost.port(try server.answer(to: "start").string("url"))
      serverID = try plain.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string ?? ""
    }

    /// Seconds of one exchange.
    func oneDevice() throws -> Double {
      let body = try body(rows: 1)
      let start = Measure.wall()
      let post = try RawPost(port, "/v1/sync", body)
      try post.requireAnswer("\"accepted\":1")
      return Measure.wall() - start
    }

    /// Seconds until all are answered.
    func atOnce(_ devices: Int, _ rowsOfDevice: Int) throws -> Double {
      let bodies = try (0..<devices).map { _ in try body(rows: rowsOfDevice) }
      let start = Measure.wall()
      let posts = try bodies.map { try RawPost(port, "/v1/sync", $0) }
      for post in posts { try post.requireAnswer("\"accepted\":\(rowsOfDevice)") }
      return Measure.wall() - start
    }

    /// The begin of a new device, with an upload that changes rows which no other has changed.
    private func body(rows count: Int) throws -> [UInt8] {
      let remote = RemoteID(from: SystemRandom())
      let message = BeginMessage(
        remote: remote, server: ServerID(serverID), previous: nil, current: SequenceID(from: SystemRandom()),
        schemaVersion: 1, schemaDigest: SyncConfig(RecordData.schema).digest, groups: [], upload: .inline,
        position: nil, history: nil)
      var writer = UploadChunkWriter()
      let shape = writer.place(of: UploadShape(table: "record", operation: .update, columns: ["quantity"]))
      let stamp = RequestStamp(from: SystemRandom())
      for counter in 1...count {
        let key = RecordData().key(next * Self.keptEach % rows)
        next += 1
        let before = try plain.integer("SELECT quantity FROM record WHERE id = ?1", .text(key)) ?? 0
        writer.beginChange(shape: shape, stamp: stamp, counter: Int64(counter), made: 0)
        for value in [.text(key), .integer(before), .integer(before + 1)] as [Value] { writer.value(value) }
        writer.endChange()
      }
      return message.json.bytes + [0x0A] + writer.finish()
    }

    func end(_ bench: Bench) {
      plain.close()
      server.end()
      bench.discard(path)
    }
  }
}
