import Foundation
import SQLiteSupport
import SalvorWire

/// Kills at random moments, seeded, and the search for what was lost.
struct CrashRun {
  struct Figures {
    var kills = 0
    var serverKills = 0
    /// Of what serves the database, where that is a process of its own.
    var databaseKills = 0
    /// The process had ended before it was killed.
    var missed = 0
    var restores = 0
    /// Synchronizations with what was lost while a device gave nothing back, and is offered now.
    var lateOfferings = 0
    var recoveries: Int64 = 0
    var decisions = 0
    /// Devices that began anew, and files that were taken over in synchronizations that were not killed.
    var renewals = 0
    var checks = 0
  }

  private let place: Place
  private var random: SplitMix
  private var ledger = Ledger()
  private(set) var figures = Figures()
  private var lost: [String] = []
  /// Kills between two checks of everything.
  private static let killsPerCheck = 20

  init(_ place: Place, seed: UInt64) {
    self.place = place
    random = SplitMix(state: seed)
  }

  mutating func run(_ kills: Int, progress: (String) -> Void) throws -> JSONValue {
    try place.startServers()
    for device in place.strategies.indices { _ = try place.settle(device) }
    try place.server.fill(Place.rowsAtFirst)
    var usual = try measure()
    try place.backup()
    // Killed before they did anything, and killed in the middle: what ends by itself does not count.
    while count < kills, lost.isEmpty {
      let missed = figures.missed
      try strike(usual)
      // Moments follow how fast this machine is now.
      usual *= figures.missed > missed ? 0.85 : 1.1
      if count % Self.killsPerCheck == 0 || count == kills { try check() }
      progress("\(count) of \(kills) kills, \(figures.restores) restores, \(lost.count) lost")
    }
    if lost.isEmpty { try check() }
    try place.stopServers()
    return report
  }

  private var count: Int { figures.kills + figures.serverKills + figures.databaseKills }
  var hasLost: Bool { !lost.isEmpty }

  /// How long a sync takes here, in seconds.
  private mutating func measure() throws -> Double {
    var longest = 0.0
    for device in place.strategies.indices {
      try ledger.write(device, on: place.database(device), &random)
      let begun = Date()
      _ = try place.start(device, "sync", "--quiet").wait()
      longest = max(longest, Date().timeIntervalSince(begun))
    }
    return longest
  }

  private mutating func strike(_ usual: Double) throws {
    let device = Int.random(in: place.strategies.indices, using: &random)
    if place.takesSnapshots, Int.random(in: 0..<3, using: &random) > 0, try place.renew(device) {
      figures.renewals += 1
      // What the device had is on the server alone now: it goes back no further.
      try place.beginBackupsAnew()
    }
    try ledger.write(device, on: place.database(device), &random)
    let dice = Int.random(in: 0..<12, using: &random)
    if dice == 0 { try place.backup() }
    if dice >= 9, let backup = place.backups.suffix(3).randomElement(using: &random) {
      try place.restore(backup, stops: Bool.random(using: &random))
      figures.restores += 1
    }
    if place.heals { try turn(device) }
    let child = try place.start(device, "sync", "--quiet")
    let moment = Double.random(in: 0..<usual * 1.2, using: &random)
    let target = Int.random(in: 0..<5, using: &random)
    if child.hasEnded(within: moment) {
      figures.missed += 1
      return
    }
    if target == 1, try place.server.kill(&random) {
      figures.databaseKills += 1
      _ = try child.wait()
      return
    }
    guard target == 0 else {
      if child.kill() { figures.kills += 1 } else { figures.missed += 1 }
      return
    }
    let killed = place.killServer(&random)
    figures.serverKills += 1
    _ = try child.wait()
    try place.startServer(killed)
  }

  /// Some devices give nothing back for a while. One that has losses in its archive then is set to again, and offers them with the
  /// synchronization that is about to be killed.
  private mutating func turn(_ device: Int) throws {
    guard place.silent.contains(device) else {
      return place.setSilent(device, Int.random(in: 0..<4, using: &random) == 0)
    }
    let withheld =
      try SQLiteConnection(place.database(device), busyTimeoutMilliseconds: 60_000).integer(
        "SELECT count(*) FROM salvor_archive WHERE own IS NOT NULL") ?? 0
    guard withheld > 0 || Int.random(in: 0..<6, using: &random) == 0 else { return }
    place.setSilent(device, false)
    if withheld > 0 { figures.lateOfferings += 1 }
  }

  /// All devices sync until nothing is left to do; then every change that was ever made is looked for.
  private mutating func check() throws {
    for device in place.strategies.indices { place.setSilent(device, false) }
    for _ in 0..<2 {
      for device in place.strategies.indices { figures.decisions += try place.settle(device) }
    }
    lost = try ledger.lost(place) + Ledger.differences(place)
    figures.recoveries = try place.strategies.indices.reduce(0) { sum, device in
      try sum + (SQLiteConnection(place.database(device)).integer("SELECT count(*) FROM salvor_recovery") ?? 0)
    }
    figures.checks += 1
  }

  var report: JSONValue {
    [
      "tried": [
        "kills": .integer(Int64(figures.kills)), "serverKills": .integer(Int64(figures.serverKills)),
        "databaseKills": .integer(Int64(figures.databaseKills)),
        "missed": .integer(Int64(figures.missed)), "restores": .integer(Int64(figures.restores)),
        "lateOfferings": .integer(Int64(figures.lateOfferings)),
        "recoveries": .integer(figures.recoveries), "decisions": .integer(Int64(figures.decisions)),
        "renewals": .integer(Int64(figures.renewals)), "snapshots": .integer(place.snapshots),
        "changes": .integer(Int64(ledger.changes)), "checks": .integer(Int64(figures.checks)),
      ],
      "lost": .integer(Int64(lost.count)), "what": .array(lost.prefix(20).map(JSONValue.string)),
    ]
  }
}

/// A seeded generator (SplitMix64).
struct SplitMix: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
