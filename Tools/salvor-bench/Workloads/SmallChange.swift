import SalvorModel
import SalvorWire

/// A few changes in many rows, made on the device and uploaded, then made on the server by another program and
/// downloaded. The limit: the same with few rows. Cost must follow what changed, not what is there.
struct SmallChange {
  var rows: Int
  var fewRows: Int
  var changes: Int

  private static let ratioMax = 1.3
  private static let bytesMax = 12_000.0

  private struct Directions {
    var up: [SyncMeasurement] = []
    var down: [SyncMeasurement] = []
  }

  func run(_ bench: Bench) throws -> WorkloadResult {
    let few = try measure(bench, rows: fewRows)
    let many = try measure(bench, rows: rows)
    return WorkloadResult(
      name: "small-change",
      title: "\(changes) changes in \(grouped(rows)) rows / in \(grouped(fewRows)), medians of \(repetitions(bench))",
      figures: figures("device to server", many.up, few.up) + figures("server to device", many.down, few.down))
  }

  private func repetitions(_ bench: Bench) -> Int { bench.options.runs * 5 }

  private func measure(_ bench: Bench, rows: Int) throws -> Directions {
    let data = RecordData()
    let serverPath = bench.path("small-\(rows)-server.db")
    let clientPath = bench.path("small-\(rows)-client.db")
    defer { bench.discard(serverPath, clientPath) }
    bench.say("small-change: loading \(grouped(rows)) rows and synchronizing them")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record")
    defer { pair.end() }
    _ = try pair.sync()
    let device = try PlainDatabase.open(clientPath)
    let server = try PlainDatabase.open(serverPath)
    defer {
      device.close()
      server.close()
    }
    var directions = Directions()
    bench.settle()
    // The first round opens connections and fills caches; it is not counted.
    for round in 0...repetitions(bench) {
      // Other rows each time, spread over all of them.
      let places = RecordData.spread(changes, of: rows).map { ($0 + round * 13) % rows }
      try PlainDatabase.updateQuantities(device, data, places: places, quantity: Int64(2000 + round))
      let up = try pair.sync()
      try PlainDatabase.updateQuantities(server, data, places: places, quantity: Int64(3000 + round))
      let down = try pair.sync()
      guard up.uploaded == changes, down.upserts == changes else {
        throw SalvorError(.failed, "\(up.uploaded) changes went up, \(down.upserts) came down, of \(changes).")
      }
      guard round > 0 else { continue }
      directions.up.append(up)
      directions.down.append(down)
    }
    try PlainDatabase.requireEqual(serverPath, clientPath, RecordData.schema)
    return directions
  }

  private func figures(_ direction: String, _ many: [SyncMeasurement], _ few: [SyncMeasurement]) -> [Figure] {
    [
      Figure(
        name: "\(direction), wall", value: many.median(\.wall), unit: .seconds, limit: few.median(\.wall),
        limitName: "few rows", target: .ratio(atMost: SmallChange.ratioMax), details: many.details),
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
