import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// A server that was restored, replaced or trimmed, and real devices that recover from it by the strategy that their
/// configuration names (semantics 5, 6, 9).
@Suite(.serialized) struct RecoveryTests {
  static let strategies = [
    #"strategy: "recover-unsynced-changes""#, #"strategy: "recover-or-discard-unsynced-changes""#,
    #"strategy: "discard-unsynced-changes""#, #"strategy: "recreate""#, #"strategy: "copy-and-resubscribe""#,
    #"strategy: "upload-then-recreate""#,
    #"strategy: "upload-then-recreate", options: { "upload-then-recreate": { then: "copy-and-resubscribe" } }"#,
    #"strategy: "manual""#,
  ]

  // MARK: time1 … time4 (sap-rbs-synchronize-recovery)

  @Test(
    "time1 and time4: the device synchronizes as normal, whatever its strategy; what the server lost comes back",
    arguments: strategies, [1, 4])
  func inStep(recovery: String, time: Int) async throws {
    let scene = try Inspections(files: try await Days.files())
    try await scene.restoreStopped("time\(time)")
    try await scene.start()
    let device = try scene.device(recovery: recovery)
    let report = try await device.sync()
    #expect(report["outcome"] == "synchronized")
    #expect(report["error"] == nil)
    // At time1 others' commits, and its own, are gone: a rewind, which is no error (semantics 6).
    #expect(report["recovery"]["strategy"] == (time == 1 ? "rewind" : nil))
    #expect(try await device.kept() == [])
    #expect(report["healed"] == .integer(Days.lost(at: time)))
    #expect(try Days.found(in: scene.place.server.database) == 4)
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
  }

  @Test(
    "time2 and time3: the upload fails at the server, and the device recovers by its strategy",
    arguments: strategies.dropLast(), [2, 3])
  func parted(recovery: String, time: Int) async throws {
    let scene = try Inspections(server: "recovery: { selfServiceRemoteDeletion: true },", files: try await Days.files())
    try await scene.restoreStopped("time\(time)")
    try await scene.start()
    let device = try scene.device(recovery: recovery)
    let report = try await device.sync()
    #expect(report["outcome"] == "recovered")
    #expect(report["error"] == nil)
    let summary = report["recovery"]
    #expect(summary["reason"] == "server-restored")
    #expect(recovery.contains("strategy: \"\(summary["strategy"].string ?? "")\""))
    #expect(summary["fellBackFrom"] == nil)
    #expect(scene.place.server.child?.err.contains("server-restored") == true)

    let isKept = recovery.contains("\"recover-")
    let isUploaded = recovery.contains("\"upload-")
    let isArchived = !isKept && !isUploaded
    #expect(summary["kept"] == (isKept ? 4 : 0))
    #expect(summary["discarded"] == (isArchived ? 4 : 0))
    #expect(try await device.kept() == (isArchived ? Unsynced.discarded : []))
    // Whatever becomes of unsynced changes, what was acknowledged comes back.
    #expect(report["recovery"]["offered"] == .integer(Days.lost(at: time)))
    #expect(try Days.found(in: scene.place.server.database) == 4)
    let backups = try await device.salvor("backups", "--json").json["backups"].items
    #expect(backups.map { $0["id"] } == [summary["backup"]])
    let isRecreated = recovery.hasSuffix("recreate\"")
    try await scene.expectSettled(device, unsynced: isArchived ? 0 : 4, drafts: isRecreated ? 0 : 1)
  }

