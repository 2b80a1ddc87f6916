import SQLiteSupport
import SalvorModel
import SalvorWire

/// A device comes to see the rows of one project among many, and then no more: since a membership row comes to the server's
/// tables by another program and goes, or since the device subscribes to the project and takes that back. The limit: a
/// device's first sync with a server that has only so many rows, all of which it may see.
struct ScopeChange {
  enum Way {
    case membership, subscription

    var name: String {
      switch self {
      case .membership: "membership-change"
      case .subscription: "subscription-change"
      }
    }

    fileprivate var schemaName: String {
      switch self {
      case .membership: "record-member"
      case .subscription: "record-chosen"
      }
    }

    /// The membership comes with the rows.
    fileprivate var besides: Int { self == .membership ? 1 : 0 }
  }

  var way: Way
  var rows: Int
  /// Rows of each project.
  var moved: Int

  private static let ratioMax = 3.0

  func run(_ bench: Bench) throws -> WorkloadResult {
    let names = ["many", "few"].map {
      (server: bench.path("\(way.name)-\($0)-server.db"), client: bench.path("\(way.name)-\($0)-client.db"))
    }
    let (many, few) = (names[0], names[1])
    defer { bench.discard(many.server, many.client, few.server, few.client) }
    bench.say("\(way.name): loading \(grouped(rows)) rows of \(grouped(rows / moved)) projects")
    try seed(bench, many.server, rows: rows)
    try seed(bench, few.server, rows: moved)
    if way == .membership {
      let server = try PlainDatabase.openAsServer(few.server)
      try join(server, project: 0)
      server.close()
    }

    let firsts = try (1...bench.options.runs).map { _ in
      PlainDatabase.remove(few.client)
      bench.settle()
      let pair = try Pair(serverPath: few.server, clientPath: few.client, schemaName: way.schemaName)
      defer { pair.end() }
      return try expect(pair.sync(), moved + way.besides)
    }
    let (came, left) = try changes(bench, many.server, many.client)
    return WorkloadResult(
      name: way.name,
      title: "\(grouped(moved)) of \(grouped(rows)) rows, medians of \(bench.options.runs)",
      figures: figures("rows come", came, firsts, target: .ratio(atMost: Self.ratioMax))
        + figures("rows go", left, firsts, target: nil))
  }

  /// In `quantity` stands the project.
  private func seed(_ bench: Bench, _ path: String, rows: Int) throws {
    try PlainDatabase.seed(path, .records(RecordData(), count: rows))
    let connection = try PlainDatabase.open(path)
    try connection.run("UPDATE record SET quantity = rowid % ?1", .integer(Int64(max(1, rows / moved))))
    try connection.checkpoint(.truncate)
    connection.close()
    try bench.adopt(path, way.schemaName)
  }

  private func join(_ server: SQLiteConnection, project: Int) throws {
    try server.run("INSERT INTO member (id, project, person) VALUES ('m', ?1, 'bench')", .integer(Int64(project)))
  }

  /// The device sees the project's rows with its next sync.
  private func show(_ project: Int, _ pair: Pair, _ server: SQLiteConnection) throws {
    switch way {
    case .membership: try join(server, project: project)
    case .subscription: try pair.client.call("subscribe", [("project", .integer(Int64(project)))])
    }
  }

  /// It sees no row any more.
  private func hideAll(_ pair: Pair, _ server: SQLiteConnection) throws {
    switch way {
    case .membership: try server.execute("DELETE FROM member")
    case .subscription: try pair.client.call("unsubscribe")
    }
  }

  private func changes(
    _ bench: Bench, _ serverPath: String, _ clientPath: String
  ) throws -> (came: [SyncMeasurement], left: [SyncMeasurement]) {
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: way.schemaName)
    defer { pair.end() }
    let server = try PlainDatabase.openAsServer(serverPath)
    defer { server.close() }
    try hideAll(pair, server)
    _ = try expect(pair.sync(), 0)
    var came: [SyncMeasurement] = [], left: [SyncMeasurement] = []
    for run in 1...bench.options.runs {
      try show(run % max(1, rows / moved), pair, server)
      bench.settle()
      came.append(try expect(pair.sync(), moved + way.besides))
      try expectRows(moved, in: clientPath)
      try hideAll(pair, server)
      bench.settle()
      left.append(try pair.sync())
      try expectRows(0, in: clientPath)
      bench.say(
        "\(way.name): run \(run) of \(bench.options.runs): \(TableReport.amount(came[run - 1].wall, .seconds)), "
          + TableReport.amount(left[run - 1].wall, .seconds))
    }
    return (came, left)
  }

  private func expect(_ sync: SyncMeasurement, _ upserts: Int) throws -> SyncMeasurement {
    guard sync.upserts == upserts else {
      throw SalvorError(.failed, "\(sync.upserts) rows came down, of \(upserts).")
    }
    return sync
  }

  private func expectRows(_ count: Int, in path: String) throws {
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    let found = try connection.integer("SELECT count(*) FROM record") ?? 0
    guard found == count else { throw SalvorError(.failed, "The device has \(found) rows, of \(count).") }
  }

  private func figures(
    _ name: String, _ syncs: [SyncMeasurement], _ firsts: [SyncMeasurement], target: Figure.Target?
  ) -> [Figure] {
    [
      Figure(
        name: "\(name), wall", value: syncs.median(\.wall), unit: .seconds, limit: firsts.median(\.wall),
        limitName: "first sync of so many rows", target: target, details: syncs.details),
      Figure(
        name: "\(name), CPU of both", value: syncs.median { $0.clientCPU + $0.serverCPU }, unit: .seconds,
        limit: firsts.median { $0.clientCPU + $0.serverCPU }, limitName: "first sync of so many rows"),
      Figure(
        name: "\(name), wire", value: Double(syncs.median { $0.bytes }), unit: .bytes,
        limit: Double(firsts.median { $0.bytes }), limitName: "first sync of so many rows"),
    ]
  }
}
