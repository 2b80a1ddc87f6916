import SalvorModel
import SalvorWire

/// A restored server gets back what this device had synchronized since, beside changes that it had not. The limit: a first sync of
/// the same database.
struct Healed {
  var rows: Int
  var lost: Int
  var unsynced: Int

  private static let wallRatioMax = 0.4

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let scene = try RecoveryScene(bench, name: "heal-1k", rows: rows)
    defer { scene.end() }
    let first = try scene.firstSyncs(runs)
    try scene.work(own: lost, unsynced: unsynced)
    var healed: [SyncMeasurement] = []
    var undisturbed: [SyncMeasurement] = []
    for run in 1...runs {
      undisturbed.append(try scene.undisturbed(run))
      healed.append(try scene.restored(run, strategy: "recover-unsynced-changes"))
    }
    guard healed.allSatisfy({ $0.uploaded == unsynced + lost && $0.refused == 0 }) else {
      throw SalvorError(.failed, "Not everything that was lost came back.")
    }
    return WorkloadResult(
      name: "heal-1k",
      title:
        "\(grouped(lost)) lost changes of \(grouped(rows)) rows come back, \(grouped(unsynced)) unsynced, medians of \(runs)",
      figures: [
        wall("healed", healed, first, "first sync", atMost: Self.wallRatioMax), wire("healed", healed, first),
        cpu("healed", healed, first, "first sync"),
        wall("the unsynced ones alone, without a restore", undisturbed, first, "first sync"),
        cpu("the unsynced ones alone, without a restore", undisturbed, first, "first sync"),
      ])
  }
}

/// The same in a larger database. The limit: the smaller one.
struct HealedInMore {
  var rows: Int
  var fewRows: Int
  var lost: Int
  var unsynced: Int

  private static let wallRatioMax = 1.5
  private static let wireRatioMax = 1.05

  func run(_ bench: Bench) throws -> WorkloadResult {
    let few = try healed(bench, rows: fewRows)
    let many = try healed(bench, rows: rows)
    return WorkloadResult(
      name: "heal-1m",
      title:
        "\(grouped(lost)) lost changes of \(grouped(rows)) rows come back, \(grouped(unsynced)) unsynced, medians of \(bench.options.runs)",
      figures: [
        wall("healed", many, few, "of \(grouped(fewRows))", atMost: Self.wallRatioMax),
        wire("healed", many, few, "of \(grouped(fewRows))", atMost: Self.wireRatioMax),
        cpu("healed", many, few, "of \(grouped(fewRows))"),
      ])
  }

  private func healed(_ bench: Bench, rows: Int) throws -> [SyncMeasurement] {
    let scene = try RecoveryScene(bench, name: "heal-1m", rows: rows)
    defer { scene.end() }
    _ = try scene.firstSyncs(1)
    try scene.work(own: lost, unsynced: unsynced)
    return try (1...bench.options.runs).map { try scene.restored($0, strategy: "recover-unsynced-changes") }
  }
}

/// A restored server gets many rows back. The limit: the same rows are uploaded as ordinary changes.
struct HealedMany {
  var rows: Int
  var lost: Int

  private static let serverRatioMax = 1.3
  private static let memoryMax = 16e6

  func run(_ bench: Bench) throws -> WorkloadResult {
    let runs = bench.options.runs
    let scene = try RecoveryScene(bench, name: "heal-100k", rows: rows)
    defer { scene.end() }
    _ = try scene.firstSyncs(1)
    try scene.work(own: lost, unsynced: 0)
    var healed: [SyncMeasurement] = []
    var uploads: [SyncMeasurement] = []
    var silent: [SyncMeasurement] = []
    for run in 1...runs {
      uploads.append(try scene.uploaded(run, own: lost))
      silent.append(try scene.restoredWithoutOffers())
      healed.append(try scene.restored(run, strategy: "recover-unsynced-changes"))
    }
    guard (healed + uploads).allSatisfy({ $0.uploaded == lost && $0.refused == 0 }) else {
      throw SalvorError(.failed, "Not everything that was lost came back.")
    }
    let finding = silent.median(\.serverCPU)
    func memory(_ side: String, _ peak: (SyncMeasurement) -> Int64) -> Figure {
      let without = (uploads + silent).map(peak).max() ?? 0
      return Figure(
        name: "\(side) memory beyond the same without healing", value: Double((healed.map(peak).max() ?? 0) - without),
        unit: .bytes, target: .value(atMost: Self.memoryMax), details: [("without", .integer(without))])
    }
    return WorkloadResult(
      name: "heal-100k", title: "\(grouped(lost)) lost rows of \(grouped(rows)) come back, medians of \(runs)",
      figures: [
        Figure(
          name: "offered and settled, CPU of the server", value: healed.median(\.serverCPU) - finding, unit: .seconds,
          limit: uploads.median(\.serverCPU), limitName: "upload", target: .ratio(atMost: Self.serverRatioMax),
          details: healed.details),
        Figure(
          name: "what is lost is found, CPU of the server", value: finding, unit: .seconds,
          limit: uploads.median(\.serverCPU), limitName: "upload"),
        wall("found, offered and settled", healed, uploads, "upload"),
        cpu("found, offered and settled", healed, uploads, "upload"),
        memory("device", \.clientPeak), memory("server", \.serverPeak),
      ])
  }
}
