import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Devices whose own file went back or was copied, and what stands in a strategy's way (semantics 5, 6, 9).
@Suite(.serialized) struct RecoveryDeviceTests {
  // MARK: Client restored, clones

  @Test("A device restored from a copied file recovers in place under a new remote ID; nothing is applied twice")
  func copiedFile() async throws {
    let scene = try Inspections()
    try await scene.start()
    let device = try scene.device()
    try await device.sync()
    // A counter: applied twice, it would show. It waits in the copy, and is uploaded before the copy is put back.
    try device.sqlite().execute(
      "UPDATE establishment SET min_inspections_per_year = min_inspections_per_year + 1 WHERE id = \(Inspections.edited)"
    )
    let copy = try device.files()
    try await device.sync()
    try scene.place.server.sqlite().execute(
      "UPDATE establishment SET min_inspections_per_year = 100 WHERE id = \(Inspections.edited)")
    try device.sqlite().execute(Days.edit(3).split(separator: ";")[1].description)
    try await device.sync()
    let old = try await device.status()["remoteID"]
    try device.putBack(copy)
    try device.sqlite().execute(Unsynced.statements)
    let report = try await device.sync()
    #expect(report["outcome"] == "recovered")
    #expect(report["recovery"]["reason"] == "client-rewound")
    #expect(report["recovery"]["strategy"] == "recover-unsynced-changes")
    #expect(try await device.status()["remoteID"] != old)
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
    let edited = try device.sqlite().rows(
      "SELECT min_inspections_per_year FROM establishment WHERE id = \(Inspections.edited)")
    #expect(edited == [[100]])
    #expect(try device.sqlite().rows("SELECT id FROM inspection WHERE id = 900003").count == 1)
  }

  @Test("A damaged file is left to a person; recreate, by hand or where it is named for it, makes a new one")
  func damagedFile() async throws {
    let scene = try Inspections()
    try await scene.start()
    for recovery in ["", #"reasons: { "local-corruption": "recreate" }"#] {
      let device = try scene.device(recovery.isEmpty ? "anna" : "ben", recovery: recovery)
      try await device.sync()
      for suffix in ["-wal", "-shm"] { try? FileManager.default.removeItem(atPath: device.database + suffix) }
      let rubbish = Data(repeating: 0x2E, count: 20_000)
      try rubbish.write(to: URL(fileURLWithPath: device.database))
      if recovery.isEmpty {
        let output = try await device.salvor("sync", "--json")
        #expect(output.code == 5)
        #expect(try output.json["outcome"] == "recovery-required")
        #expect(try output.json["recovery"]["reason"] == "local-corruption")
        #expect(try output.json["error"]["name"] == "storage-corrupt")
        #expect(try Data(contentsOf: URL(fileURLWithPath: device.database)) == rubbish)
        #expect(try await device.salvor("recover", "--strategy", "recreate").code == 0)
      } else {
        let report = try await device.sync()
        #expect(report["outcome"] == "recovered")
        #expect(report["recovery"]["strategy"] == "recreate")
      }
      try scene.expectEqual(device)
      #expect(try await device.salvor("backups", "--json").json["backups"].items.count == 1)
    }
  }

