import SalvorModel
import SalvorWire

/// A first sync by a file whose connection is cut many times, at random places, and gone on with by the next sync of a new process.
/// The limit: the same file with no cut.
struct SnapshotCut {
  var cuts: Int
  var rows: Int

  private static let bytesMax = 1.1

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = DataSet.records(RecordData(), count: rows)
    let scene = try SnapshotScene(bench, "snapshot-cut", data)
    defer { scene.end() }
    _ = try scene.sync()
    try scene.waitForFiles()
    let proxy = try CuttingProxy(before: scene.pair.url)
    defer { proxy.end() }
    var (whole, cut, attempts) = ([Double](), [Double](), [Int64]())
    for run in 1...bench.options.runs {
      _ = proxy.count()
      _ = try sync(scene, proxy)
      let bytes = proxy.count()
      whole.append(Double(bytes))
      var random = SplitMix(seed: 20, index: run)
      _ = proxy.count(cuts: (0..<cuts).map { _ in Int64(random.below(Int(bytes))) })
      attempts.append(try sync(scene, proxy))
      cut.append(Double(proxy.count()))
      try PlainDatabase.requireEqual(scene.serverPath, scene.clientPath, data.schema)
      bench.say("snapshot-cut: run \(run) of \(bench.options.runs): \(attempts[run - 1]) syncs")
    }
    return WorkloadResult(
      name: "snapshot-cut", title: "\(grouped(rows)) rows, cut \(cuts) times, medians of \(bench.options.runs)",
      figures: [
        Figure(
          name: "bytes to the device", value: cut.median, unit: .bytes, limit: whole.median, limitName: "not cut",
          target: .ratio(atMost: Self.bytesMax), details: [("syncs", .integer(attempts.median))])
      ])
  }

  /// Until one ends well; how many it took.
  private func sync(_ scene: SnapshotScene, _ proxy: CuttingProxy) throws -> Int64 {
    PlainDatabase.remove(scene.clientPath)
    for attempt in 1...Int64(10 * cuts + 10) {
      let client = try ChildProcess(
        role: "client",
        [scene.clientPath, scene.data.schemaName, proxy.url, "recover-unsynced-changes", HealMode.own.rawValue])
      defer { client.end() }
      try client.call("open")
      guard let sync = try? SyncMeasurement(try client.call("sync")) else { continue }
      guard sync.upserts == rows else { throw SalvorError(.failed, "\(sync.upserts) of \(rows) rows arrived.") }
      return attempt
    }
    throw SalvorError(.failed, "No synchronization ended well.")
  }
}
