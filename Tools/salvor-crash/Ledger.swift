import SQLiteSupport
import SalvorModel

/// What the devices' applications have written, to be found again: the newest change of each row.
struct Ledger {
  struct Entry: Hashable {
    var table: String
    var device: Int
    /// A text that no other change has; nil: the row was deleted.
    var body: String?
  }

  private(set) var newest: [String: Entry] = [:]
  private(set) var changes = 0
  private var number = 0

  /// One transaction of a device's application: rows of its own made, changed, deleted.
  mutating func write(_ device: Int, on path: String, _ random: inout some RandomNumberGenerator) throws {
    let connection = try SQLiteConnection(path, busyTimeoutMilliseconds: 60_000)
    try connection.execute("PRAGMA foreign_keys = ON")
    let planned = (0..<Int.random(in: 1...4, using: &random)).map { _ in Int.random(in: 0..<10, using: &random) }
    var written: [String: Entry] = [:]
    var known = newest.filter { $0.value.device == device && $0.value.body != nil }.keys.sorted()
    try connection.transaction(.immediate) {
      for kind in planned {
        number += 1
        let body = "body \(device)-\(number)."
        let own = known.randomElement(using: &random)
        if kind < 4 || own == nil {
          let site = "s\(Int.random(in: 0..<Place.rowsAtFirst, using: &random))"
          let isVisit = try kind < 2 && connection.integer("SELECT 1 FROM site WHERE id = ?1", .text(site)) != nil
          let id = "\(isVisit ? "v" : "n")\(device)-\(number)"
          if isVisit {
            try connection.run("INSERT INTO visit VALUES (?1, ?2, ?3)", .text(id), .text(site), .text(body))
          } else {
            try connection.run("INSERT INTO site VALUES (?1, ?2)", .text(id), .text(body))
          }
          written[id] = Entry(table: isVisit ? "visit" : "site", device: device, body: body)
          known.append(id)
        } else if let own, let table = (written[own] ?? newest[own])?.table {
          let isDelete = kind == 9
          if isDelete {
            try connection.run("DELETE FROM \(table) WHERE id = ?1", .text(own))
          } else {
            try connection.run("UPDATE \(table) SET body = ?2 WHERE id = ?1", .text(own), .text(body))
          }
          // A recovery may have taken the row away: then nothing was changed.
          if try connection.integer("SELECT changes()") == 1 {
            written[own] = Entry(table: table, device: device, body: isDelete ? nil : body)
            if isDelete { known.removeAll { $0 == own } }
          }
        }
      }
    }
    newest.merge(written) { $1 }
    changes += written.count
  }

  /// Changes that are neither on the server, as a row or as a conflict version (what a restore took is offered, whatever the strategy,
  /// and the server's row may be a newer one), nor in their device's archive. Where devices heal, the archive counts for deletes alone
  /// whose row the server had lost before they were sent.
  func lost(_ place: Place) throws -> [String] {
    let devices = try place.strategies.indices.map { try SQLiteConnection(place.database($0)) }
    var bodies: [String: [Value: String]] = [:]
    for table in Place.tables {
      bodies[table] = try Dictionary(
        uniqueKeysWithValues: place.server.rows(of: table).map { ($0[0], $0.last?.string ?? "") })
    }
    return try newest.sorted { $0.key < $1.key }.compactMap { id, entry in
      let found = bodies[entry.table]?[.text(Array(id.utf8))]
      if found == entry.body { return nil }
      let device = devices[entry.device]
      let isKept =
        try place.server.hasConflict(entry.table, id, entry.body)
        || (place.heals ? isDeleteOfLostRow(id, entry, device) : isAccountedFor(id, entry, device))
      if isKept { return nil }
      return
        "\(entry.table) \(id) of device \(entry.device): \(entry.body ?? "deleted"); the server has \(found ?? "none")"
    }
  }

  /// It waits for a person to reapply it: a later restore may bring the row back (docs/architecture/recovery.md).
  private func isDeleteOfLostRow(_ id: String, _ entry: Entry, _ device: SQLiteConnection) throws -> Bool {
    guard entry.body == nil else { return false }
    return try device.integer(
      """
      SELECT 1 FROM salvor_error_archive WHERE "table" = ?1 AND "key" = ?2 AND operation = 'delete' AND state = 'kept'
        AND reason = 'row-gone'
      """, .text(entry.table), .text(id)) != nil
  }

  private func isAccountedFor(_ id: String, _ entry: Entry, _ device: SQLiteConnection) throws -> Bool {
    try device.integer(
      """
      SELECT 1 FROM salvor_error_archive
      WHERE "table" = ?1 AND ("key" = ?2 OR instr(CAST("key" AS TEXT), '"' || ?2 || '"') > 0)
        AND (state IN ('refused', 'blocked')
          OR CASE WHEN ?3 IS NULL THEN operation = 'delete' ELSE instr(CAST("after" AS TEXT), ?3) > 0 END)
      """, .text(entry.table), .text(id), entry.body.map { .text($0) } ?? .null) != nil
  }

  /// Rows that differ between a device and the server, and what SQLite itself finds wrong.
  static func differences(_ place: Place) throws -> [String] {
    var found: [String] = []
    var expected: [String: [[Value]]] = [:]
    for table in Place.tables { expected[table] = try place.server.rows(of: table) }
    for device in place.strategies.indices {
      let own = try SQLiteConnection(place.database(device))
      for table in Place.tables {
        let inError = try own.rows(
          "SELECT CAST(\"key\" AS TEXT) FROM salvor_error_archive WHERE \"table\" = ?1 AND state IN ('refused', 'blocked')",
          .text(table))
        func standing(_ rows: [[Value]]) -> [[Value]] { rows.filter { row in !inError.contains([row[0]]) } }
        let rows = try own.rows("SELECT * FROM \(table) ORDER BY id")
        if standing(rows) != standing(expected[table] ?? []) { found.append("\(table) differs on device \(device)") }
      }
      for row in try own.rows("PRAGMA integrity_check") where row != ["ok"] { found.append("device \(device): \(row)") }
      for row in try own.rows("PRAGMA foreign_key_check") { found.append("device \(device): foreign key \(row)") }
    }
    return try found + place.server.problems()
  }
}
