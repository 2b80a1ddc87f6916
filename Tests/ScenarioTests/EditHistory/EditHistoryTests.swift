import Foundation
import SalvorModel
import SalvorWire
import Testing

private let isLong = ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1"

@Suite("The legislators' edit history, replayed through real clients with its true staleness", .serialized)
struct EditHistoryTests {
  @Test("replay", arguments: ["client-wins", "server-wins", "keep-versions"])
  func replay(_ policy: String) async throws {
    let start = ContinuousClock.now
    let limit = ProcessInfo.processInfo.environment["X_LANDING"].flatMap(Int.init) ?? 66
    let replay = try EditHistoryReplay(policy: policy, landingMax: limit)
    try await replay.run()
    print("run", ContinuousClock.now - start)
    try replay.expectServerRows()
    print("server", ContinuousClock.now - start)
    try await replay.expectDevices()
    print("devices", ContinuousClock.now - start)
    try await replay.expectArchives()
    try replay.expectConflictVersions()
    print("kept", ContinuousClock.now - start)
    print(policy, replay.writers.count, replay.reckoning.transactions, replay.reckoning.clashes, replay.reckoning.resolutions, replay.reckoning.partings, replay.reckoning.clashingTransactions)
    print(replay.history.tables.indices.map { replay.hash(of: $0, in: replay.source.rows) })
    print("hash", ContinuousClock.now - start)
  }
}
