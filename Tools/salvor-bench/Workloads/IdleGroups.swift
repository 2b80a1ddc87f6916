import SalvorModel
import SalvorWire

/// A sync with nothing to do where each of many tables is a group of its own. The limit: the same with a tenth of them.
struct IdleGroups {
  static let few = 10
  static let many = 100

  private static let ratioMax = 1.5
  private static let rounds = 20
  private static let syncsEachRound = 10

  /// So many tables, each in a group of its own.
  static func schema(_ count: Int) -> Schema {
    let numbers = 1...count
    return Schema(
      groups: numbers.map { Schema.Group(name: "group_\($0)") },
      tables: numbers.map {
        Table(
          "record_\($0)", group: "group_\($0)", primaryKey: ["id"],
          columns: [Column("id", .text), Column("name", .text), Column("quantity", .integer)])
      })
  }

  private final class Place {
    let pair: Pair
    let first: SyncMeasurement
    private let paths: (server: String, client: String)
    private(set) var walls: [Double] = []
    private(set) var clientCPU = 0.0
    private(set) var serverCPU = 0.0

    init(_ bench: Bench, groups: Int) throws {
      paths = (bench.path("groups-\(groups)-server.db"), bench.path("groups-\(groups)-client.db"))
      let name = "groups-\(groups)"
      try bench.adopt(paths.server, name)
      let server = try PlainDatabase.openAsServer(paths.server)
      for number in 1...groups {
        try server.execute("INSERT INTO record_\(number) VALUES ('a', 'one', 1), ('b', 'two', 2)")
      }
      server.close()
      pair = try Pair(serverPath: paths.server, clientPath: paths.client, schemaName: name)
      first = try pair.sync()
      guard first.upserts == 2 * groups else { throw SalvorError(.failed, "\(first.upserts) rows arrived.") }
      _ = try pair.client.call("idle", [("count", .integer(20))])
    }

    func round() throws {
      let before = (try cpu(pair.client), try cpu(pair.server))
      let answer = try pair.client.call("idle", [("count", .integer(Int64(IdleGroups.syncsEachRound)))])
      walls += try answer.array("syncs").map { value in
        guard case .real(let seconds) = value else { throw SalvorError(.malformed, "A time is no number.") }
        return seconds
      }
      clientCPU += try cpu(pair.client) - before.0
      serverCPU += try cpu(pair.server) - before.1
    }

    private func cpu(_ process: ChildProcess) throws -> Double { try process.call("usage").real("cpu") }

    func end(_ bench: Bench) {
      pair.end()
      bench.discard(paths.server, paths.client)
    }
  }

  func run(_ bench: Bench) throws -> WorkloadResult {
    let few = try Place(bench, groups: Self.few)
    defer { few.end(bench) }
    let many = try Place(bench, groups: Self.many)
    defer { many.end(bench) }
    bench.settle()
    let rounds = Self.rounds * bench.options.runs
    for round in 0..<rounds { for place in round % 2 == 0 ? [few, many] : [many, few] { try place.round() } }
    let name = "\(Self.few) in \(Self.few)"
    let bytes = (few: try few.pair.sync(), many: try many.pair.sync())
    return WorkloadResult(
      name: "idle-groups", title: "\(Self.many) tables in \(Self.many) groups, p50 of \(many.walls.count)",
      figures: [
        Figure(
          name: "wall", value: many.walls.median, unit: .seconds, limit: few.walls.median, limitName: name,
          target: .ratio(atMost: Self.ratioMax)),
        Figure(name: "client CPU", value: many.clientCPU, unit: .seconds, limit: few.clientCPU, limitName: name),
        Figure(name: "server CPU", value: many.serverCPU, unit: .seconds, limit: few.serverCPU, limitName: name),
        Figure(
          name: "wire, both directions", value: Double(bytes.many.bytes), unit: .bytes,
          limit: Double(bytes.few.bytes), limitName: name),
        Figure(
          name: "first sync", value: many.first.wall, unit: .seconds, limit: few.first.wall, limitName: name),
      ])
  }
}
