import Foundation
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// Databases and files beside them that do not belong together: a copy where nothing was, one of another server, a file that is gone, a
/// server ID that was half changed (semantics 6 and 10).
@Suite struct MisplacedDatabaseTests {
  private let schema = RecoveryQueryTests.schema

  private func remove(_ path: String, _ suffixes: [String]) {
    for suffix in suffixes { try? FileManager.default.removeItem(atPath: path + suffix) }
  }

  @Test("a copy that is put where neither a database nor a file beside it was is a restore that is written down")
  func restoredIntoNothing() async throws {
    let desk = try await ServerDesk(schema)
    _ = try await desk.device()
    try await writeSite(desk, "a")
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    try await writeSite(desk, "b")
    await desk.store.close()
    remove(desk.path, ["", "-wal", "-shm", ".salvor-side"])
    let done = try await desk.store.restore(from: copy)
    #expect(done.before == nil)
    #expect(done.remembered == nil)
    for _ in 1...2 {
      try await desk.restart()
      let found = try await desk.store.restores(limit: 10)
      #expect(found.map(\.parting) == [done.head])
      // Nobody knows what was lost: whoever comes tells of it.
      #expect(found.map(\.lostCommits) == [0])
      #expect(found.map(\.isExact) == [false])
      #expect(found.map(\.absent.count) == [1])
    }
    await desk.store.close()
  }

  @Test("another server's copy is refused over a database and over the file beside a lost one, unless somebody says so")
  func anotherServersCopy() async throws {
    let stranger = try await ServerDesk(schema)
    try await writeSite(stranger, "x")
    let copy = stranger.path + ".copy"
    try await stranger.store.backup(to: copy)
    await stranger.store.close()
    let desk = try await ServerDesk(schema)
    try await writeSite(desk, "a")
    _ = try await desk.store.purge([["gone"]], of: "site")
    let own = desk.opening.serverID
    await desk.store.close()
    for isLost in [false, true] {
      if isLost { remove(desk.path, ["", "-wal", "-shm"]) }
      let error = await #expect(throws: SalvorError.self) { try await desk.store.restore(from: copy) }
      #expect(error?.code == .usage)
      for part in ["\(stranger.opening.serverID)", "\(own)", "--another-server", "Nothing was changed"] {
        #expect(error?.message.contains(part) == true, "\(part)")
      }
      #expect(FileManager.default.fileExists(atPath: desk.path) == !isLost)
      if !isLost { #expect(try sites(desk.path) == ["a"]) }
    }
    let done = try await desk.store.restore(from: copy, overAnotherServer: true)
    #expect(done.server == stranger.opening.serverID)
    // The ledger of the one before does not keep it from starting.
    try await desk.restart()
    #expect(desk.opening.serverID == stranger.opening.serverID)
    #expect(try sites(desk.path) == ["x"])
    await desk.store.close()
  }

  @Test(
    "a database that is gone, or empty, beside the file that remembers it is not made anew", arguments: [false, true])
  func goneBesideItsFile(isEmpty: Bool) async throws {
    let desk = try await ServerDesk(schema)
    try await writeSite(desk, "a")
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    let server = desk.opening.serverID
    await desk.store.close()
    remove(desk.path, ["", "-wal", "-shm"])
    if isEmpty { try Data().write(to: URL(fileURLWithPath: desk.path)) }
    let error = await #expect(throws: SalvorError.self) { try await desk.restart() }
    #expect(error?.code == .storage)
    for part in ["\(server)", "salvor server restore", desk.path + ".salvor-side"] {
      #expect(error?.message.contains(part) == true, "\(part)")
    }
    #expect(FileManager.default.fileExists(atPath: desk.path) == isEmpty)
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    #expect(desk.opening.serverID == server)
    // Whoever wants a new one says so.
    await desk.store.close()
    remove(desk.path, ["", "-wal", "-shm", ".salvor-side"])
    try await desk.restart()
    #expect(desk.opening.serverID != server)
    await desk.store.close()
  }

  @Test(
    "a change of the server ID that was killed is completed by the next start, whatever it had written",
    arguments: [false, true])
  func newIDThatWasKilled(hasLedger: Bool) async throws {
    let desk = try await ServerDesk(schema)
    try await writeSite(desk, "a")
    _ = try await desk.store.purge([["a"]], of: "site")
    let before = desk.opening.serverID
    let new = ServerID(from: SystemRandom())
    await desk.store.close()
    try desk.other().run("INSERT INTO salvor_server (key, value) VALUES ('new-id', ?1)", .text(new.text))
    let ledger = desk.path + ".salvor-purged"
    if hasLedger {
      let text = try String(contentsOfFile: ledger, encoding: .utf8)
      try text.replacingOccurrences(of: before.text, with: new.text).write(
        toFile: ledger, atomically: true, encoding: .utf8)
    }
    try await desk.restart()
    #expect(desk.opening.serverID == new)
    #expect(desk.log.all.contains { $0.contains("adopt --new-id") && $0.contains(new.text) })
    #expect(try String(contentsOfFile: ledger, encoding: .utf8).contains(new.text))
    #expect(try desk.other().scalar("SELECT id FROM salvor_commit WHERE number = 0")?.string == new.text)
    let said = desk.log.all.count { $0.contains("adopt --new-id") }
    try await desk.restart()
    #expect(desk.log.all.count { $0.contains("adopt --new-id") } == said)
    await desk.store.close()
    // One that runs to its end leaves nothing to complete.
    let renaming = try await desk.store.adoptNewID()
    #expect(renaming.before == new)
    try await desk.restart()
    #expect(desk.opening.serverID == renaming.now)
    await desk.store.close()
  }
}