  @Test("A damaged file hides no backups: they are listed, and a copy takes the damaged file's place")
  func backupsOfADamagedFile() async throws {
    let scene = try Inspections()
    try await scene.start()
    let device = try scene.device(recovery: #"reasons: { "operator-requested": "discard-unsynced-changes" }"#)
    try await device.sync()
    try device.sqlite().execute(Unsynced.statements)
    #expect(try await device.salvor("recover", "--strategy", "copy-and-resubscribe").code == 0)
    let copy = try #require(try await device.salvor("backups", "--json").json["backups"].items.first?["id"].string)
    for suffix in ["-wal", "-shm"] { try? FileManager.default.removeItem(atPath: device.database + suffix) }
    let rubbish = Data(repeating: 0x2E, count: 20_000)
    try rubbish.write(to: URL(fileURLWithPath: device.database))
    let listed = try await device.salvor("backups", "--json")
    #expect(listed.code == 0)
    #expect(try listed.json["backups"].items.map { $0["id"].string } == [copy])
    let restored = try await device.salvor("backups", "restore", copy, "--json")
    #expect(restored.code == 0, "\(restored.err)")
    // The damaged file is kept, and is no copy that could be put back.
    let aside = try #require(try restored.json["copy"].string)
    #expect(
      try await device.salvor("backups", "--json").json["backups"].items.map { $0["id"].string } == [aside, copy])
    #expect(try await device.salvor("backups", "restore", aside).code != 0)
    // What the copy had not sent goes up.
    let report = try await device.sync()
    #expect(report["outcome"] == "recovered")
    #expect(report["recovery"]["reason"] == "client-rewound")
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
  }

