import SQLiteSupport
import SalvorModel
import SalvorWire

/// A server and a device whose histories are about to part. Each measurement begins with the same files.
final class RecoveryScene {
  let name: String
  let rows: Int
  let serverPath: String
  let clientPath: String
  private let bench: Bench
  private let data = RecordData()
  /// The server's database of the night before.
  private let night: String
  /// The device of that time.
  private let nightClient: String
  /// Both sides as they are at the moment of the restore.
  private let evening: (server: String, client: String)

  init(_ bench: Bench, name: String, rows: Int) throws {
    self.bench = bench
    self.name = name
    self.rows = rows
    serverPath = bench.path("\(name)-server.db")
    clientPath = bench.path("\(name)-client.db")
    night = bench.path("\(name)-night.db")
    nightClient = bench.path("\(name)-night-client.db")
    evening = (bench.path("\(name)-evening-server.db"), bench.path("\(name)-evening-client.db"))
    bench.say("\(name): loading \(grouped(rows)) rows into a server's database")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    try bench.adopt(serverPath, "record")
  }

  func end() { bench.discard(serverPath, clientPath, night, nightClient, evening.server, evening.client) }

  // MARK: Before it

  /// First syncs of this database; the device of the last of them stays.
  func firstSyncs(_ count: Int) throws -> [SyncMeasurement] {
    try (1...count).map { run in
      PlainDatabase.remove(clientPath)
      bench.settle()
      let sync = try withPair { try $0.sync() }
      guard sync.upserts == rows else { throw SalvorError(.failed, "\(sync.upserts) of \(rows) rows arrived.") }
      bench.say("\(name): first sync, run \(run) of \(count): \(TableReport.amount(sync.wall, .seconds))")
      return sync
    }
  }

  /// Someone makes a backup of the server; then so many rows change, half of them on this device and half elsewhere, and
  /// are synchronized; then the device makes changes that it does not synchronize, in other rows.
  func work(lost: Int, unsynced: Int) throws {
    // A server that has seen an upload of this device, so that the sequence check finds the restore.
    try change(clientPath, places: [0], quantity: 1500)
    _ = try withPair { try $0.sync() }
    try PlainDatabase.copy(serverPath, to: night)
    let places = RecordData.spread(lost, of: rows)
    try change(clientPath, places: Array(places.prefix(lost / 2)), quantity: 2000)
    try change(serverPath, places: Array(places.dropFirst(lost / 2)), quantity: 2001)
    let sync = try withPair { try $0.sync() }
    guard sync.uploaded == lost / 2, sync.upserts == lost - lost / 2 else {
      throw SalvorError(.failed, "\(sync.uploaded) changes went up and \(sync.upserts) came down, of \(lost).")
    }
    let isLost = Set(places)
    let others = RecordData.spread(2 * unsynced, of: rows).filter { !isLost.contains($0) }.prefix(unsynced)
    try change(clientPath, places: Array(others), quantity: 3000)
    try keep()
  }

  /// Someone makes a backup of the server; then so many rows change on this device and are synchronized; then so many others
  /// that are not.
  func work(own: Int, unsynced: Int) throws {
    try change(clientPath, places: [0], quantity: 1500)
    _ = try withPair { try $0.sync() }
    try PlainDatabase.copy(serverPath, to: night)
    try PlainDatabase.copyFamily(clientPath, to: nightClient)
    let places = RecordData.spread(own + unsynced, of: rows)
    try change(clientPath, places: Array(places.prefix(own)), quantity: 2000)
    let sync = try withPair { try $0.sync() }
    guard sync.uploaded == own else { throw SalvorError(.failed, "\(sync.uploaded) of \(own) changes went up.") }
    try change(clientPath, places: Array(places.dropFirst(own)), quantity: 3000)
    try keep()
  }

  /// The device of the night makes the same changes, and the server of the night gets them for the first time.
  func uploaded(_ run: Int, own: Int) throws -> SyncMeasurement {
    try PlainDatabase.putBack(night, to: serverPath)
    try PlainDatabase.copyFamily(nightClient, to: clientPath)
    try change(clientPath, places: Array(RecordData.spread(own, of: rows)), quantity: 2000)
    bench.settle()
    let sync = try withPair { try $0.sync() }
    bench.say("\(name): uploaded, run \(run): \(TableReport.amount(sync.wall, .seconds))")
    return sync
  }

