import SalvorModel
import SalvorWire

/// The server was restored to before the last changes, and the device has changes that it did not synchronize: in place,
/// and with a new database. The time is that of the whole sync with the recovery in it. The limit: a first sync of the
/// same database.
struct ServerRestored {
  var rows: Int
  var lost: Int
  var unsynced: Int

  private static let wallRatioMax = 0.05
  private static let wireRatioMax = 0.01
  private static let recreateRatioMax = 1.2

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let scene = try RecoveryScene(bench, name: "server-restored", rows: rows)
    defer { scene.end() }
    let first = try scene.firstSyncs(runs)
    try scene.work(lost: lost, unsynced: unsynced)
    let inPlace = try (1...runs).map { try scene.restored($0, strategy: "recover-unsynced-changes") }
    // What the device wrote itself of what is lost goes up again.
    let sent = unsynced + lost / 2
    guard inPlace.allSatisfy({ $0.uploaded == sent && $0.recovery?["lost"]?.integer == Int64(lost) }) else {
      throw SalvorError(.failed, "Not every unsynced change was kept, or not every lost row was named.")
    }
    let recreated = try (1...runs).map { try scene.restored($0, strategy: "recreate") }
    return WorkloadResult(
      name: "server-restored-1m",
      title: "\(grouped(lost)) of \(grouped(rows)) rows lost, \(unsynced) unsynced changes, medians of \(runs)",
      figures: [
        wall("in place", inPlace, first, "first sync", atMost: Self.wallRatioMax),
        wire("in place", inPlace, first, atMost: Self.wireRatioMax), cpu("in place", inPlace, first, "first sync"),
        wall("recreate", recreated, first, "first sync", atMost: Self.recreateRatioMax),
        wire("recreate", recreated, first), cpu("recreate", recreated, first, "first sync"),
      ])
  }
}

/// The server was restored, and a device that has had many downloads recreates its database: the history that it keeps must not
/// make that slower. The limit: a first sync of the same database.
struct LongHistory {
  var rows: Int
  var downloads: Int

  private static let ratioMax = 1.2

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let scene = try RecoveryScene(bench, name: "long-history", rows: rows)
    defer { scene.end() }
    let first = try scene.firstSyncs(runs)
    try scene.live(downloads: downloads, changes: 20)
    try scene.work(lost: 20, unsynced: 20)
    let figures = try ["copy-and-resubscribe", "recreate"].flatMap { strategy in
      let syncs = try (1...runs).map { try scene.restored($0, strategy: strategy) }
      return [
        wall(strategy, syncs, first, "first sync", atMost: Self.ratioMax), cpu(strategy, syncs, first, "first sync"),
      ]
    }
    return WorkloadResult(
      name: "long-history",
      title: "\(grouped(rows)) rows recreated after \(grouped(downloads)) downloads, medians of \(runs)",
      figures: figures)
  }
}

/// The device was away for longer than the server keeps tombstones: digests of key ranges are compared. The limit: a
/// first sync of the same database.
struct HistoryTrimmed {
  var rows: Int
  /// Of the rows that differ.
  var share: Double

  private static let wireRatioMax = 0.15

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let scene = try RecoveryScene(bench, name: "history-trimmed", rows: rows)
    defer { scene.end() }
    let first = try scene.firstSyncs(runs)
    let differing = try scene.age(share: share)
    try scene.keep()
    let syncs = try (1...runs).map { try scene.trimmed($0) }
    return WorkloadResult(
      name: "history-trimmed-1m",
      title: "\(grouped(differing)) of \(grouped(rows)) rows differ, medians of \(runs)",
      figures: [
        wire("compared", syncs, first, atMost: Self.wireRatioMax), wall("compared", syncs, first, "first sync"),
        cpu("compared", syncs, first, "first sync"),
      ])
  }
}

/// Many unsynced changes go through a recovery and are uploaded. The limit: they are uploaded, and nothing else happens.
struct UnsyncedKept {
  var changes: Int
  var rows: Int
  var lost: Int

  private static let ratioMax = 2.0

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let scene = try RecoveryScene(bench, name: "recover-10k", rows: rows)
    defer { scene.end() }
    _ = try scene.firstSyncs(1)
    try scene.work(lost: lost, unsynced: changes)
    var recovered: [SyncMeasurement] = []
    var uploads: [SyncMeasurement] = []
    for run in 1...runs {
      uploads.append(try scene.undisturbed(run))
      recovered.append(try scene.restored(run, strategy: "recover-unsynced-changes"))
    }
    guard recovered.allSatisfy({ $0.uploaded == changes + lost / 2 && $0.refused == 0 }),
      uploads.allSatisfy({ $0.uploaded == changes && $0.refused == 0 })
    else {
      throw SalvorError(.failed, "Not every unsynced change was uploaded.")
    }
    return WorkloadResult(
      name: "recover-10k",
      title: "\(grouped(changes)) unsynced changes in \(grouped(rows)) rows, \(grouped(lost)) lost, medians of \(runs)",
      figures: [
        wall("recovered and uploaded", recovered, uploads, "upload", atMost: Self.ratioMax),
        cpu("recovered and uploaded", recovered, uploads, "upload"),
      ])
  }
}

func wall(
  _ what: String, _ syncs: [SyncMeasurement], _ limit: [SyncMeasurement], _ limitName: String, atMost: Double? = nil
) -> Figure {
  Figure(
    name: "\(what), wall", value: syncs.median(\.wall), unit: .seconds, limit: limit.median(\.wall),
    limitName: limitName, target: atMost.map { .ratio(atMost: $0) }, details: syncs.details)
}

func wire(
  _ what: String, _ syncs: [SyncMeasurement], _ limit: [SyncMeasurement], _ limitName: String = "first sync",
  atMost: Double? = nil
) -> Figure {
  Figure(
    name: "\(what), wire", value: Double(syncs.median { $0.bytes }), unit: .bytes,
    limit: Double(limit.median { $0.bytes }), limitName: limitName, target: atMost.map { .ratio(atMost: $0) },
    details: [("roundTrips", .integer(syncs.median(\.roundTrips)))])
}

/// CPU of both sides: what is left of a ratio where other programs take the machine.
func cpu(
  _ what: String, _ syncs: [SyncMeasurement], _ limit: [SyncMeasurement], _ limitName: String
) -> Figure {
  Figure(
    name: "\(what), CPU of both", value: syncs.median { $0.clientCPU + $0.serverCPU }, unit: .seconds,
    limit: limit.median { $0.clientCPU + $0.serverCPU }, limitName: limitName,
    details: [
      ("clientCPU", .real(syncs.median(\.clientCPU))), ("serverCPU", .real(syncs.median(\.serverCPU))),
      ("clientPeak", .integer(syncs.map(\.clientPeak).max() ?? 0)),
      ("serverPeak", .integer(syncs.map(\.serverPeak).max() ?? 0)),
    ])
}