  @Test(
    "backups restore: the database as it was before the recovery, and the next sync recovers it again",
    arguments: [#"strategy: "recover-unsynced-changes""#, #"strategy: "recreate""#])
  func backupsRestore(recovery: String) async throws {
    let scene = try Inspections(files: try await Days.filesAtTime2())
    try await scene.start()
    let device = try scene.device(recovery: recovery)
    let all = Inspections.tables + ["draft"]
    let before = try contents(device.database, all)
    let id = try #require(try await device.sync()["recovery"]["backup"].string)
    // In place, what the server lost is offered again, and stays.
    #expect((try contents(device.database, all) == before) == !recovery.contains("recreate"))
    let listed = try await device.salvor("backups", "--json").json["backups"][0]
    #expect(listed["content"] == (recovery.contains("recreate") ? "copy" : "before-images"))
    #expect(try await device.salvor("backups", "restore", id).code == 0)
    let back = try contents(device.database, all)
    for table in all { #expect(back[table] == before[table], "\(table)") }
    #expect(try damage(device.database) == [])
    let again = try await device.sync()
    #expect(again["outcome"] == "recovered")
    #expect(try Unsynced.found(in: scene.place.server.database) == (recovery.contains("recreate") ? 0 : 4))
    try scene.expectEqual(device)
    #expect(try await device.salvor("backups", "restore", "nowhere").code != 0)
  }

  @Test("Two clones take turns: the second gets a remote ID of its own, nothing is sent twice and nothing is lost")
  func clones() async throws {
    let scene = try Inspections()
    try await scene.start()
    let anna = try scene.device("anna")
    try await anna.sync()
    try anna.sqlite().execute(
      "UPDATE establishment SET min_inspections_per_year = min_inspections_per_year + 1 WHERE id = \(Inspections.edited)"
    )
    let counter = try contents(anna.database, ["establishment"])
    let ben = try scene.device("ben")
    try ben.putBack(try anna.files())
    for round in 0..<2 {
      for (place, device) in [anna, ben].enumerated() {
        try device.sqlite().execute(
          "INSERT INTO inspection VALUES (\(910_000 + 10 * place + round), \(Inspections.edited), '2026-02-01', 1)")
        let report = try await device.sync()
        let isSecond = place == 1 && round == 0
        #expect(report["recovery"]["reason"] == (isSecond ? "client-rewound" : nil))
      }
    }
    for device in [anna, ben] { try await device.sync() }
    try scene.expectEqual(anna, ben)
    #expect(try contents(scene.place.server.database, ["establishment"]) == counter)
    let made = try scene.place.server.sqlite().rows(
      "SELECT id FROM inspection WHERE id BETWEEN 910000 AND 910099 ORDER BY id")
    #expect(made == [[910_000], [910_001], [910_010], [910_011]])
    #expect(try await anna.status()["remoteID"] != ben.status()["remoteID"])
  }

  // MARK: Upload, then recreate

  @Test("upload-then-recreate waits, with exit code 5, until the administrator has deleted the remote ID")
  func waitsForTheAdministrator() async throws {
    let scene = try Inspections(files: try await Days.filesAtTime2())
    try await scene.start()
    let device = try scene.device(recovery: #"strategy: "upload-then-recreate""#)
    let id = try #require(try await device.status()["remoteID"].string)
    let before = try contents(device.database, Inspections.tables)
    for _ in 0..<2 {
      let report = try await device.sync(expecting: 5)
      #expect(report["outcome"] == "recovery-required")
      #expect(report["error"]["message"].string?.contains("salvor remotes delete \(id)") == true)
      #expect(try contents(device.database, Inspections.tables) == before)
      let status = try await device.status()["recovery"]
      #expect(status["state"] == "unfinished")
      #expect(status["step"] == "forget")
    }
    #expect(try await scene.place.server.salvor("remotes", "delete", id).code == 0)
    let report = try await device.sync()
    #expect(report["outcome"] == "recovered")
    #expect(report["uploaded"] == 7, "what waited, and what the server had lost")
    #expect(report["healed"] == 3)
    #expect(report["recovery"]["strategy"] == "upload-then-recreate")
    #expect(try await device.status()["remoteID"].string != id)
    try await scene.expectSettled(device, unsynced: 4, drafts: 0)
  }

  // MARK: What stands in the way

  @Test("A destructive schema change: in place falls through to manual, with table and column named; recreate succeeds")
  func schemaIncompatible() async throws {
    let scene = try Inspections()
    try await scene.start()
    let old = try String(
      contentsOf: scene.place.directory.appendingPathComponent("schema.json5"), encoding: .utf8)
    let inPlace = try scene.device("anna")
    for name in ["anna", "ben"] { try await scene.device(name).sync() }
    try inPlace.sqlite().execute(Unsynced.statements)
    _ = try await scene.place.server.stop()
    try scene.place.server.sqlite().execute("ALTER TABLE inspection RENAME COLUMN date TO visited_on")
    try scene.place.write(
      old.replacingOccurrences(of: "version: 1,", with: "version: 2,")
        .replacingOccurrences(of: "date: \"text\"", with: "visited_on: \"text\""), to: "schema.json5")
    try await scene.start()
    // The devices' own schema file is still the old one.
    func device(_ name: String, _ recovery: String) throws -> Device {
      try scene.place.device(
        name, url: scene.proxy.url, credentials: "{ principal: \"anna\" }", schema: old, recovery: "{ \(recovery) }")
    }
    let anna = try device("anna", "")
    let before = try contents(anna.database, Inspections.tables)
    let stopped = try await anna.sync(expecting: 5)
    #expect(stopped["recovery"]["reason"] == "schema-incompatible")
    #expect(stopped["recovery"]["fellBackFrom"] == "recover-unsynced-changes")
    #expect(stopped["recovery"]["strategy"] == "manual")
    for name in ["inspection", "date", "visited_on"] {
      #expect(stopped["error"]["message"].string?.contains(name) == true)
    }
    #expect(try contents(anna.database, Inspections.tables) == before)
    let ben = try device("ben", #"reasons: { "schema-incompatible": "recreate" }"#)
    let recreated = try await ben.sync()
    #expect(recreated["outcome"] == "recovered")
    #expect(recreated["recovery"]["strategy"] == "recreate")
    try scene.expectEqual(ben)
    try ben.sqlite().execute("UPDATE inspection SET visited_on = '2026-03-03' WHERE id = 104635721")
    try await ben.sync()
    try scene.expectEqual(ben)
    #expect(
      try scene.place.server.sqlite().rows("SELECT visited_on FROM inspection WHERE id = 104635721") == [["2026-03-03"]]
    )
    let token = try #require(try await anna.status()["recovery"]["token"].string)
    let done = try await anna.salvor("recover", "--token", token, "--strategy", "copy-and-resubscribe", "--json")
    #expect(done.code == 0, "\(done.err)")
    try await scene.expectSettled(anna, unsynced: nil, drafts: 1)
    #expect(try await anna.kept() == Unsynced.discarded)
  }

  @Test("clientRecoveryEnabled: false: recover-unsynced-changes falls through to manual, or-discard discards")
  func clientRecoveryDisabled() async throws {
    for isDiscarding in [false, true] {
      let scene = try Inspections(
        server: "recovery: { clientRecoveryEnabled: false },", files: try await Days.filesAtTime2())
      try await scene.start()
      let name = isDiscarding ? "recover-or-discard-unsynced-changes" : "recover-unsynced-changes"
      let device = try scene.device(recovery: "strategy: \"\(name)\"")
      let report = try await device.sync(expecting: isDiscarding ? 0 : 5)
      #expect(report["recovery"]["fellBackFrom"].string == name)
      #expect(report["recovery"]["strategy"] == (isDiscarding ? "discard-unsynced-changes" : "manual"))
      #expect(report["notices"].items.contains { $0.string?.contains("clientRecoveryEnabled") == true })
      guard isDiscarding else {
        #expect(try Unsynced.found(in: device.database) == 4)
        continue
      }
      #expect(report["recovery"]["discarded"] == 4)
      #expect(try await device.kept() == Unsynced.discarded)
      #expect(try Days.found(in: scene.place.server.database) == 4, "what was acknowledged comes back")
      try await scene.expectSettled(device, unsynced: 0, drafts: 1)
    }
  }

  // MARK: The application's connection

  @Test(
    "A connection that is open over a recovery lives on, and sees one change",
    .enabled(if: Built.has("python3")),
    arguments: ["recover-unsynced-changes", "discard-unsynced-changes", "recreate", "copy-and-resubscribe"])
  func openConnection(strategy: String) async throws {
    let scene = try Inspections(files: try await Days.filesAtTime2())
    try await scene.start()
    let device = try scene.device(recovery: "strategy: \"\(strategy)\"")
    // It reads the rows over and over, and prints each state that it has not seen in the reading before.
    let script = """
      import sqlite3, sys
      db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
      last = None
      while True:
          db.execute("BEGIN")
          state = tuple(db.execute("SELECT count(*), total(id), group_concat(min_inspections_per_year) FROM establishment").fetchone()) \\
              + tuple(db.execute("SELECT count(*), total(id) FROM inspection").fetchone()) \\
              + tuple(db.execute("SELECT count(*), total(line) FROM infraction").fetchone())
          isLast = db.execute("SELECT 1 FROM inspection WHERE id = 999999").fetchone()
          db.execute("COMMIT")
          if state != last:
              last = state
              print("state", state[3], state[5], hash(state), flush=True)
          if isLast:
              break
      db.execute("UPDATE establishment SET name = 'by the same connection' WHERE id = \(Inspections.edited)")
      """
    let application = try ChildProcess(
      "python3", ["-c", script, device.database], directory: scene.place.directory)
    _ = try await application.line(after: "state ")
    #expect(try await device.sync()["outcome"] == "recovered")
    #expect(application.isRunning)
    try device.sqlite().execute(
      "INSERT INTO inspection VALUES (999999, \(Inspections.edited), '2026-04-01', 1)")
    let ended = await application.output()
    #expect(ended.code == 0, "\(ended.err)")
    // Before, after the recovery, and with the row that ended it. Where requests are kept, and what the server lost is offered
    // again, nothing is to be seen of the recovery.
    let states = strategy.hasPrefix("recover-") ? 2 : 3
    #expect(ended.out.split(separator: "\n").count == states, "\(ended.out)")
    try await device.sync()
    try scene.expectEqual(device)
    let name = try scene.place.server.sqlite().rows("SELECT name FROM establishment WHERE id = \(Inspections.edited)")
    #expect(name == [["by the same connection"]])
  }
}
