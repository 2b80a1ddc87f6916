import SQLiteSupport
import SalvorModel
import SalvorWire

/// One column of many rows changed in one transaction: by the application on the device, then by another program in the server's
/// tables. The limit: prepared updates of the same rows by key in a plain database, one transaction, every commit durable.
struct ManyUpdates {
  var changes: Int
  var rows: Int
  var fewRows: Int

  private static let upMax = 2.0
  private static let downMax = 3.0
  private static let downBytesMax = 300_000.0
  /// As much in many rows as in few ones, but for what two measurements differ by.
  private static let growthMax = 1.1

  private final class Place {
    let rows: Int
    let paths: (server: String, client: String, plain: String)
    private let data = RecordData()
    private let pair: Pair
    private let device: SQLiteConnection
    private let server: SQLiteConnection
    private let plain: SQLiteConnection
    private(set) var up: [SyncMeasurement] = []
    private(set) var down: [SyncMeasurement] = []
    private(set) var limits: [Cost] = []

    init(_ bench: Bench, rows: Int) throws {
      self.rows = rows
      paths = (
        bench.path("many-\(rows)-server.db"), bench.path("many-\(rows)-client.db"), bench.path("many-\(rows)-plain.db")
      )
      bench.say("update-10k: loading \(grouped(rows)) rows and synchronizing them")
      try PlainDatabase.seed(paths.server, .records(data, count: rows))
      try PlainDatabase.copy(paths.server, to: paths.plain)
      pair = try Pair(serverPath: paths.server, clientPath: paths.client, schemaName: "record")
      _ = try pair.sync()
      device = try PlainDatabase.open(paths.client)
      server = try PlainDatabase.open(paths.server)
      plain = try PlainDatabase.openAsServer(paths.plain)
    }

    func round(_ bench: Bench, _ round: Int, changes: Int) throws {
      let places = RecordData.spread(changes, of: rows).map { ($0 + round * 13) % rows }
      bench.settle()
      let limit = try PlainDatabase.updateQuantities(plain, data, places: places, quantity: Int64(3000 + round))
      try PlainDatabase.updateQuantities(device, data, places: places, quantity: Int64(2000 + round))
      bench.settle()
      let up = try pair.sync()
      try PlainDatabase.updateQuantities(server, data, places: places, quantity: Int64(3000 + round))
      bench.settle()
      let down = try pair.sync()
      guard up.uploaded == changes, down.upserts == changes else {
        throw SalvorError(.failed, "\(up.uploaded) changes went up, \(down.upserts) came down, of \(changes).")
      }
      guard round > 0 else { return }
      limits.append(limit)
      self.up.append(up)
      self.down.append(down)
    }

    func end(_ bench: Bench) {
      for connection in [device, server, plain] { connection.close() }
      pair.end()
      bench.discard(paths.server, paths.client, paths.plain)
    }
  }

  func run(_ bench: Bench) throws -> WorkloadResult {
    let few = try Place(bench, rows: fewRows)
    defer { few.end(bench) }
    let many = try Place(bench, rows: rows)
    defer { many.end(bench) }
    // The first round opens connections and fills caches.
    for round in 0...bench.options.runs {
      for place in round % 2 == 0 ? [few, many] : [many, few] { try place.round(bench, round, changes: changes) }
    }
    try PlainDatabase.requireEqual(many.paths.server, many.paths.client, RecordData.schema)
    func wall(_ name: String, _ syncs: [SyncMeasurement], _ place: Place, atMost most: Double?) -> Figure {
      Figure(
        name: "\(name), \(grouped(place.rows)) rows", value: syncs.median(\.wall), unit: .seconds,
        limit: place.limits.map(\.wall).median, limitName: "updates by key", target: most.map { .ratio(atMost: $0) },
        details: syncs.details + [("limitCPU", .real(place.limits.map(\.cpu).median))])
    }
    return WorkloadResult(
      name: "update-10k",
      title: "\(grouped(changes)) updates of one column, medians of \(bench.options.runs)",
      figures: [
        wall("down", many.down, many, atMost: Self.downMax), wall("down", few.down, few, atMost: nil),
        Figure(
          name: "down, wire", value: Double(many.down.median { $0.received }), unit: .bytes,
          target: .value(atMost: Self.downBytesMax)),
        wall("up", many.up, many, atMost: Self.upMax), wall("up", few.up, few, atMost: Self.upMax),
        Figure(
          name: "up, \(grouped(rows)) rows", value: many.up.median(\.wall), unit: .seconds,
          limit: few.up.median(\.wall), limitName: "\(grouped(fewRows)) rows", target: .ratio(atMost: Self.growthMax)),
        Figure(name: "up, wire", value: Double(many.up.median { $0.sent }), unit: .bytes),
      ])
  }
}
