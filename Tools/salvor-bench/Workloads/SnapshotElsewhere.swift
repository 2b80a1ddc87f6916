import SalvorModel
import SalvorWire

/// First syncs by a file that nginx gives from the server's own folder: the server answers begins alone. The limit: the server's
/// share of a first sync by rows.
struct SnapshotElsewhere {
  var rows: Int
  /// Their processor time is added up: one costs too little to be seen.
  var devices: Int

  private static let serverMax = 0.001

  func run(_ bench: Bench) throws -> WorkloadResult {
    guard let program = NginxProcess.program else {
      throw SalvorError(.failed, "nginx is not installed: Tools/setup --tests installs it.")
    }
    let data = DataSet.records(RecordData(), count: rows)
    let name = "snapshot-nginx"
    let nginx = try NginxProcess(
      program, serving: bench.path("\(name)-server.db-snapshots"), coding: snapshotCompression.token,
      directory: bench.path("nginx"))
    defer { nginx.end() }
    let scene = try SnapshotScene(bench, name, data, url: nginx.url)
    defer { scene.end() }
    let byRows = try scene.sync(by: .rows)
    _ = try scene.sync()
    try scene.waitForFiles()
    _ = try scene.sync()
    var syncs: [SyncMeasurement] = []
    for _ in 1...devices { syncs.append(try scene.sync()) }
    try PlainDatabase.requireEqual(scene.serverPath, scene.clientPath, data.schema)
    let each = syncs.map(\.serverCPU).reduce(0, +) / Double(devices)
    return WorkloadResult(
      name: name, title: "\(grouped(rows)) rows, \(devices) devices one after the other, the files from nginx",
      figures: [
        Figure(
          name: "server CPU for each", value: each, unit: .seconds, limit: byRows.serverCPU, limitName: "by rows",
          target: .ratio(atMost: Self.serverMax), details: syncs.details),
        Figure(
          name: "wall", value: syncs.median(\.wall), unit: .seconds, limit: byRows.wall, limitName: "by rows"),
      ])
  }
}
