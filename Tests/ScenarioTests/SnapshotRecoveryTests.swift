import Foundation
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// Recoveries that fetch everything, and groups with large values: by files, too.
@Suite("Snapshots: recoveries and large values")
struct SnapshotRecoveryTests {
  private static let schema = """
    {
      version: 1,
      groups: { stock: {}, work: {} },
      tables: {
        place: { maintained: "dual", group: "stock", primaryKey: "id",
                 columns: { id: "text", name: "text", photo: "blob?" }, unique: [["name"]] },
        shelf: { maintained: "dual", group: "stock", primaryKey: ["place_id", "number"],
                 columns: { place_id: "text", number: "integer", note: "text?" },
                 references: { place_id: { table: "place", onDelete: "cascade" } } },
        job: { maintained: "dual", group: "work", primaryKey: "id",
               columns: { id: "integer", place_id: "text?", note: "text?" }, references: { place_id: "place" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """
  private static let tables = ["place", "shelf", "job"]

  private func fleet(_ options: String = "") async throws -> Fleet {
    let fleet = try Fleet(
      schema: Self.schema,
      serverOptions:
        "authentication: { module: \"none\" }, snapshots: { minRows: 10, maxBehind: 100 }, recovery: { selfServiceRemoteDeletion: true }, \(options)"
    )
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100)
      INSERT INTO place SELECT 'p' || i, 'place ' || i, NULL FROM n;
      INSERT INTO shelf SELECT id, 1, 'a' FROM place;
      INSERT INTO job SELECT rowid, id, 'j' FROM place;
      """)
    return fleet
  }

  /// A server that lost what the device has sent since its backup.
  private func badDay(_ recovery: String, attemptsMax: Int? = nil) async throws -> (Fleet, Device) {
    let fleet = try await fleet()
    let device = try fleet.device("one", recovery: recovery) { configuration in
      if let attemptsMax { configuration.limits.attemptsMax = attemptsMax }
    }
    #expect(try await device.sync().error == nil)
    try await until { fleet.snapshots.count == 2 }
    try await device.write("UPDATE place SET name = 'early' WHERE id = 'p1'")
    #expect(try await device.sync().error == nil)
    try await fleet.backup("night")
    try await device.write("UPDATE place SET name = 'late' WHERE id = 'p2'")
    #expect(try await device.sync().error == nil)
    try await device.write(
      "UPDATE job SET note = 'unsent' WHERE id = 3", "INSERT INTO place VALUES ('own', 'own', NULL)",
      "INSERT INTO draft VALUES ('d', 'kept')")
    try await fleet.restore("night")
    return (fleet, device)
  }

  @Test(
    "a recovery that fetches everything takes the files, says so, and loses nothing but what its strategy says",
    arguments: ["recreate", "copy-and-resubscribe", "upload-then-recreate"])
  func byFile(strategy: String) async throws {
    let (fleet, device) = try await badDay("heal: \"off\", strategy: \"\(strategy)\"")
    let report = try await device.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.strategy == strategy)
    #expect(report.snapshots == 2)
    #expect(fleet.snapshotsSent == 2)
    #expect(try fleet.snapshotLeftovers() == [])
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(Self.tables, [device])
    #expect(try device.rows("place").contains { $0[0] == "own" } == (strategy == "upload-then-recreate"))
    #expect(try device.rows("draft") == (strategy == "copy-and-resubscribe" ? [["d", "kept"]] : []))
    // The queue and the feed go on.
    try await device.write("UPDATE place SET name = 'after' WHERE id = 'p5'")
    try fleet.serverConnection().execute("UPDATE shelf SET note = 'b' WHERE place_id = 'p6'")
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(Self.tables, [device])
  }

  @Test(
    "a plan says which groups will come by files, and has none made; in place nothing does",
    arguments: ["recreate", "copy-and-resubscribe", "recover-unsynced-changes"])
  func plan(strategy: String) async throws {
    let (fleet, device) = try await badDay("heal: \"off\", strategy: \"\(strategy)\"")
    let plan = try await device.open().recoveryPlan()
    #expect(plan.strategy == strategy)
    let isAnew = strategy != "recover-unsynced-changes"
    #expect(plan.files.map(\.group) == (isAnew ? ["stock", "work"] : []))
    #expect(plan.files.map(\.rows) == (isAnew ? [200, 100] : []))
    let sizes = try fleet.snapshots.map {
      Int64(try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile($0))).count)
    }
    if isAnew { #expect(Set(plan.files.map(\.bytes)) == Set(sizes)) }
    #expect(plan.json["files"]?.array?.count == plan.files.count)
    #expect(plan.json["files"]?.array?.first?["rows"] == (isAnew ? .integer(200) : nil))
    // A plan offers nothing, sends nothing and orders nothing.
    #expect(fleet.server?.engine.metrics.snapshotsOffered.value == 0)
    let id = try #require(fleet.snapshots.first)
    removeFile(fleet.snapshotFolder + "/\(id).json")
    let rest = try await device.open().recoveryPlan()
    #expect(rest.files.count == (isAnew ? 1 : 0))
    let report = try await device.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.snapshots == Int64(rest.files.count))
    #expect(fleet.server?.engine.metrics.snapshotsMade.value ?? 0 <= (isAnew ? 1 : 0))
    try fleet.expectEqual(Self.tables, isAnew ? [device] : [])
  }

  @Test("a cut in the middle of a recovery's file is gone on with, by a new process; nothing was touched meanwhile")
  func cut() async throws {
    let (fleet, device) = try await badDay("heal: \"off\", strategy: \"recreate\"", attemptsMax: 1)
    let sizes = try fleet.snapshots.map {
      try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile($0))).count
    }
    let half = (sizes.min() ?? 0) / 2
    // The begin that is refused, the recovery's own, the download that names files; then the file.
    fleet.faults.pass(3)
    fleet.faults.inject(.cutAnswer(after: half))
    let before = try device.rows("place")
    let cut = try await device.sync()
    #expect(cut.error?.code == .unreachable)
    #expect(fleet.faults.left == 0)
    #expect(try device.rows("place") == before)
    await device.close()
    let report = try await device.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.snapshots == 2)
    #expect(try fleet.snapshotLeftovers() == [])
    try fleet.expectEqual(Self.tables, [device])
  }

  @Test("a recovery whose file is damaged goes on by rows, in the same synchronization")
  func damaged() async throws {
    let (fleet, device) = try await badDay("heal: \"off\", strategy: \"recreate\"")
    for id in fleet.snapshots {
      let path = try fleet.snapshotFile(id)
      var bytes = Array(try Data(contentsOf: URL(fileURLWithPath: path)))
      bytes[bytes.count / 2] ^= 1
      try Data(bytes).write(to: URL(fileURLWithPath: path))
    }
    let report = try await device.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.snapshots == 0)
    #expect(try fleet.snapshotLeftovers() == [])
    try fleet.expectEqual(Self.tables, [device])
  }

  @Test("a device that was away too long, and whose strategy is to begin anew, does so by files made since")
  func historyTrimmed() async throws {
    let fleet = try await fleet()
    let device = try fleet.device("one", recovery: "strategy: \"recreate\"")
    #expect(try await device.sync().error == nil)
    try await until { fleet.snapshots.count == 2 }
    try fleet.serverConnection().execute("DELETE FROM job WHERE id = 9; UPDATE shelf SET note = 'x'")
    _ = try await fleet.device("b").sync()
    try fleet.serverConnection().execute("UPDATE place SET name = 'z' WHERE id = 'p3'")
    _ = try await fleet.device("c").sync()
    await fleet.server?.engine.trim(retentionMilliseconds: -1000)
    // The files of before are older than the log, too: they go, and new ones are made.
    let asked = try fleet.device("d")
    #expect(try await asked.sync().error == nil)
    try await until { fleet.snapshots.count == 2 }
    let report = try await device.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.reason == .historyTrimmed)
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(Self.tables, [device, asked])
  }

  @Test("a group that is synchronized for the first time beside others comes by its file, with rows of others waiting")
  func secondGroup() async throws {
    let fleet = try await fleet()
    try await fleet.warm(count: 2)
    let device = try fleet.device("second")
    #expect(try await device.sync(["stock"]).snapshots == 1)
    try await device.write(
      "UPDATE place SET name = 'mine' WHERE id = 'p8'", "INSERT INTO job VALUES (900, 'p8', 'own')")
    try fleet.serverConnection().execute(
      "UPDATE place SET name = 'theirs' WHERE id = 'p9'; DELETE FROM job WHERE id = 9; INSERT INTO job VALUES (901, 'p9', 'new')"
    )
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 1)
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(Self.tables, [device])
    #expect(try device.rows("job").contains { $0[0] == 900 })
  }

  // MARK: Large values

  private func photos(_ fleet: Fleet) throws {
    try fleet.serverConnection().execute(
      "UPDATE place SET photo = randomblob(40000) WHERE id IN ('p1', 'p20', 'p30', 'p40'); UPDATE place SET photo = x'00' WHERE id = 'p2'"
    )
  }

  @Test("large values are in no file: their rows stand apart, and the values come as they do with rows")
  func largeValues() async throws {
    let fleet = try await fleet()
    try photos(fleet)
    try await fleet.warm(count: 2)
    for id in fleet.snapshots {
      let size = try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile(id))).count
      #expect(size < 40_000)
    }
    // One becomes small, one goes, one is another by now, one row becomes large.
    try fleet.serverConnection().execute(
      """
      UPDATE place SET photo = NULL WHERE id = 'p20'; DELETE FROM job WHERE place_id = 'p30'; DELETE FROM place WHERE id = 'p30';
      UPDATE place SET name = 'other' WHERE id = 'p40'; UPDATE place SET photo = randomblob(50000) WHERE id = 'p3';
      """)
    let second = try fleet.device("second")
    #expect(try await second.sync().error == nil)
    try fleet.expectEqual(Self.tables, [second])
    #expect(try fleet.snapshotLeftovers() == [])
    #expect(try await second.sync().upserts == 0)
  }

  @Test("a device whose file names no value that is gone since gets its rows by the file")
  func largeValuesByFile() async throws {
    let fleet = try await fleet()
    try photos(fleet)
    try await fleet.warm(count: 2)
    try fleet.serverConnection().execute(
      "UPDATE place SET name = 'other' WHERE id = 'p40'; DELETE FROM job WHERE id = 7")
    let second = try fleet.device("second")
    let report = try await second.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 2)
    try fleet.expectEqual(Self.tables, [second])
    try await second.write("UPDATE place SET photo = NULL WHERE id = 'p1'")
    #expect(try await second.sync().error == nil)
    try fleet.expectEqual(Self.tables, [second])
  }
}
