import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing
import TokenAuthentication

extension EditHistoryReplay {
  // MARK: Every side equal

  /// The server has the expected rows, value for value.
  func expectServerRows() throws {
    let connection = try SQLiteConnection(serverPath)
    var found = 0
    for (place, table) in history.tables.enumerated() {
      try connection.query("SELECT \(quotedList(table.columns.map(\.name))) FROM \(quoted(table.name))") {
        let row = $0.values()
        let number = history.rows.number(place, table.key(of: row))
        #expect(row == expected.rows[number], "\(table.name) \(table.key(of: row))")
        found += 1
        return true
      }
    }
    #expect(found == expected.rows.rows.count)
  }

  /// Every device has the server's rows. One with an archive shows its own changes in the rows of its archive, and nowhere
  /// else.
  func expectDevices() throws {
    for writer in writers { try expectRows(of: writer) }
    #expect(try SQLiteConnection(serverPath).scalar("PRAGMA integrity_check") == "ok")
  }

  /// Once a person has deleted what is in its archive, a device has the server's rows and nothing else.
  func expectDevicesWithoutArchives() async throws {
    for writer in writers where !writer.refused.isEmpty {
      let client = try await writer.device.open()
      let report = try await client.remove(.archive(nil))
      #expect(report.requests.count == writer.refused.count, "\(writer.device.name)")
      let status = try await client.status()
      #expect(status.inError == 0 && status.displaced == 0 && status.queued == 0, "\(writer.device.name)")
      await writer.device.close()
      writer.refused = []
      try expectRows(of: writer)
    }
  }

  private func expectRows(of writer: Writer) throws {
    let connection = try writer.device.connection()
    try connection.run("ATTACH ? AS server", .text(serverPath))
    let archived = Set(writer.refused.flatMap(\.request.changes).map(\.row))
    for (place, table) in history.tables.enumerated() {
      let differing =
        try connection.rows(differences(table, "main", "server"))
        + connection.rows(differences(table, "server", "main"))
      let strange = differing.filter { !archived.contains(history.rows.number(place, $0)) }
      #expect(strange == [], "\(table.name) on \(writer.device.name)")
    }
    #expect(try connection.scalar("PRAGMA main.integrity_check") == "ok", "\(writer.device.name)")
    connection.close()
  }

  /// The keys of rows of one database that the other one does not have just so.
  private func differences(_ table: Table, _ database: String, _ other: String) -> String {
    let name = quoted(table.name)
    let key = table.primaryKey.map { "b.\(quoted($0)) = a.\(quoted($0))" }.joined(separator: " AND ")
    let same = table.columns.map { "b.\(quoted($0.name)) IS a.\(quoted($0.name))" }.joined(separator: " AND ")
    return """
      SELECT \(quotedList(table.primaryKey)) FROM \(database).\(name) AS a WHERE NOT EXISTS
      (SELECT 1 FROM \(other).\(name) AS b WHERE \(key) AND \(same))
      """
  }

  // MARK: None lost

