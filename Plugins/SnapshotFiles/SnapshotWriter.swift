import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Writes the pages of a group's first download into a new database: what a device would have by rows.
final class SnapshotWriter {
  private let connection: SQLiteConnection
  private let tables: [Table]
  private var targets: [String: Target] = [:]
  /// Rows that a constraint refuses while others are still to come: as they were last said to be.
  private var postponed: [Place: [Value]] = [:]
  private var hasRemoved = false
  /// Rows stand in `SnapshotFormat.apartTable`.
  private var hasApart = false

  private struct Place: Hashable {
    var table: String
    var key: Key
  }

  private final class Target {
    let table: Table
    let columns: [String]
    /// Of the key's columns among `columns`.
    let keyPlaces: [Int]
    let insert: SQLiteStatement
    let upsert: SQLiteStatement
    let delete: SQLiteStatement

    init(_ table: Table, _ columns: [String], _ connection: SQLiteConnection) throws {
      self.table = table
      self.columns = columns
      keyPlaces = table.primaryKey.compactMap { columns.firstIndex(of: $0) }
      guard keyPlaces.count == table.primaryKey.count else {
        throw SalvorError(.malformed, "A page leaves out key columns of \(table.name).")
      }
      let names = columns.map(quoted).joined(separator: ", ")
      let slots = (1...max(1, columns.count)).map { "?\($0)" }.joined(separator: ", ")
      let insert = "INSERT INTO \(upsertTarget(table.name)) (\(names)) VALUES (\(slots))"
      let others = columns.filter { !table.primaryKey.contains($0) }.map(quoted)
      let keys = table.primaryKey.map(quoted)
      let action =
        others.isEmpty
        ? "NOTHING" : "UPDATE SET " + others.map { "\($0) = excluded.\($0)" }.joined(separator: ", ")
      self.insert = try connection.prepare(insert, persistent: true)
      upsert = try connection.prepare(
        insert + " ON CONFLICT (\(keys.joined(separator: ", "))) DO \(action)", persistent: true)
      delete = try connection.prepare(
        "DELETE FROM \(quoted(table.name)) WHERE "
          + keys.enumerated().map { "\($1) = ?\($0 + 1)" }.joined(separator: " AND "), persistent: true)
    }
  }

  /// Makes the database. It lies in a folder of its owner's alone, and is worth nothing until it is whole: no waiting for the disk.
  init(_ path: String, group: String, _ config: SyncConfig) throws {
    connection = try SQLiteConnection(path)
    tables = SnapshotFormat.tables(of: group, in: config)
    try connection.pragma("page_size", "4096")
    try connection.pragma("journal_mode", "MEMORY")
    try connection.pragma("synchronous", "OFF")
    try connection.pragma("locking_mode", "EXCLUSIVE")
    try connection.pragma("foreign_keys", "OFF")
    try connection.pragma("cache_size", "-8192")
    // Nothing stays of what is removed or written over.
    try connection.pragma("secure_delete", "ON")
    for statement in SnapshotFormat.statements(group, config) { try connection.execute(statement.sql) }
    try connection.execute("BEGIN")
  }

  /// One page of the download.
  func read(_ bytes: [UInt8]) throws {
    try bytes.withUnsafeBufferPointer { buffer in
      let blobs = BlobCollector()
      var reader = DownloadChunkReader(buffer, blobs: blobs)
      var target: Target?
      while let event = try reader.next() {
        switch event {
        case .full: continue
        case .table(let name, let columns): target = try self.target(name, columns)
        case .row: try writeRow(&reader, target)
        case .part: throw reader.malformed("a part of a row in a first download")
        case .key:
          guard let target else { throw reader.malformed("a key without a table") }
          var key: Key = []
          while let item = try reader.item() { key.append(item.value) }
          postponed[Place(table: target.table.name, key: key)] = nil
          try removeApart(target, key)
          try target.delete.bind(key)
          try target.delete.run()
          hasRemoved = true
        }
      }
    }
  }

  private func target(_ name: String, _ columns: [String]) throws -> Target {
    if let known = targets[name], known.columns == columns { return known }
    guard let table = tables.first(where: { $0.name == name }) else {
      throw SalvorError(.malformed, "A page has rows of the table \(name), which is not of the group.")
    }
    let made = try Target(table, columns, connection)
    targets[name] = made
    return made
  }

