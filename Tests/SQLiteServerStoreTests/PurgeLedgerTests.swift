import Foundation
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// The file beside the database that keeps purged rows from coming back (semantics 10).
@Suite struct PurgeLedgerTests {
  private func sites(_ desk: ServerDesk) throws -> [String] {
    try desk.other().rows("SELECT id FROM site ORDER BY id").compactMap { $0[0].string }
  }

  /// Rows a, b, c; a copy with all three; then a and b purged. Closed.
  private func desk() async throws -> (ServerDesk, copy: String, ledger: String) {
    let desk = try await ServerDesk(RecoveryQueryTests.schema)
    try desk.other().execute("INSERT INTO site VALUES ('a', 'anna', NULL), ('b', 'anna', NULL), ('c', 'anna', NULL)")
    _ = try await desk.store.sweep()
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    #expect(try await desk.store.purge([["a"], ["b"]], of: "site") == PurgeReport(rows: 2, keys: 2))
    await desk.store.close()
    return (desk, copy, desk.path + ".salvor-purged")
  }

  private func lines(_ path: String) throws -> [Substring] {
    try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false)
  }

  private func refusal(_ desk: ServerDesk) async throws -> SalvorError {
    try #require(await #expect(throws: SalvorError.self) { try await desk.restart() })
  }

  @Test("A copy that is put back has its purged rows erased before anybody is answered, whatever purges came after it")
  func restored() async throws {
    let (desk, copy, _) = try await desk()
    _ = try await desk.store.restore(from: copy)
    #expect(try sites(desk) == ["a", "b", "c"])
    try await desk.restart()
    #expect(try sites(desk) == ["c"])
    #expect(desk.log.all.contains { $0.contains("gone again") })
    // Nothing is left to do at the next start.
    let said = desk.log.all.count { $0.contains("gone again") }
    try await desk.restart()
    #expect(desk.log.all.count { $0.contains("gone again") } == said)
    await desk.store.close()
  }

  @Test("What was erased is nowhere in the database's files")
  func overwritten() async throws {
    let desk = try await ServerDesk(RecoveryQueryTests.schema)
    try desk.other().execute("INSERT INTO site VALUES ('a', 'anna', 'the secret of a person'), ('b', 'anna', 'other')")
    _ = try await desk.store.sweep()
    _ = try await desk.store.purge([["a"]], of: "site")
    for suffix in ["", "-wal"] {
      guard let bytes = FileManager.default.contents(atPath: desk.path + suffix) else { continue }
      #expect(bytes.range(of: Data("the secret of a person".utf8)) == nil, "in the database\(suffix)")
    }
    await desk.store.close()
  }

  @Test(
    "A restore completes a ledger that was cut or removed from the database that it takes the place of",
    arguments: [true, false])
  func completedByARestore(isRemoved: Bool) async throws {
    let (desk, copy, ledger) = try await desk()
    let before = try lines(ledger)
    if isRemoved {
      try FileManager.default.removeItem(atPath: ledger)
    } else {
      try (before.dropLast(2).joined(separator: "\n") + "\n").write(toFile: ledger, atomically: false, encoding: .utf8)
    }
    _ = try await desk.store.restore(from: copy)
    #expect(try lines(ledger) == before)
    try await desk.restart()
    #expect(try sites(desk) == ["c"])
    await desk.store.close()
  }

  @Test(
    "A ledger that ends too early, or is gone, beside a copy that was put back: the server does not start, and says what is missing",
    arguments: [true, false])
  func shorterThanRemembered(isRemoved: Bool) async throws {
    let (desk, copy, ledger) = try await desk()
    let whole = try lines(ledger).joined(separator: "\n")
    _ = try await desk.store.restore(from: copy)
    if isRemoved {
      try FileManager.default.removeItem(atPath: ledger)
    } else {
      try (try lines(ledger).dropLast(2).joined(separator: "\n") + "\n").write(
        toFile: ledger, atomically: false, encoding: .utf8)
    }
    let error = try await refusal(desk)
    #expect(error.code == .storageCorrupt)
    #expect(error.message.contains(ledger) && error.message.contains("2 acts"))
    #expect(try sites(desk) == ["a", "b", "c"], "nothing was changed")
    try whole.write(toFile: ledger, atomically: false, encoding: .utf8)
    try await desk.restart()
    #expect(try sites(desk) == ["c"])
    await desk.store.close()
  }

  @Test(
    "What a copy has under a key that was released since is from before the purge: it is erased, and the key is free")
  func releasedSince() async throws {
    let (desk, copy, _) = try await desk()
    try await desk.restart()
    #expect(try await desk.store.releasePurged([["a"]], of: "site") == 1)
    try desk.other().execute("INSERT INTO site VALUES ('a', 'anna', 'another thing')")
    _ = try await desk.store.sweep()
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    #expect(try sites(desk) == ["c"])
    #expect(try await desk.store.releasePurged([["a"]], of: "site") == 0, "it is free already")
    try desk.other().execute("INSERT INTO site VALUES ('a', 'anna', 'another thing')")
    _ = try await desk.store.sweep()
    await desk.store.close()
    try await desk.restart()
    #expect(try sites(desk) == ["a", "c"])
    await desk.store.close()
  }

  @Test("A ledger that is not there is made anew from the database, and holds as before")
  func madeAnew() async throws {
    let (desk, copy, ledger) = try await desk()
    let before = try lines(ledger)
    try FileManager.default.removeItem(atPath: ledger)
    try await desk.restart()
    #expect(try lines(ledger) == before)
    #expect(desk.log.all.contains { $0.contains("made anew") })
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    #expect(try sites(desk) == ["c"])
    await desk.store.close()
  }

  @Test(
    "A ledger that is cut, altered or another server's stops the start, by name, and nothing is touched",
    arguments: ["cut", "torn", "altered", "other"])
  func refused(fault: String) async throws {
    let (desk, copy, ledger) = try await desk()
    var text = try lines(ledger)
    switch fault {
    case "cut": text.remove(at: 2)
    case "torn":
      // Of a restored database nobody else knows the act.
      _ = try await desk.store.restore(from: copy)
      text = Array(text.dropLast())
      text[2] = text[2].prefix(20)
    case "altered": text[1] = Substring(text[1].replacingOccurrences(of: "\"purge\"", with: "\"release\""))
    default:
      text[0] = Substring(
        text[0].replacingOccurrences(of: desk.opening.serverID.text, with: String(repeating: "0", count: 32)))
    }
    let content = text.joined(separator: "\n")
    try content.write(toFile: ledger, atomically: false, encoding: .utf8)
    let before = try sites(desk)
    let error = try await refusal(desk)
    #expect(error.code == (fault == "other" ? .storage : .storageCorrupt))
    #expect(error.message.contains(ledger))
    #expect(try String(contentsOfFile: ledger, encoding: .utf8) == content)
    #expect(try sites(desk) == before)
  }

  @Test("Half a line of a purge that was not done is removed")
  func halfLine() async throws {
    let (desk, _, ledger) = try await desk()
    let before = try String(contentsOfFile: ledger, encoding: .utf8)
    try (before + "{\"act\":\"pur").write(toFile: ledger, atomically: false, encoding: .utf8)
    try await desk.restart()
    #expect(try String(contentsOfFile: ledger, encoding: .utf8) == before)
    _ = try await desk.store.purge([["c"]], of: "site")
    #expect(try sites(desk) == [])
    await desk.store.close()
  }

  @Test("A copy that got a server ID of its own takes its ledger along")
  func adopted() async throws {
    let (desk, _, ledger) = try await desk()
    _ = try await desk.store.adoptNewID()
    try await desk.restart()
    #expect(try lines(ledger)[0].contains(desk.opening.serverID.text))
    await desk.store.close()
  }

  // MARK: Its end

  private static let day: Int64 = 86_400_000

  /// Shows the time that was set.
  private final class DayClock: SalvorModel.Clock, @unchecked Sendable {
    private let lock = NSLock()
    private var time: Int64 = 100 * PurgeLedgerTests.day
    func now() -> Int64 { lock.withLock { time } }
    func set(day: Int64) { lock.withLock { time = day * PurgeLedgerTests.day } }
    func sleep(milliseconds: Int64) async throws {}
  }

  /// Day 100: rows a, b, c and a copy. Day 101: a and b are purged. Day 103: c is.
  private func aged() async throws -> (ServerDesk, DayClock, copy: String, ledger: String) {
    let clock = DayClock()
    let desk = try await ServerDesk(RecoveryQueryTests.schema, clock: clock)
    try desk.other().execute("INSERT INTO site VALUES ('a', 'anna', NULL), ('b', 'anna', NULL), ('c', 'anna', NULL)")
    _ = try await desk.store.sweep()
    let copy = desk.path + ".copy"
    try await desk.store.backup(to: copy)
    clock.set(day: 101)
    _ = try await desk.store.purge([["a"], ["b"]], of: "site")
    clock.set(day: 103)
    _ = try await desk.store.purge([["c"]], of: "site")
    clock.set(day: 200)
    return (desk, clock, copy, desk.path + ".salvor-purged")
  }

  /// How many acts the database and the file have.
  private func acts(_ desk: ServerDesk, _ ledger: String) throws -> [Int64?] {
    [try desk.other().integer("SELECT count(*) FROM salvor_purge"), Int64(try lines(ledger).count - 2)]
  }

  private func forget(_ desk: ServerDesk) async throws {
    for backup in try await desk.store.recordedBackups() where !backup.isForgotten {
      #expect(try await desk.store.forgetBackup(backup.id))
    }
  }

  @Test(
    "An act of the ledger ends when it is older than the retention and than every listed copy, in the database and in the file"
  )
  func ends() async throws {
    let (desk, _, _, ledger) = try await aged()
    // The copy has the rows.
    try await desk.store.trim(before: 150 * Self.day)
    #expect(try acts(desk, ledger) == [3, 3])
    try await forget(desk)
    // Devices may still send what is within the retention.
    try await desk.store.trim(before: 101 * Self.day)
    #expect(try acts(desk, ledger) == [3, 3])
    try await desk.store.trim(before: 102 * Self.day)
    #expect(try acts(desk, ledger) == [1, 1])
    #expect(try await desk.store.releasePurged([["a"]], of: "site") == 0)
    // What is left holds, and what comes is added behind it.
    try await desk.restart()
    #expect(try await desk.store.releasePurged([["c"]], of: "site") == 1)
    #expect(try acts(desk, ledger) == [2, 2])
    try await desk.store.trim(before: .max)
    #expect(try acts(desk, ledger) == [0, 0])
    _ = try await desk.store.purge([["d"]], of: "site")
    try await desk.restart()
    #expect(try acts(desk, ledger) == [1, 1])
    #expect(try await desk.store.releasePurged([["d"]], of: "site") == 1)
    await desk.store.close()
  }

  @Test("A copy that was made long after a purge does not keep its act")
  func laterCopy() async throws {
    let (desk, clock, copy, ledger) = try await aged()
    try await forget(desk)
    // Within a day the row may have been erased while the copy was made.
    clock.set(day: 102)
    try await desk.store.backup(to: copy + "2")
    try await desk.store.trim(before: 150 * Self.day)
    #expect(try acts(desk, ledger) == [3, 3])
    try await forget(desk)
    clock.set(day: 103)
    try await desk.store.backup(to: copy + "3")
    try await desk.store.trim(before: 150 * Self.day)
    #expect(try acts(desk, ledger) == [1, 1])
    await desk.store.close()
  }

  @Test("A purge that is asked for again lasts as long as a new one")
  func renewed() async throws {
    let (desk, _, _, ledger) = try await aged()
    try await forget(desk)
    #expect(try await desk.store.purge([["a"]], of: "site") == PurgeReport())
    try await desk.store.trim(before: 150 * Self.day)
    #expect(try acts(desk, ledger) == [1, 1])
    #expect(try await desk.store.releasePurged([["a"], ["b"]], of: "site") == 1)
    await desk.store.close()
  }

  @Test("A forgotten copy that is put back has erased what did not end, and says that more had been purged")
  func forgottenCopy() async throws {
    let (desk, _, copy, ledger) = try await aged()
    try await forget(desk)
    try await desk.store.trim(before: 102 * Self.day)
    await desk.store.close()
    _ = try await desk.store.restore(from: copy)
    try await desk.restart()
    #expect(try sites(desk) == ["a", "b"])
    #expect(desk.log.all.contains { $0.contains("older than 2 purges that ended") })
    #expect(try acts(desk, ledger) == [1, 1])
    // It is said once.
    let said = desk.log.all.count { $0.contains("purges that ended") }
    try await desk.restart()
    #expect(desk.log.all.count { $0.contains("purges that ended") } == said)
    _ = try await desk.store.purge([["a"]], of: "site")
    try await desk.restart()
    #expect(try sites(desk) == ["b"])
    await desk.store.close()
  }

  @Test(
    "A database that knows acts which ended in the file follows it, and one that knows of more that ended is followed")
  func apart() async throws {
    let (desk, _, copy, ledger) = try await aged()
    let before = try String(contentsOfFile: ledger, encoding: .utf8)
    // With all three acts; then both are ended, and this database comes back as a crash before the commit would leave it.
    try await desk.store.backup(to: copy + "2")
    try await forget(desk)
    try await desk.store.trim(before: 102 * Self.day)
    let after = try String(contentsOfFile: ledger, encoding: .utf8)
    await desk.store.close()
    _ = try await desk.store.restore(from: copy + "2")
    try await desk.restart()
    #expect(try acts(desk, ledger) == [1, 1])
    #expect(try String(contentsOfFile: ledger, encoding: .utf8) == after)
    #expect(!desk.log.all.contains { $0.contains("purges that ended") || $0.contains("gone again") })
    // The file of before.
    try before.write(toFile: ledger, atomically: false, encoding: .utf8)
    try await desk.restart()
    #expect(try await desk.store.purge([["d"]], of: "site").keys == 1)
    try await desk.restart()
    #expect(try acts(desk, ledger) == [2, 4])
    try await desk.store.trim(before: 150 * Self.day)
    #expect(try acts(desk, ledger) == [1, 1])
    try await desk.restart()
    // Acts that are missing show, also behind some that ended.
    await desk.store.close()
    try after.write(toFile: ledger, atomically: false, encoding: .utf8)
    #expect(try await refusal(desk).code == .storageCorrupt)
  }
}
