import SalvorModel
import SalvorStorage
import SalvorWire

/// The conflicts of uploads (semantics 7): kept beside the rows for a person, listed, resolved; and those that a policy
/// settled, listed with the value that lost. In `salvor_conflict` a settled one has the resolution `policy`, and the
/// policy's name for who resolved it.
package struct ConflictBook {
  private static let settled = "policy"

  let rows: RowReader
  private var connection: any StoreConnection { rows.connection }
  private var catalog: Catalog { rows.catalog }

  package init(_ rows: RowReader) { self.rows = rows }

  // MARK: Keeping

  /// Keeps what an upload's requests leave beside the rows. Call it in the upload's transaction.
  func keep(_ kept: [UploadConflict], of upload: ProcessRequest, now: Int64) throws {
    guard !kept.isEmpty else { return }
    // Counted, not taken from the table: resolved versions go, and an ID that a person has noted is never another's.
    var last = try connection.integer("SELECT value FROM salvor_server WHERE key = 'conflicts'") ?? 0
    last = max(last, try connection.integer("SELECT max(id) FROM salvor_conflict") ?? 0)
    var first: (request: RequestID, id: Int64)?
    for entry in kept {
      last += 1
      if first?.request != entry.request { first = (entry.request, last) }
      let table = catalog.tables[entry.table]
      let client = ConflictVersion.ClientSide(
        remote: upload.remote, principal: upload.principal.name, time: now, made: entry.change.made,
        operation: entry.change.operation, columns: entry.change.conflictColumns(of: table),
        offer: entry.change.offer?.version)
      try insert(
        ConflictVersion(
          id: last, first: first?.id ?? last, table: table.name, key: entry.change.key, request: entry.request,
          client: client, server: try serverSide(entry, table),
          settlement: entry.settled.map { settled in
            ConflictVersion.Settlement(policy: table.table.conflicts, row: settled.row.map { named($0, table) })
          }))
    }
    try connection.run(
      "INSERT INTO salvor_server (key, value) VALUES ('conflicts', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
      .integer(last))
  }

  private func serverSide(
    _ entry: UploadConflict, _ table: ServerTable
  ) throws -> ConflictVersion.ServerSide {
    var side = ConflictVersion.ServerSide(
      row: entry.server.map { named($0, table) })
    guard let written = entry.serverEntry else { return side }
    try connection.query(
      """
      SELECT c.number, c.time, c.remote, (SELECT r.principal FROM salvor_remote r WHERE r.id = c.remote)
      FROM salvor_commit c WHERE c.last_seq >= ?1 ORDER BY c.last_seq LIMIT 1
      """, [.integer(written)]
    ) { row in
      side.commit = row.int64(0)
      side.time = row.int64(1)
      side.remote = row.optionalString(2).flatMap { RemoteID($0) }
      side.principal = row.optionalString(3)
      return false
    }
    return side
  }

  private func named(_ row: Row, _ table: ServerTable) -> [NamedValue] {
    zip(table.columns, row).map { NamedValue($0.name, $1) }
  }

  private func insert(_ version: ConflictVersion) throws {
    let client = version.client, server = version.server
    let seen = client.columns.compactMap { column in column.old.map { NamedValue(column.name, $0) } }
    try connection.run(
      """
      INSERT INTO salvor_conflict (id, first, "table", key, request, remote, principal, time, made, operation, seen,
        client, server, server_commit, server_time, server_remote, server_principal, resolution, resolved, resolved_by,
        settled, offer)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
      """, .integer(version.id), .integer(version.first), .text(version.table),
      .text(JSONValue.array(version.key.map { JSONValue($0) }).text), .text(version.request.description),
      .text(client.remote.text), .text(client.principal), .integer(client.time), .integer(client.made),
      .text(client.operation.rawValue), seen.isEmpty ? .null : object(seen),
      object(client.columns.map { NamedValue($0.name, $0.new) }), server.row.map(object) ?? .null,
      server.commit.map(Value.integer) ?? .null, server.time.map(Value.integer) ?? .null,
      server.remote.map { .text($0.text) } ?? .null, server.principal.map { .text($0) } ?? .null,
      version.settlement == nil ? .null : .text(Self.settled),
      version.settlement == nil ? .null : .integer(client.time),
      version.settlement.map { .text($0.policy) } ?? .null, version.settlement?.row.map(object) ?? .null,
      client.offer.map { .text($0.text) } ?? .null)
  }

  private func object(_ values: [NamedValue]) -> Value {
    .text(JSONValue.object(values.map { JSONValue.Member($0.name, JSONValue($0.value)) }).text)
  }

  /// Whether the same offer is kept already, open or resolved: another copy of the device, or another device, offered it.
  func isKept(_ change: StagedChange, _ table: ServerTable) throws -> Bool {
    guard let version = change.offer?.version else { return false }
    return try connection.integer(
      """
      SELECT 1 FROM salvor_conflict WHERE "table" = ?1 AND key = ?2 AND offer LIKE ?3 AND operation = ?4 AND client = ?5
        AND offer IS NOT NULL LIMIT 1
      """, .text(table.name), .text(JSONValue.array(change.key.map { JSONValue($0) }).text),
      .text("\(version.incarnation.text) \(version.number) %"),
      .text(change.operation.rawValue),
      object(change.conflictColumns(of: table).map { NamedValue($0.name, $0.new) })) == 1
  }

  // MARK: Reading

  private static let columns = """
    id, first, "table", key, request, remote, principal, time, made, operation, seen, client, server, server_commit,
    server_time, server_remote, server_principal, resolution, resolved, resolved_by, settled, offer
    """

  package func list(after id: Int64, limit: Int, state: ConflictState?) throws -> [ConflictVersion] {
    let condition =
      switch state {
      case .open?: " AND resolution IS NULL"
      case .resolved?: " AND resolution IN ('client', 'server')"
      case .settled?: " AND resolution = '\(Self.settled)'"
      case nil: ""
      }
    return try versions(
      "WHERE id > ?1\(condition) ORDER BY id LIMIT ?2", [.integer(id), .integer(Int64(max(0, limit)))])
  }

  /// The request was kept for a person, whether he has decided since or not.
  func isKept(_ request: RequestID) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_conflict WHERE request = ?1 AND coalesce(resolution, '') <> '\(Self.settled)' LIMIT 1",
      .text(request.description)) != nil
  }

  /// All versions of the request that the version belongs to.
  private func request(of id: Int64) throws -> [ConflictVersion] {
    try versions("WHERE first = (SELECT first FROM salvor_conflict WHERE id = ?1) ORDER BY id", [.integer(id)])
  }

  package func rows(of id: Int64) throws -> [ConflictRow] {
    try request(of: id).map { version in
      var present: [NamedValue]?
      if let place = catalog.place(of: version.table), version.key.count == catalog.tables[place].keyCount,
        let row = try rows.row(place, version.key)
      {
        present = zip(catalog.tables[place].columns, row).map { NamedValue($0.name, $1) }
      }
      return ConflictRow(version: version, present: present)
    }
  }

  /// Of one row, the newest first.
  func versions(of table: String, _ key: Key, limit: Int) throws -> [ConflictVersion] {
    try versions(
      "WHERE \"table\" = ?1 AND key = ?2 ORDER BY id DESC LIMIT ?3",
      [.text(table), .text(JSONValue.array(key.map { JSONValue($0) }).text), .integer(Int64(limit))])
  }

  private func versions(_ rest: String, _ values: [Value]) throws -> [ConflictVersion] {
    var found: [ConflictVersion] = []
    try connection.query("SELECT \(Self.columns) FROM salvor_conflict \(rest)", values) {
      found.append(try version($0))
      return true
    }
    return found
  }

  private func version(_ row: any StoreStatement) throws -> ConflictVersion {
    let id = row.int64(0)
    let key = try JSONValue(parsing: Array(row.string(3).utf8)).array?.map(\.rowValue)
    guard let request = RequestID(row.string(4)), let remote = RemoteID(row.string(5)),
      let operation = Operation(rawValue: row.string(9)), let key, !key.contains(nil),
      let client = try values(row.string(11)), let seen = try values(row.optionalString(10) ?? "{}")
    else {
      throw SalvorError(
        .storageCorrupt, "Conflict version \(id) in salvor_conflict is damaged. Restore the database from a copy.")
    }
    var resolution: ConflictVersion.Resolution?
    if let keep = row.optionalString(17).flatMap(ConflictSide.init) {
      resolution = ConflictVersion.Resolution(keep: keep, time: row.int64(18), by: row.string(19))
    }
    return ConflictVersion(
      id: id, first: row.int64(1), table: row.string(2), key: key.compactMap(\.self), request: request,
      client: ConflictVersion.ClientSide(
        remote: remote, principal: row.string(6), time: row.int64(7), made: row.int64(8), operation: operation,
        columns: client.map { value in
          ConflictColumn(value.name, old: seen.first { $0.name == value.name }?.value, new: value.value)
        }, offer: row.optionalString(21).flatMap { LostVersion(text: $0) }),
      server: ConflictVersion.ServerSide(
        row: try row.optionalString(12).flatMap(values), commit: row.isNull(13) ? nil : row.int64(13),
        time: row.isNull(14) ? nil : row.int64(14), remote: row.optionalString(15).flatMap { RemoteID($0) },
        principal: row.optionalString(16)),
      resolution: resolution,
      settlement: row.optionalString(17) != Self.settled
        ? nil
        : ConflictVersion.Settlement(policy: row.string(19), row: try row.optionalString(20).flatMap(values)))
  }

  /// Nil: it is no object of values.
  private func values(_ text: String) throws -> [NamedValue]? {
    guard let members = try JSONValue(parsing: Array(text.utf8)).members else { return nil }
    let values = members.compactMap { member in member.value.rowValue.map { NamedValue(member.key, $0) } }
    return values.count == members.count ? values : nil
  }

  // MARK: Resolving

  /// Call it in an immediate transaction; what it throws must end that without a commit.
  package func resolve(_ id: Int64, keep: ConflictSide, by: String, now: Int64) throws -> [ConflictVersion] {
    let versions = try request(of: id)
    guard let asked = versions.first(where: { $0.id == id }) else { throw SalvorError.noConflict(id) }
    if let policy = asked.settlement?.policy { throw SalvorError.conflictSettled(asked, by: policy) }
    if let resolution = asked.resolution { throw SalvorError.conflictResolved(asked, resolution) }
    if keep == .client { try write(versions, asked) }
    try connection.run(
      "UPDATE salvor_conflict SET resolution = ?2, resolved = ?3, resolved_by = ?4 WHERE first = ?1",
      .integer(asked.first), .text(keep.rawValue), .integer(now), .text(by))
    return try request(of: id)
  }

  /// Writes the client's versions as another program would: the log's entries get their commit when the store next looks.
  private func write(_ versions: [ConflictVersion], _ asked: ConflictVersion) throws {
    var overlay = RowOverlay(rows)
    for version in versions {
      guard let place = catalog.place(of: version.table) else {
        throw SalvorError.conflictUnresolvable(version, gone: nil)
      }
      let table = catalog.tables[place]
      let hash = RowHash(table: table.name).adding(version.key)
      let present = try overlay.row(place, version.key, hash).row
      guard version.client.operation != .delete else {
        overlay.set(hash, to: nil)
        continue
      }
      if version.client.operation == .update, present == nil {
        throw SalvorError.conflictUnresolvable(deleted: version)
      }
      let isMerged = version.client.operation == .insert && present != nil
      var row = present ?? table.columns.map { $0.defaultValue ?? .null }
      // What the schema has dropped since stays in the version alone.
      let columns = version.client.columns
      if let gone = columns.first?.name, columns.allSatisfy({ table.place($0.name) == nil }) {
        throw SalvorError.conflictUnresolvable(version, gone: gone)
      }
      for column in columns {
        guard let place = table.place(column.name) else { continue }
        if isMerged, !table.columns[place].isSet(column.new) { continue }
        row[place] = column.new
      }
      overlay.set(hash, to: row)
    }
    try connection.deferReferences()
    let last = try CommitLog.state(connection).lastSequence
    if let broken = try SetWriter(rows, Reach(rows)).write(overlay, after: last).broken?.text {
      throw SalvorError.conflictUnresolvable(asked, broken.reason, broken.message)
    }
    try connection.checkReferences()
  }

  // MARK: Names

  /// Conflict versions name their table and columns.
  package static func rename(
    from old: String, to new: String, _ columns: [(old: String, new: String)], _ connection: any StoreConnection
  ) throws {
    let names = Dictionary(columns.map { ($0.old, $0.new) }) { first, _ in first }
    for row in try connection.rows(
      #"SELECT id, seen, client, server, settled FROM salvor_conflict WHERE "table" = ?1"#, .text(old))
    {
      let texts = try row[1...].map { value -> Value in
        guard let text = value.string, case .object(let members) = try JSONValue(parsing: Array(text.utf8)) else {
          return value
        }
        return .text(JSONValue.object(members.map { JSONValue.Member(names[$0.key] ?? $0.key, $0.value) }).text)
      }
      try connection.run(
        #"UPDATE salvor_conflict SET "table" = ?2, seen = ?3, client = ?4, server = ?5, settled = ?6 WHERE id = ?1"#,
        [row[0], .text(new)] + texts)
    }
  }

  // MARK: Retention

  package func trim(before milliseconds: Int64) throws {
    try connection.run(
      "DELETE FROM salvor_conflict WHERE resolution IN ('client', 'server') AND resolved < ?1", .integer(milliseconds))
  }

  package func trimSettled(before milliseconds: Int64) throws {
    try connection.run(
      "DELETE FROM salvor_conflict WHERE resolution = ?1 AND resolved < ?2", .text(Self.settled),
      .integer(milliseconds))
  }
}
