import Foundation
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorWire
import Testing

/// A device by files has the tables of a device by rows, on real data.
@Suite("Snapshots: equal digests on the examples")
struct SnapshotDigestTests {
  private static let examples =
    URL(fileURLWithPath: #filePath).deletingLastPathComponent().appendingPathComponent("../../Examples").standardized

  /// DineSafe's rows, into tables that are there.
  private static let load = """
    import csv, os, sqlite3, sys
    database = sqlite3.connect(sys.argv[1])
    for table in ["establishment_type", "inspection_status", "severity", "action", "outcome", "infraction_type", "establishment",
                  "establishment_address", "inspection", "infraction"]:
        with open(os.path.join(sys.argv[2], "dinesafe/data/small", table + ".csv"), encoding="utf-8", newline="") as file:
            rows = [[value if value != "" else None for value in row.values()] for row in csv.DictReader(file)]
        database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    database.commit()
    """

  private func python(_ arguments: [String]) throws {
    let program = Process()
    program.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    program.arguments = ["python3"] + arguments
    try program.run()
    program.waitUntilExit()
    #expect(program.terminationStatus == 0, "\(arguments)")
  }

  private func digests(_ path: String) throws -> [String: TableDigest] {
    let connection = try SQLiteConnection(path)
    let names = try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    var found: [String: TableDigest] = [:]
    for name in names.compactMap({ $0[0].string }) {
      let rows = try connection.rows("SELECT * FROM \(quotedList([name]))")
      let sum = rows.reduce(UInt64(0)) { $0 &+ RowDigest($1).value }
      found[name] = TableDigest(table: name, count: Int64(rows.count), digest: RowDigest.text(sum))
    }
    return found
  }

  private func fleet(_ example: String) async throws -> Fleet {
    let schema = Self.examples.appendingPathComponent("\(example)/schema.json5")
    let fleet = try Fleet(
      schema: try String(contentsOf: schema, encoding: .utf8),
      serverOptions:
        "authentication: { module: \"none\" }, snapshots: { minRows: 1, personal: true, maxBehind: 100 },")
    try await fleet.start()
    return fleet
  }

  private func compare(_ fleet: Fleet, _ person: String, files: Int) async throws -> Device {
    let byRows = try fleet.device("\(person)-rows", credentials: "principal: \"\(person)\"")
    try await byRows.sync()
    try await until { fleet.snapshots.count >= files }
    let byFile = try fleet.device("\(person)-file", credentials: "principal: \"\(person)\"")
    let report = try await byFile.sync()
    #expect(report.error == nil)
    #expect(report.snapshots > 0)
    let found = try digests(byFile.path)
    #expect(found == (try digests(byRows.path)))
    #expect(found.values.contains { $0.count > 0 })
    return byFile
  }

  @Test("DineSafe: every table by files is the table by rows, and the server's")
  func dinesafe() async throws {
    let fleet = try await fleet("dinesafe")
    try python(["-c", Self.load, fleet.serverPath, Self.examples.path])
    let device = try await compare(fleet, "anna", files: 2)
    let server = try digests(fleet.serverPath)
    for (name, digest) in try digests(device.path) where name != "draft" { #expect(server[name] == digest) }
    #expect(server["inspection"]?.count ?? 0 > 500)
  }

  @Test("field inspections: each person's tables by files are those by rows, and nobody else's rows are in them")
  func fieldInspection() async throws {
    let fleet = try await fleet("field-inspection")
    try python([Self.examples.appendingPathComponent("field-inspection/map.py").path, fleet.serverPath])
    let anna = try await compare(fleet, "anna", files: 4)
    let ben = try await compare(fleet, "ben", files: 6)
    for (device, person) in [(anna, "anna"), (ben, "ben")] {
      let inspections = try device.connection().rows("SELECT DISTINCT PrincipalID FROM Inspection")
      #expect(inspections == [[.text(person)]])
    }
  }
}