  /// Every archive has every change of every request that was refused, with its values, and nothing else.
  /// - Returns: how many changes they have.
  func expectArchives() async throws -> Int {
    var total = 0
    for writer in writers {
      let client = try await writer.device.open()
      let status = try await client.status()
      #expect(status.queued == 0 && status.kept == 0, "\(writer.device.name)")
      var found: [KeptChange: String] = [:]
      var last: RequestID?
      while true {
        let entries = try await client.errorArchive(after: last, limit: 100)
        guard let newest = entries.last else { break }
        last = newest.id
        for entry in entries {
          let change = KeptChange(
            row: try number(entry.table, entry.key), operation: entry.operation, values: entry.after, of: entry.tag)
          #expect(found.updateValue(entry.reason ?? "", forKey: change) == nil)
        }
      }
      await writer.device.close()
      var wanted: [KeptChange: String] = [:]
      for verdict in writer.refused {
        guard case .refused(let reason) = verdict.fate else { continue }
        let tag = EditHistoryApplication.tag(verdict.request.transaction, writer: verdict.request.writer)
        for change in verdict.request.changes { wanted[KeptChange(change, of: tag, history)] = reason }
      }
      #expect(found.count == wanted.count, "\(writer.device.name)")
      for (change, reason) in wanted { #expect(found[change] == reason, "\(writer.device.name) \(change)") }
      total += found.count
    }
    return total
  }

  /// The server lists every change of every request that was kept, with the client's values, and nothing else.
  /// - Returns: how many changes it lists.
  func expectConflictVersions() throws -> Int {
    let wanted = reckoning.kept.values.flatMap { verdict in
      verdict.request.changes.map { KeptChange($0, of: nil, history) }
    }
    let found = try conflictVersions()
    #expect(found.count == wanted.count)
    let foundCounts = found.reduce(into: [:]) { $0[$1, default: 0] += 1 }
    let wantedCounts = wanted.reduce(into: [:]) { $0[$1, default: 0] += 1 }
    for (change, count) in wantedCounts { #expect(foundCounts[change] == count, "\(change)") }
    return found.count
  }

  /// What the server keeps beside its rows for a person.
  private func conflictVersions() throws -> [KeptChange] {
    try SQLiteConnection(serverPath).rows(
      "SELECT \"table\", key, operation, client FROM salvor_conflict WHERE resolution IS NOT 'policy' ORDER BY id"
    ).map {
      guard case .text(let key) = $0[1], case .text(let client) = $0[3],
        let operation = $0[2].string.flatMap(SalvorModel.Operation.init(rawValue:))
      else { throw SalvorError(.failed, "a conflict version is not as it should be") }
      let values = try JSONValue(parsing: client).members ?? []
      return KeptChange(
        row: try number($0[0].string ?? "", try JSONValue(parsing: key).array?.compactMap(\.rowValue) ?? []),
        operation: operation, values: values.map { NamedValue($0.key, $0.value.rowValue ?? .null) }, of: nil)
    }
  }

  private func number(_ table: String, _ key: SalvorModel.Key) throws -> RowNumber {
    guard let place = history.tables.firstIndex(where: { $0.name == table }) else {
      throw SalvorError(.failed, "there is no table \(table)")
    }
    return history.rows.number(place, key)
  }

  // MARK: The source's own end

  /// The hash of a table's rows as summary.json has it.
  func hash(of table: Int, in rows: ExpectedRows) -> String {
    let columns = history.tables[table].columns
    let order = columns.indices.sorted { Array(columns[$0].name.utf8).lexicographicallyPrecedes(columns[$1].name.utf8) }
    let lines = rows.rows.filter { history.rows.tables[$0.key] == table }.map { number, row in
      (key: history.rows.keys[number].map(text), row: row)
    }.sorted { a, b in
      for (x, y) in zip(a.key, b.key) where x != y { return x.lexicographicallyPrecedes(y) }
      return false
    }
    var out: [UInt8] = []
    for (key, row) in lines {
      out += "[[".utf8
      out += Array(key.map { jsonText(.text($0)) }.joined(separator: ",".utf8))
      out += "],{".utf8
      let members = order.filter { !row[$0].isNull }.map { place in
        jsonText(.text(columns[place].name)) + ":".utf8
          + (columns[place].type == .json ? text(row[place]) : jsonText(row[place]))
      }
      out += Array(members.joined(separator: ",".utf8))
      out += "}]\n".utf8
    }
    return TokenAuthentication.hash(of: String(decoding: out, as: UTF8.self))
  }

  private func text(_ value: Value) -> [UInt8] {
    if case .text(let bytes) = value { bytes } else { [] }
  }
}

/// A change as an archive or a list of conflict versions has it.
struct KeptChange: Hashable {
  var row: RowNumber
  var operation: SalvorModel.Operation
  /// What the client wanted; of a delete nothing.
  var values: [String: Value]
  var tag: String?

  init(row: RowNumber, operation: SalvorModel.Operation, values: [NamedValue], of tag: String?) {
    self.row = row
    self.operation = operation
    self.values = Dictionary(uniqueKeysWithValues: values.map { ($0.name, $0.value) })
    self.tag = tag
  }

  init(_ change: ExpectedRequest.Change, of tag: String?, _ history: EditHistory) {
    let columns = history.tables[history.rows.tables[change.row]].columns
    self.init(
      row: change.row, operation: change.operation,
      values: zip(change.columns, change.new).map { NamedValue(columns[$0].name, $1) }, of: tag)
  }
}