  private func writeRow(_ reader: inout DownloadChunkReader, _ target: Target?) throws {
    guard let target else { throw reader.malformed("a row without a table") }
    var row: [Value] = []
    var references: [Int: BlobReference] = [:]
    row.reserveCapacity(target.columns.count)
    while let item = try reader.item() {
      if let reference = reader.lastReference { references[row.count] = reference }
      row.append(item.value)
    }
    guard row.count == target.columns.count else { throw reader.malformed("a row has not as many values as columns") }
    let place = Place(table: target.table.name, key: target.keyPlaces.map { row[$0] })
    if !references.isEmpty {
      postponed[place] = nil
      return try writeApart(target, place.key, row, references)
    }
    try removeApart(target, place.key)
    if postponed[place] != nil {
      postponed[place] = row
      return
    }
    do {
      try target.insert.bind(row)
      try target.insert.run()
    } catch let error as SalvorError where error.isConstraintViolation {
      do {
        try target.upsert.bind(row)
        try target.upsert.run()
        hasRemoved = true
      } catch let error as SalvorError where error.isConstraintViolation {
        postponed[place] = row
      }
    }
  }

  /// The lines that refer to the values, in the place of the row.
  private func writeApart(
    _ target: Target, _ key: Key, _ row: [Value], _ references: [Int: BlobReference]
  ) throws {
    var lines = DownloadChunkWriter()
    lines.table(target.table.name, columns: target.columns)
    lines.beginRow(version: nil)
    for (place, value) in row.enumerated() {
      if let reference = references[place] { lines.value { $0.reference(reference) } } else { lines.value(value) }
    }
    lines.endRow()
    try connection.run(
      "INSERT OR REPLACE INTO \(SnapshotFormat.apartTable) VALUES (?1, ?2, ?3)", .text(target.table.name),
      .text(JSONValue.array(key.map { JSONValue($0) }).text), .text(lines.finish()))
    hasApart = true
    try target.delete.bind(key)
    try target.delete.run()
    if connection.changes > 0 { hasRemoved = true }
  }

  private func removeApart(_ target: Target, _ key: Key) throws {
    guard hasApart else { return }
    try connection.run(
      "DELETE FROM \(SnapshotFormat.apartTable) WHERE \"table\" = ?1 AND key = ?2", .text(target.table.name),
      .text(JSONValue.array(key.map { JSONValue($0) }).text))
    if connection.changes > 0 { hasRemoved = true }
  }

  /// After the last page: what the file says of itself. Nothing of what was removed is left in it.
  func finish(_ facts: (_ tables: [TableDigest]) -> [(String, String)]) throws -> [TableDigest] {
    if !postponed.isEmpty { try writePostponed() }
    var digests = try tables.map { try connection.snapshotDigest(of: $0) }
    for place in digests.indices { digests[place].count += try connection.apartCount(of: digests[place].table) }
    let insert = try connection.prepare("INSERT INTO salvor_snapshot (key, value) VALUES (?1, ?2)", persistent: true)
    for (key, value) in facts(digests) + [("apart", try connection.apartDigest())] {
      try insert.bind([.text(key), .text(value)])
      try insert.run()
    }
    try connection.execute("COMMIT")
    targets = [:]
    connection.clearStatementCache()
    if try hasRemoved || connection.integer("PRAGMA freelist_count") ?? 0 > 0 { try connection.execute("VACUUM") }
    guard try connection.scalar("PRAGMA quick_check(1)") == .text("ok") else {
      throw SalvorError(.storageCorrupt, "The snapshot that was made is damaged. Look at the disk; it is made again.")
    }
    connection.close()
    return digests
  }

  /// Each is in the state that it has now, and so are all others: rows that exchange a unique value are removed together first.
  private func writePostponed() throws {
    for place in postponed.keys {
      guard let target = targets[place.table] else { continue }
      try target.delete.bind(place.key)
      try target.delete.run()
    }
    for (place, row) in postponed {
      guard let target = targets[place.table] else { continue }
      try target.insert.bind(row)
      try target.insert.run()
    }
    hasRemoved = true
  }
}