  @Test("time2 with the strategy manual: exit code 5, nothing touched, a copy and a token; then recover by hand")
  func manual() async throws {
    let scene = try Inspections(files: try await Days.filesAtTime2())
    try await scene.start()
    let device = try scene.device(recovery: #"strategy: "manual""#)
    let before = try contents(device.database, Inspections.tables + ["draft"])
    let report = try await device.sync(expecting: 5)
    #expect(report["outcome"] == "recovery-required")
    #expect(report["recovery"]["reason"] == "server-restored")
    #expect(report["recovery"]["strategy"] == "manual")
    #expect(try contents(device.database, Inspections.tables + ["draft"]) == before)
    let status = try await device.status()["recovery"]
    let token = try #require(status["token"].string)
    #expect(status["state"] == "required")
    #expect(status["reason"] == "server-restored")
    #expect(status["backup"] == report["recovery"]["backup"])
    let copy = try #require(try await device.salvor("backups", "--json").json["backups"][0]["path"].string)
    let path = copy.hasPrefix("/") ? copy : device.directory.appendingPathComponent(copy).path
    #expect(try contents(path, Inspections.tables + ["draft"]) == before)

    #expect(try await device.sync(expecting: 5)["error"]["name"] == "recovery-required")
    #expect(try await device.status()["recovery"]["token"].string == token)
    let wrong = try await device.salvor("recover", "--token", "0000", "--strategy", "recreate", "--json")
    #expect(wrong.code == 2)
    #expect(try contents(device.database, Inspections.tables + ["draft"]) == before)
    let done = try await device.salvor(
      "recover", "--token", token, "--strategy", "recover-unsynced-changes", "--json")
    #expect(done.code == 0, "\(done.err)")
    #expect(try done.json["recovery"]["kept"] == 4)
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
  }

  // MARK: Two devices, two restores

  @Test("Two devices, of which one is behind: the one that is in step syncs, the other recovers, and all are equal")
  func oneIsBehind() async throws {
    let scene = try Inspections()
    try await scene.start()
    let anna = try scene.device("anna")
    let ben = try scene.device("ben")
    for device in [anna, ben] { try await device.sync() }
    try ben.sqlite().execute("UPDATE establishment SET name = 'of ben' WHERE id = \(Inspections.waiting)")
    try await ben.sync()
    try anna.sqlite().execute(Days.edit(2))
    try await anna.sync()
    try await scene.backup("night")
    try anna.sqlite().execute(Days.edit(3))
    try await anna.sync()
    try anna.sqlite().execute(Unsynced.statements)
    try ben.sqlite().execute("UPDATE establishment SET min_inspections_per_year = 7 WHERE id = \(Inspections.waiting)")
    try await scene.restore("night")
    let behind = try await ben.sync()
    #expect(behind["outcome"] == "synchronized")
    #expect(behind["recovery"] == nil)
    let ahead = try await anna.sync()
    #expect(ahead["outcome"] == "recovered")
    #expect(ahead["recovery"]["kept"] == 4)
    try await ben.sync()
    try scene.expectEqual(anna, ben)
    let row = try scene.place.server.sqlite().rows(
      "SELECT name, min_inspections_per_year FROM establishment WHERE id = \(Inspections.waiting)")
    #expect(row == [["Edited offline", 7]])
    #expect(try await anna.kept() == [])
    #expect(try scene.place.server.sqlite().integer("SELECT count(*) FROM inspection WHERE id = 900003") == 1)
  }

  @Test("The server is restored twice: the device recovers twice, and both losses come back")
  func restoredTwice() async throws {
    let scene = try Inspections(files: try await Days.files())
    let device = try scene.device()
    for time in [3, 2] {
      try await scene.restoreStopped("time\(time)")
      try await scene.start()
      #expect(try await device.sync()["outcome"] == "recovered")
      try scene.expectEqual(device)
      // The second restore takes back what the first recovery sent, and the device offers it again.
      #expect(try Unsynced.found(in: scene.place.server.database) == 4)
      #expect(try Days.found(in: scene.place.server.database) == 4)
      #expect(try await scene.place.server.stop().code == 0)
    }
    #expect(try await device.kept() == [])
    #expect(try await device.salvor("recover", "--list", "--json").json["recoveries"].items.count == 2)
  }

  // MARK: Replaced, trimmed, asked for

  @Test("The server is replaced by an empty one: manual, with exit code 5, until recover is called with the token")
  func replaced() async throws {
    let scene = try Inspections(files: try await Days.files())
    for suffix in ["", ".salvor-side"] {
      try FileManager.default.removeItem(atPath: scene.place.server.database + suffix)
    }
    try await scene.start()
    let device = try scene.device()
    let before = try contents(device.database, Inspections.tables)
    let report = try await device.sync(expecting: 5)
    #expect(report["outcome"] == "recovery-required")
    #expect(report["recovery"]["reason"] == "server-replaced")
    #expect(try contents(device.database, Inspections.tables) == before)
    #expect(try contents(scene.place.server.database, Inspections.tables).values.allSatisfy(\.isEmpty))
    let status = try await device.status()["recovery"]
    #expect(status["state"] == "required")
    #expect(status["backup"].string != nil)
    let token = try #require(status["token"].string)
    #expect(try await device.salvor("recover", "--token", "x", "--strategy", "recreate").code == 2)
    let done = try await device.salvor("recover", "--token", token, "--strategy", "recreate", "--json")
    #expect(done.code == 0, "\(done.err)")
    #expect(try done.json["recovery"]["discarded"] == 4)
    try await scene.expectSettled(device, unsynced: nil, drafts: 0)
    #expect(try await device.kept().isSuperset(of: Unsynced.discarded))
  }

  @Test("Tombstones are trimmed: the device is compared, only what differs moves, and its changes are kept")
  func trimmed() async throws {
    let scene = try Inspections(server: "retention: { tombstones: \"1ms\" },")
    try await scene.start()
    let device = try scene.device()
    let first = try await device.sync()
    try device.sqlite().execute(Unsynced.statements)
    try scene.place.server.sqlite().execute(
      "DELETE FROM infraction WHERE inspection_id = 104635721 AND line = 2; UPDATE inspection SET date = '2020-02-02' WHERE id = 104635645"
    )
    // Another device's sync numbers what was written; trimming comes with each start of the server.
    let ben = try scene.device("ben")
    try await ben.sync()
    try scene.place.server.sqlite().execute("UPDATE inspection SET date = '2020-03-03' WHERE id = 104635645")
    try await ben.sync()
    _ = try await scene.place.server.stop()
    try await scene.start()
    let report = try await device.sync()
    #expect(report["recovery"]["reason"] == "history-trimmed")
    #expect(report["recovery"]["lost"] == 0)
    #expect(report["recovery"]["kept"] == 4)
    #expect((report["bytesReceived"].integer ?? .max) < (first["bytesReceived"].integer ?? 0))
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
  }

  @Test("remotes reset: the device recovers once, in place, and loses nothing")
  func operatorRequested() async throws {
    let scene = try Inspections(files: try await Days.files())
    try await scene.start()
    let device = try scene.device()
    let id = try #require(try await device.status()["remoteID"].string)
    #expect(try await scene.place.server.salvor("remotes", "reset", id).code == 0)
    let report = try await device.sync()
    #expect(report["recovery"]["reason"] == "operator-requested")
    #expect(report["recovery"]["discarded"] == 0)
    #expect(try await device.sync()["recovery"] == nil)
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
  }
}

extension Inspections {
  /// The next sync is quiet, both sides have the same rows, and of the unsynced work so much is on the server.
  ///
  /// - Parameter unsynced: nil: not asked.
  func expectSettled(
    _ device: Device, unsynced: Int64?, drafts: Int, at location: SourceLocation = #_sourceLocation
  ) async throws {
    let quiet = try await device.sync()
    #expect(quiet["outcome"] == "synchronized", sourceLocation: location)
    #expect(quiet["recovery"] == nil, sourceLocation: location)
    #expect(quiet["uploaded"] == 0, sourceLocation: location)
    let status = try await device.status()
    #expect(status["queued"] == 0, sourceLocation: location)
    #expect(status["recovery"]["state"] == "none", sourceLocation: location)
    try expectEqual(device, at: location)
    if let unsynced { #expect(try Unsynced.found(in: place.server.database) == unsynced, sourceLocation: location) }
    #expect(try device.sqlite().rows("SELECT * FROM draft").count == drafts, sourceLocation: location)
  }
}
