import Dispatch
import SalvorModel
import SalvorWire

#if canImport(Glibc)
  @preconcurrency import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Many devices without rows take the same file at once. The limit: as many times what one takes alone, spread over the
/// processors.
struct SnapshotFleet {
  var devices: Int
  var rows: Int

  private static let memoryMax = 32e6

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = DataSet.records(RecordData(), count: rows)
    let scene = try SnapshotScene(bench, "snapshot-fleet", data)
    defer { scene.end() }
    _ = try scene.sync()
    try scene.waitForFiles()
    try scene.restart()
    let one = try (1...max(3, bench.options.runs)).map { _ in try scene.sync() }
    let paths = (1...devices).map { bench.path("snapshot-fleet-\($0).db") }
    defer { for path in paths { bench.discard(path) } }
    bench.say("snapshot-fleet: one takes \(TableReport.amount(one.median(\.wall), .seconds)); opening \(devices)")
    let clients = try paths.map { path in
      let client = try ChildProcess(
        role: "client", [path, data.schemaName, scene.pair.url, "recover-unsynced-changes", HealMode.own.rawValue])
      try client.call("open")
      return client
    }
    defer { for client in clients { client.end() } }
    bench.settle()
    let before = try scene.pair.server.call("usage")
    let wall = try together(clients)
    let after = try scene.pair.server.call("usage")
    for path in [paths[0], paths[devices - 1]] {
      try PlainDatabase.requireEqual(scene.serverPath, path, data.schema)
    }
    let cores = Double(sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    return WorkloadResult(
      name: "snapshot-fleet", title: "\(devices) devices at once, \(grouped(rows)) rows each",
      figures: [
        Figure(
          name: "wall", value: wall, unit: .seconds, limit: one.median(\.wall) * Double(devices) / cores,
          limitName: "\(devices) times one / processors", target: .ratio(atMost: 1),
          details: [("one", .real(one.median(\.wall)))]),
        Figure(
          name: "server CPU for each", value: (try after.real("cpu") - before.real("cpu")) / Double(devices),
          unit: .seconds, limit: one.median(\.serverCPU), limitName: "for one alone"),
        Figure(
          name: "server memory beyond one's", value: Double(try after.integer("peak") - before.integer("peak")),
          unit: .bytes, target: .value(atMost: Self.memoryMax)),
      ])
  }

  /// Each device on a thread of its own; how long until the last has its rows.
  private func together(_ clients: [ChildProcess]) throws -> Double {
    let failure = Mutex<(any Error)?>(nil)
    let group = DispatchGroup()
    let start = Measure.wall()
    for client in clients {
      let device = Device(client)
      DispatchQueue(label: "salvor-bench.device").async(group: group) { [rows] in
        do {
          let sync = try SyncMeasurement(try device.process.call("sync"))
          guard sync.upserts == rows else { throw SalvorError(.failed, "\(sync.upserts) of \(rows) rows arrived.") }
        } catch {
          failure.withLock { $0 = error }
        }
      }
    }
    group.wait()
    let wall = Measure.wall() - start
    if let failure = failure.withLock({ $0 }) { throw failure }
    return wall
  }

  /// One thread talks to it.
  private final class Device: @unchecked Sendable {
    let process: ChildProcess
    init(_ process: ChildProcess) { self.process = process }
  }
}
