import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Copies and before-images (semantics 9, *Backup before anything is touched*).
@Suite struct RecoveryBackupTests {
  private func synchronized() async throws -> StoreBench {
    var bench = try await StoreBench(RecoveryTests.notes)
    _ = try await bench.download([("note", ["a", "1", nil]), ("note", ["b", "1", nil])], versioned: false)
    _ = try await bench.download([("note", ["c", "2", nil])])
    return bench
  }

  /// Everything but what a going back in time leaves, what can never be given again, and when it was looked at.
  private func content(_ bench: StoreBench) throws -> [[[Value]]] {
    let names = try bench.read("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").compactMap {
      $0[0].string
    }
    return try names.filter { $0 != "salvor_state" && $0 != "salvor_met" }.map {
      try bench.read("SELECT * FROM \"\($0)\"" + ($0 == "salvor_log" ? " WHERE op <> 0" : "")).sorted {
        "\($0)" < "\($1)"
      }
    }
  }

  @Test func beforeImagesPutBackEveryTable() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'b'; INSERT INTO note VALUES ('n', 'new', NULL)")
    let before = try content(bench)
    let report = try await bench.recover(
      [.row("note", ["a", "9", nil], version: 9), .deleted("note", ["b"], version: 9), .lost("note", ["c"])],
      bench.order(shared: 1, images: true))
    #expect(report.backup == "r1")
    let backup = try #require(try await bench.store.backups().first)
    #expect(backup.content == .beforeImages)
    #expect(backup.bytes > 0)
    // What came after it is in the archive.
    #expect(try await bench.store.restoreBackup("r1", copyID: "before") == nil)
    #expect(try content(bench) == before)
    #expect(try await bench.store.status().state.isOlderThanIdentityFile)
    #expect(try await bench.store.backups() == [])
    #expect(try bench.isWhole())
  }

  @Test(
    "what the server has erased for good takes the before-images along; copies stay, and a note says so without a key")
  func erased() async throws {
    let bench = try await synchronized()
    _ = try await bench.store.makeCopy(id: "mine", reason: "by hand")
    _ = try await bench.recover([.row("note", ["a", "9", nil], version: 9)], bench.order(shared: 1, images: true))
    #expect(try await bench.store.backups().map(\.content) == [.beforeImages, .copy])
    try bench.write("UPDATE note SET title = 'a person' WHERE id = 'a'")
    let (_, session) = try await bench.uploadText()
    let waiting = try #require(
      try await bench.store.requests(in: RecoveryTests.everything, after: nil, limit: 10).first)
    try await bench.accept(
      session,
      refusing: [Refusal(counter: waiting.id.counter, stamp: waiting.id.stamp, reason: .purged, message: "Erased.")])
    #expect(try await bench.store.backups().map(\.content) == [.copy])
    #expect(try await bench.requests(RecoveryTests.everything) == [])
    #expect(try bench.read("SELECT count(*) FROM salvor_recovery_item WHERE item LIKE '%person%'") == [[0]])
    let notes = try bench.read("SELECT text FROM salvor_note").compactMap { $0[0].string }
    #expect(notes.contains { $0.contains("1 row that the server has erased") && $0.contains("salvor backups delete") })
    #expect(!notes.contains { $0.contains("person") })
    #expect(try bench.isWhole())
  }

  @Test func changesMadeSinceAreKeptAsEntriesWhenBeforeImagesAreRestored() async throws {
    let bench = try await synchronized()
    _ = try await bench.recover(
      [.row("note", ["x", "9", nil], version: 9), .lost("note", ["c"])], bench.order(shared: 1, images: true))
    try bench.write("UPDATE note SET title = 'later' WHERE id = 'x'; DELETE FROM note WHERE id = 'a'")
    _ = try await bench.store.restoreBackup("r1", copyID: "before")
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "1", nil], ["b", "1", nil], ["c", "2", nil]])
    #expect(
      try await bench.requests(RecoveryTests.everything) == [
        "kept update x backup-restored", "kept delete a backup-restored",
      ])
    #expect(try bench.isWhole())
  }

  @Test func aRecoveryIsUndoneWithThoseThatCameAfterIt() async throws {
    let bench = try await synchronized()
    let before = try bench.read("SELECT * FROM note ORDER BY id")
    _ = try await bench.recover(
      [.row("note", ["a", "8", nil], version: 8)], bench.order("r1", shared: 1, images: true))
    _ = try await bench.recover(
      [.row("note", ["a", "9", nil], version: 9), .deleted("note", ["b"], version: 9)],
      bench.order("r2", shared: 1, images: true))
    _ = try await bench.store.restoreBackup("r1", copyID: "before")
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == before)
    #expect(try await bench.store.recoveries(limit: 9) == [])
  }

  @Test func whereTheRecorderWouldMissSomethingAWholeCopyIsKept() async throws {
    var bench = try await StoreBench(
      RecoveryTests.notes,
      sql: """
        CREATE TABLE note (id TEXT NOT NULL PRIMARY KEY, title TEXT NOT NULL, body TEXT);
        CREATE TABLE words (w TEXT);
        CREATE TRIGGER i AFTER INSERT ON note BEGIN INSERT INTO words VALUES (NEW.title); END;
        """)
    _ = try await bench.download([("note", ["a", "1", nil])])
    let before = try content(bench)
    let report = try await bench.recover([.row("note", ["b", "2", nil])], bench.order(shared: 1, images: true))
    #expect(try bench.read("SELECT * FROM words") == [["1"], ["2"]])
    let backup = try #require(try await bench.store.backups().first)
    #expect(backup.id == report.backup)
    #expect(backup.content == .copy)
    let application = try SQLiteConnection(bench.path)
    #expect(try application.rows("SELECT count(*) FROM note") == [[2]])
    _ = try await bench.store.restoreBackup(backup.id, copyID: "before")
    #expect(try application.rows("SELECT count(*) FROM note") == [[1]])
    #expect(try application.rows("SELECT * FROM words") == [["1"]])
    #expect(try content(bench).count == before.count)
    try application.execute("INSERT INTO note VALUES ('n', 'captured', NULL)")
    #expect(try await bench.requests([.queued]) == ["queued insert n"])
    #expect(try await bench.store.status().state.isOlderThanIdentityFile)
    #expect(try bench.isWhole())
  }

  @Test func aRecoveryThatFailsLeavesNoBeforeImages() async throws {
    let bench = try await synchronized()
    await #expect(throws: SalvorError.self) {
      _ = try await bench.recover([.row("none", ["a"])], bench.order(shared: 1, images: true))
    }
    #expect(try await bench.store.backups() == [])
    #expect(try bench.read("SELECT count(*) FROM note") == [[3]])
  }

  @Test func aCopyStandsOnItsOwnAndIsWhole() async throws {
    let bench = try await synchronized()
    let backup = try await bench.store.makeCopy(id: "../odd name", reason: "manual")
    #expect(backup.path.hasPrefix(bench.path + ".salvor-backups/"))
    let copy = try SQLiteConnection(backup.path, mode: .readOnly)
    #expect(try copy.rows("SELECT count(*) FROM note") == [[3]])
    #expect(try copy.rows("PRAGMA integrity_check") == [["ok"]])
    #expect(try copy.pragma("journal_mode")?.string == "delete")
    #expect(try await bench.store.backups().map(\.id) == ["../odd name"])
    #expect(try await bench.store.deleteBackup("../odd name"))
    #expect(try await bench.store.backups() == [])
  }

  @Test("nobody writes between the copy of what is there and the backup that takes its place")
  func aCopyIsPutBackWithNothingBetween() async throws {
    let bench = try await synchronized()
    _ = try await bench.store.makeCopy(id: "old", reason: "by hand")
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    let blocked = try SQLiteConnection(bench.path)
    try blocked.pragma("busy_timeout", "0")
    let target = try SQLiteConnection(bench.path)
    let copy = try SQLiteConnection(try #require(try await bench.store.backups().first).path, mode: .readOnly)
    try copy.backup(
      into: target,
      whenLocked: { () throws in
        #expect(throws: SalvorError.self) { try blocked.execute("UPDATE note SET title = 'late' WHERE id = 'b'") }
        #expect(try blocked.rows("SELECT title FROM note WHERE id = 'a'") == [["mine"]])
      })
    #expect(try blocked.rows("SELECT title FROM note WHERE id = 'a'") == [["1"]])
  }

  @Test("where what is there cannot be copied, the backup is not put back, and nothing has changed")
  func nothingIsPutBackOverWhatCannotBeCopied() async throws {
    let bench = try await synchronized()
    _ = try await bench.store.makeCopy(id: "old", reason: "by hand")
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    // A folder stands where the copy would be.
    let obstacle = bench.path + ".salvor-backups/before.db.new"
    #expect(FileSystem.makeFolder(obstacle, 0o700))
    await #expect(throws: SalvorError.self) {
      _ = try await bench.store.restoreBackup("old", copyID: "before")
    }
    #expect(try bench.read("SELECT title FROM note WHERE id = 'a'") == [["mine"]])
    #expect(try await bench.store.backups().map(\.id) == ["old"])
    #expect(FileSystem.rename(obstacle, to: bench.path + ".away"))
    #expect(try await bench.store.restoreBackup("old", copyID: "before")?.id == "before")
    #expect(try bench.read("SELECT title FROM note WHERE id = 'a'") == [["1"]])
    #expect(try await bench.store.backups().map(\.id) == ["before", "old"])
  }
}
