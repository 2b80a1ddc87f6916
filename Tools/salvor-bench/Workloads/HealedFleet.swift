import SalvorModel
import SalvorWire

/// Many devices hold the rows that a restored server lost, and each of them offers all of them. The limit: a sync with as many ordinary
/// changes that are there already.
struct HealedFleet {
  var devices: Int
  var rows: Int
  var lost: Int

  private static let serverRatioMax = 1.5

  func run(_ bench: Bench) throws -> WorkloadResult {
    let scene = try Scene(bench, devices: devices, rows: rows, lost: lost)
    defer { scene.end() }
    try scene.work()
    let limit = try scene.changesThatAreThere(max(2, min(devices - 1, 3 * bench.options.runs)))
    let (first, others) = try scene.offers()
    guard first.uploaded >= lost, others.allSatisfy({ $0.uploaded == lost && $0.refused == 0 }) else {
      throw SalvorError(
        .failed, "Not every device offered what was lost: \(first.uploaded), then \(others.map(\.uploaded)) of \(lost)."
      )
    }
    return WorkloadResult(
      name: "heal-fleet",
      title:
        "\(grouped(devices)) devices offer the same \(grouped(lost)) lost rows of \(grouped(rows)), medians of all but the first",
      figures: [
        Figure(
          name: "a further device's offers, CPU of the server", value: others.median(\.serverCPU), unit: .seconds,
          limit: limit.median(\.serverCPU), limitName: "changes that are there already",
          target: .ratio(atMost: Self.serverRatioMax), details: others.details),
        Figure(
          name: "a further device's offers, wall", value: others.median(\.wall), unit: .seconds,
          limit: limit.median(\.wall), limitName: "changes that are there already"),
        Figure(
          name: "the first device's offers, CPU of the server", value: first.serverCPU, unit: .seconds,
          limit: limit.median(\.serverCPU), limitName: "changes that are there already"),
      ])
  }

  /// A server and its devices, each a database of its own.
  private final class Scene {
    private let bench: Bench
    private let data = RecordData()
    private let places: [Int]
    private let rows: Int
    private let serverPath: String
    private let night: String
    private let clients: [String]

    init(_ bench: Bench, devices: Int, rows: Int, lost: Int) throws {
      self.bench = bench
      self.rows = rows
      places = RecordData.spread(lost, of: rows)
      serverPath = bench.path("heal-fleet-server.db")
      night = bench.path("heal-fleet-night.db")
      clients = (0..<devices).map { bench.path("heal-fleet-\($0).db") }
      bench.say("heal-fleet: loading \(grouped(rows)) rows into a server's database")
      try PlainDatabase.seed(serverPath, .records(data, count: rows))
      try bench.adopt(serverPath, "record")
    }

    func end() {
      bench.discard(serverPath, night)
      for path in clients { bench.discard(path) }
    }

    /// Every device has everything; then one changes what is going to be lost, and all have it.
    func work() throws {
      for path in clients { _ = try synchronized(path) }
      try PlainDatabase.copy(serverPath, to: night)
      try change(clients[0], quantity: 2000)
      for path in clients { _ = try synchronized(path) }
      bench.say("heal-fleet: \(grouped(clients.count)) devices have what is going to be lost")
    }

    /// Devices that write what another one has written before.
    func changesThatAreThere(_ count: Int) throws -> [SyncMeasurement] {
      let server = bench.path("heal-fleet-aside.db")
      try PlainDatabase.copyFamily(serverPath, to: server)
      defer { bench.discard(server) }
      var found: [SyncMeasurement] = []
      for (place, path) in clients.prefix(count + 1).enumerated() {
        let copy = bench.path("heal-fleet-aside-client.db")
        PlainDatabase.remove(copy)
        try PlainDatabase.copyFamily(path, to: copy)
        defer { bench.discard(copy) }
        try change(copy, quantity: 3000)
        bench.settle()
        let sync = try synchronized(copy, server: server)
        guard sync.uploaded == places.count else {
          throw SalvorError(.failed, "\(sync.uploaded) of \(places.count) changes went up.")
        }
        if place > 0 { found.append(sync) }
      }
      return found
    }

    func offers() throws -> (first: SyncMeasurement, others: [SyncMeasurement]) {
      try PlainDatabase.putBack(night, to: serverPath)
      let first = try synchronized(clients[0])
      let others = try clients.dropFirst().map { try synchronized($0) }
      bench.say("heal-fleet: \(grouped(clients.count)) devices have offered what was lost")
      try PlainDatabase.requireEqual(serverPath, clients[clients.count - 1], RecordData.schema)
      return (first, others)
    }

    private func synchronized(_ path: String, server: String? = nil) throws -> SyncMeasurement {
      let pair = try Pair(serverPath: server ?? serverPath, clientPath: path, schemaName: "record", heal: .all)
      defer { pair.end() }
      return try pair.sync()
    }

    private func change(_ path: String, quantity: Int64) throws {
      let connection = try PlainDatabase.open(path)
      defer { connection.close() }
      try PlainDatabase.updateQuantities(connection, data, places: places, quantity: quantity)
    }
  }
}