  /// So many times another program changes rows on the server, and the device gets them.
  func live(downloads: Int, changes: Int) throws {
    bench.say("\(name): \(grouped(downloads)) downloads")
    let server = try PlainDatabase.open(serverPath)
    defer { server.close() }
    try withPair { pair in
      for download in 0..<downloads {
        let places = RecordData.spread(changes, of: rows).map { ($0 + download * 13) % rows }
        try PlainDatabase.updateQuantities(server, data, places: places, quantity: Int64(5000 + download))
        let sync = try pair.sync()
        guard sync.upserts == changes else {
          throw SalvorError(.failed, "\(sync.upserts) rows came down, of \(changes).")
        }
      }
    }
  }

  /// Other programs change and delete rows on the server, and then no tombstone of that is left.
  ///
  /// - Returns: how many rows differ.
  func age(share: Double) throws -> Int {
    let places = RecordData.spread(Int(Double(rows) * share), of: rows)
    let server = try ChildProcess(role: "server", [serverPath, "record"])
    _ = try server.answer(to: "start")
    defer { server.end() }
    let deleted = places.count / 10
    try delete(serverPath, places: Array(places.prefix(deleted)))
    try change(serverPath, places: Array(places.dropFirst(deleted)), quantity: 4000)
    try server.call("sweep")
    try server.call("trim")
    return places.count
  }

  /// Both sides are kept as they are now, for `restored` and `undisturbed`.
  func keep() throws {
    try PlainDatabase.copyFamily(serverPath, to: evening.server)
    try PlainDatabase.copyFamily(clientPath, to: evening.client)
  }

  private func change(_ path: String, places: [Int], quantity: Int64) throws {
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    try PlainDatabase.updateQuantities(connection, data, places: places, quantity: quantity)
  }

  private func delete(_ path: String, places: [Int]) throws {
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    var keys = RowArena(columnCount: 1)
    for place in places { keys.append(data.key(place)) }
    let statement = try connection.prepare("DELETE FROM record WHERE id = ?1")
    try connection.transaction { try keys.run(statement) }
  }

  private func withPair<Result>(
    strategy: String = "recover-unsynced-changes", heal: HealMode = .own, _ body: (Pair) throws -> Result
  ) throws -> Result {
    let pair = try Pair(
      serverPath: serverPath, clientPath: clientPath, schemaName: "record", strategy: strategy, heal: heal)
    defer { pair.end() }
    return try body(pair)
  }

  // MARK: After it

  /// The server's database is that of the night, and the device synchronizes.
  func restored(_ run: Int, strategy: String) throws -> SyncMeasurement {
    try begin()
    try PlainDatabase.putBack(night, to: serverPath)
    return try recover(run, strategy, reason: "server-restored")
  }

  /// The same of a device that finds what was lost, and gives nothing back.
  func restoredWithoutOffers() throws -> SyncMeasurement {
    try begin()
    try PlainDatabase.putBack(night, to: serverPath)
    bench.settle()
    let sync = try withPair(heal: .off) { try $0.sync() }
    guard sync.recovery != nil, sync.uploaded == 0 else {
      throw SalvorError(.failed, "A device that gives nothing back uploaded \(sync.uploaded) changes.")
    }
    return sync
  }

  /// The device synchronizes with a server that has forgotten what it missed.
  func trimmed(_ run: Int) throws -> SyncMeasurement {
    try begin()
    return try recover(run, "recover-unsynced-changes", reason: "history-trimmed")
  }

  /// Nothing happened, and the device synchronizes.
  func undisturbed(_ run: Int) throws -> SyncMeasurement {
    try begin()
    bench.settle()
    let sync = try withPair { try $0.sync() }
    guard sync.recovery == nil else { throw SalvorError(.failed, "A device recovered that had no reason to.") }
    bench.say("\(name): undisturbed, run \(run): \(TableReport.amount(sync.wall, .seconds))")
    return sync
  }

  private func begin() throws {
    try PlainDatabase.copyFamily(evening.server, to: serverPath)
    try PlainDatabase.copyFamily(evening.client, to: clientPath)
  }

  private func recover(_ run: Int, _ strategy: String, reason: String) throws -> SyncMeasurement {
    bench.settle()
    let sync = try withPair(strategy: strategy) { try $0.sync() }
    guard let recovery = sync.recovery, recovery["reason"]?.string == reason,
      recovery["strategy"]?.string == strategy
    else {
      throw SalvorError(
        .failed, "The device did not recover by \(strategy) from \(reason): \(sync.recovery?.text ?? "no recovery").")
    }
    bench.say("\(name): \(strategy), run \(run): \(TableReport.amount(sync.wall, .seconds))")
    if run == 1 { try PlainDatabase.requireEqual(serverPath, clientPath, RecordData.schema) }
    return sync
  }
}
