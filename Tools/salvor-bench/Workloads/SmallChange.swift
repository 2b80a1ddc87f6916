import SQLiteSupport
import SalvorModel
import SalvorWire

/// A few changes in many rows, made on the device and uploaded, then made on the server by another program and
/// downloaded. The limit: the same with few rows. Cost must follow what changed, not what is there. Then every column of the same rows
/// is changed, so that they come whole.
struct SmallChange {
  var rows: Int
  var fewRows: Int
  var changes: Int

  private static let ratioMax = 1.3
  private static let bytesMax = 4000.0
  private static let ofWholeMax = 0.4

  private struct Directions {
    var up: [SyncMeasurement] = []
    var down: [SyncMeasurement] = []
    /// The rows come whole.
    var whole: [SyncMeasurement] = []
  }

  func run(_ bench: Bench) throws -> WorkloadResult {
    let few = try Place(bench, rows: fewRows)
    defer { few.end(bench) }
    let many = try Place(bench, rows: rows)
    defer { many.end(bench) }
    bench.settle()
    // In turns, so that both meet the same machine, and each comes after the other as often as before it. The first round opens connections and fills caches; it is not counted.
    for round in 0...repetitions(bench) {
      for place in round % 2 == 0 ? [few, many] : [many, few] { try place.round(round, changes: changes) }
    }
    for place in [few, many] { try PlainDatabase.requireEqual(place.serverPath, place.clientPath, RecordData.schema) }
    return WorkloadResult(
      name: "small-change",
      title: "\(changes) changes in \(grouped(rows)) rows / in \(grouped(fewRows)), medians of \(repetitions(bench))",
      figures: figures("device to server", many.directions.up, few.directions.up)
        + figures("server to device", many.directions.down, few.directions.down)
        + [
          Figure(
            name: "server to device, wire", value: Double(many.directions.down.median { $0.received }), unit: .bytes,
            limit: Double(many.directions.whole.median { $0.received }), limitName: "all columns",
            target: .ratio(atMost: Self.ofWholeMax)),
          Figure(
            name: "server to device, wall", value: many.directions.down.median(\.wall), unit: .seconds,
            limit: many.directions.whole.median(\.wall), limitName: "all columns", target: .ratio(atMost: 1)),
        ])
  }

  private func repetitions(_ bench: Bench) -> Int { bench.options.runs * 5 }

  /// A server and a device with so many rows, synchronized.
  private final class Place {
    let rows: Int
    let serverPath: String
    let clientPath: String
    private let data = RecordData()
    private let pair: Pair
    private let device: SQLiteConnection
    private let server: SQLiteConnection
    private(set) var directions = Directions()

    init(_ bench: Bench, rows: Int) throws {
      self.rows = rows
      serverPath = bench.path("small-\(rows)-server.db")
      clientPath = bench.path("small-\(rows)-client.db")
      bench.say("small-change: loading \(grouped(rows)) rows and synchronizing them")
      try PlainDatabase.seed(serverPath, .records(data, count: rows))
      pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record")
      _ = try pair.sync()
      device = try PlainDatabase.open(clientPath)
      server = try PlainDatabase.open(serverPath)
    }

    /// Changes other rows each time, spread over all of them.
    func round(_ round: Int, changes: Int) throws {
      let places = RecordData.spread(changes, of: rows).map { ($0 + round * 13) % rows }
      try PlainDatabase.updateQuantities(device, data, places: places, quantity: Int64(2000 + round))
      let up = try pair.sync()
      try PlainDatabase.updateQuantities(server, data, places: places, quantity: Int64(3000 + round))
      let down = try pair.sync()
      guard up.uploaded == changes, down.upserts == changes else {
        throw SalvorError(.failed, "\(up.uploaded) changes went up, \(down.upserts) came down, of \(changes).")
      }
      try server.execute(
        """
        UPDATE record SET name = name || '.', address = address || '.', city = city || '.', note = note || '.',
          token = token || '.', created = '2001' || substr(created, 5), quantity = quantity + 1000, price = price + 1,
          status = status || '.' WHERE quantity = \(3000 + round)
        """)
      let whole = try pair.sync()
      guard whole.upserts == changes else { throw SalvorError(.failed, "\(whole.upserts) rows came whole.") }
      guard round > 0 else { return }
      directions.up.append(up)
      directions.down.append(down)
      directions.whole.append(whole)
    }

    func end(_ bench: Bench) {
      device.close()
      server.close()
      pair.end()
      bench.discard(serverPath, clientPath)
    }
  }

  private func figures(_ direction: String, _ many: [SyncMeasurement], _ few: [SyncMeasurement]) -> [Figure] {
    [
      Figure(
        name: "\(direction), wall", value: many.median(\.wall), unit: .seconds, limit: few.median(\.wall),
        limitName: "few rows", target: .ratio(atMost: SmallChange.ratioMax), details: many.details),
      Figure(
        name: "\(direction), CPU of both", value: many.median { $0.clientCPU + $0.serverCPU }, unit: .seconds,
        limit: few.median { $0.clientCPU + $0.serverCPU }, limitName: "few rows"),
      Figure(
        name: "\(direction), wire", value: Double(many.median { $0.bytes }), unit: .bytes,
        limit: Double(few.median { $0.bytes }), limitName: "few rows", target: .ratio(atMost: SmallChange.ratioMax)),
      Figure(
        name: "\(direction), wire", value: Double(many.median { $0.bytes }), unit: .bytes,
        target: .value(atMost: SmallChange.bytesMax)),
      Figure(
        name: "\(direction), round trips", value: Double(many.map(\.roundTrips).max() ?? 0), unit: .count,
        target: .value(atMost: 1)),
    ]
  }
}
