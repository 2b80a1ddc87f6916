import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// `salvor verify` as a person at a device uses it: what differs is named, and repaired.
@Suite struct VerifyTests {
  private func scene(sites: Int = 30) async throws -> (Workspace, Device) {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute(
      """
      INSERT INTO severity VALUES (1, 'minor'), (2, 'crucial');
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(sites))
      INSERT INTO site SELECT 's' || i, 'site ' || i, i % 50 FROM n;
      INSERT INTO visit VALUES ('v1', 's1', 1, 'note', 2.5, x'00ff');
      """)
    let device = try place.device("anna", url: url)
    try await device.sync()
    return (place, device)
  }

  /// Writes into the device's tables without any trigger: neither captured, nor found by looking at the triggers.
  private func silently(_ device: Device, _ sql: String) throws {
    let connection = try device.sqlite()
    connection.triggersEnabled = false
    try connection.execute(sql)
  }

  @Test("Equal sides: exit code 0, every table with its rows; the server's newest rows come first")
  func equal() async throws {
    let (place, device) = try await scene()
    try place.server.sqlite().execute("INSERT INTO site VALUES ('new', 'made meanwhile', 1)")
    let output = try await device.salvor("verify", "--json")
    #expect(output.code == 0)
    let report = try output.json
    #expect(report["equal"] == true)
    #expect(report["differences"].items.isEmpty)
    #expect(report["tables"].items.map { $0["name"].string } == Workspace.tables)
    #expect(report["tables"][1]["rows"] == 31)
    #expect(report["tables"][1]["serverRows"] == 31)
    let text = try await device.salvor("verify", "--group", "reference")
    #expect(text.code == 0)
    #expect(text.out.contains("severity"))
    #expect(!text.out.contains("visit"))
    #expect(text.out.contains("equal"))
  }

  @Test("Rows that were altered without triggers are named with key and columns, values only where they are asked for")
  func differences() async throws {
    // Large enough for ranges of keys.
    let (place, device) = try await scene(sites: 3_000)
    try silently(
      device,
      "UPDATE site SET name = 'altered' WHERE id = 's1000'; DELETE FROM site WHERE id = 's2000'; INSERT INTO site VALUES ('extra', 'x', 1); UPDATE visit SET photo = x'00' WHERE id = 'v1'"
    )
    let before = try contents(device.database)
    let output = try await device.salvor("verify", "--json")
    #expect(output.code == 1)
    let report = try output.json
    #expect(report["equal"] == false)
    let found = report["differences"].items.map { item in
      "\(item["table"].string ?? "") \(item["key"][0].string ?? "") \(item["how"].string ?? "") \(item["columns"].items.compactMap(\.string).joined(separator: ","))"
    }
    #expect(
      found == [
        "site extra extra id,name,seats", "site s1000 changed name", "site s2000 missing id,name,seats",
        "visit v1 changed photo",
      ])
    #expect(!output.out.contains("altered"))
    #expect(try contents(device.database) == before, "nothing is changed")
    let text = try await device.salvor("verify", "--table", "site", "--values")
    #expect(text.code == 1)
    #expect(text.out.contains("only here") && text.out.contains("missing here"))
    #expect(text.out.contains("altered") && text.out.contains("site 1000"))
    #expect(!text.out.contains("v1"))
    #expect(text.err.contains("--repair"))
    #expect(try place.server.sqlite().rows("SELECT count(*) FROM site") == [[3_000]])
  }

  @Test("--repair brings just those rows to the server's state, dirty ones excepted, and keeps what it changes")
  func repair() async throws {
    let (place, device) = try await scene()
    // Refused, so that it stays dirty: nobody may write this table here.
    try device.sqlite().execute("UPDATE severity SET name = 'mine' WHERE id = 1")
    try await device.sync(expecting: 6)
    try silently(
      device,
      "UPDATE site SET name = 'altered' WHERE id = 's10'; DELETE FROM visit; INSERT INTO site VALUES ('extra', 'x', 1)")
    let altered = try contents(device.database)
    let output = try await device.salvor("verify", "--repair", "--json")
    #expect(output.code == 0)
    let report = try output.json
    #expect(report["equal"] == true)
    #expect(report["tables"][0]["dirty"] == 1)
    #expect(report["repair"]["upserts"] == 2)
    #expect(report["repair"]["deletes"] == 1)
    #expect(try contents(device.database, ["site", "visit"]) == contents(place.server.database, ["site", "visit"]))
    #expect(try device.sqlite().rows("SELECT name FROM severity WHERE id = 1") == [["mine"]])
    #expect(try damage(device.database) == [])
    let backup = try #require(report["repair"]["backup"].string)
    let backups = try await device.salvor("backups", "--json").json["backups"]
    #expect(backups[0]["id"].string == backup)
    #expect(try await device.salvor("recover", "--report", backup).out.contains("verify-repair"))
    #expect(try await device.salvor("backups", "restore", backup).code == 0)
    #expect(try contents(device.database) == altered)
  }

  @Test("What cannot be verified is said by name; a server that is not there is exit code 3")
  func errors() async throws {
    let (place, device) = try await scene()
    for arguments in [["--group", "visit"], ["--table", "sites"], ["--nothing"]] {
      let output = try await salvor(["verify"] + arguments, in: device.directory)
      #expect(output.code == 2, "\(arguments)")
    }
    await place.server.killAndWait()
    #expect(try await device.salvor("verify").code == 3)
  }
}
