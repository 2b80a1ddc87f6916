import SalvorModel
import SalvorStorage
import SalvorWire

/// The remote databases: who they are, what they uploaded last, what is staged of the next upload.
package struct RemoteBook {
  package let connection: any StoreConnection

  package init(connection: any StoreConnection) {
    self.connection = connection
  }

  static let columns = "id, principal, blocked, deleted, sequence, registered, last_upload, reset"

  /// Of a row that begins with `columns`.
  func record(_ row: any StoreStatement) -> RemoteRecord? {
    guard let id = RemoteID(row.string(0)) else { return nil }
    return RemoteRecord(
      id: id, principal: row.string(1), isBlocked: row.int64(2) == 1, isDeleted: row.int64(3) == 1,
      sequence: row.optionalString(4).flatMap { SequenceID($0) }, registered: row.int64(5),
      lastUpload: row.isNull(6) ? nil : row.int64(6), resetDemand: row.int64(7) == 0 ? nil : row.int64(7))
  }

  package func remote(_ id: RemoteID) throws -> RemoteRecord? {
    var found: RemoteRecord?
    try connection.query("SELECT \(Self.columns) FROM salvor_remote WHERE id = ?1", [.text(id.text)]) {
      found = record($0)
      return false
    }
    return found
  }

  package func all() throws -> [RemoteRecord] {
    var found: [RemoteRecord] = []
    try connection.query("SELECT \(Self.columns) FROM salvor_remote ORDER BY id") {
      if let record = record($0) { found.append(record) }
      return true
    }
    return found
  }

  /// A process may come to an upload late: its device was killed, and has gone on with another process. What it sent since counts.
  func requireInTurn(_ upload: ProcessRequest) throws {
    guard let stored = try registered(upload.remote).sequence, stored != upload.sequence else { return }
    let isPassed = upload.previous.map { $0 != stored } ?? false
    if try isPassed || isOlder(upload.sequence, of: upload.remote) { throw SalvorError.lateUpload(upload.remote) }
  }

  func isOlder(_ sequence: SequenceID, of remote: RemoteID) throws -> Bool {
    try connection.integer(
      "SELECT EXISTS (SELECT 1 FROM salvor_sequence WHERE remote = ?1 AND sequence = ?2)", .text(remote.text),
      .text(sequence.text)) == 1
  }

  package func register(_ remote: RemoteID, principal: String, _ limits: Limits, now: Int64) throws {
    guard let known = try self.remote(remote) else {
      try requireRoom(for: principal, limits)
      try connection.run(
        "INSERT INTO salvor_remote (id, principal, blocked, deleted, registered) VALUES (?1, ?2, 0, 0, ?3)",
        .text(remote.text), .text(principal), .integer(now))
      return
    }
    if known.isBlocked {
      throw SalvorError(.remoteBlocked, "This remote ID is blocked. Ask the administrator.")
    }
    guard known.principal.isSameName(as: principal) else {
      throw SalvorError(
        .remoteOfAnother, "This remote ID belongs to another principal. Use a database of your own.")
    }
    guard known.isDeleted else { return }
    try requireRoom(for: principal, limits)
    try connection.run("UPDATE salvor_remote SET deleted = 0 WHERE id = ?1", .text(remote.text))
  }

  private func requireRoom(for principal: String, _ limits: Limits) throws {
    let count = try connection.integer(
      "SELECT count(*) FROM salvor_remote WHERE principal = ?1 AND deleted = 0", .text(principal))
    if count ?? 0 >= limits.principalRemotesMax { throw SalvorError.remoteQuota(limits) }
  }

  /// Throws `not-found` where the remote is not registered.
  package func registered(_ remote: RemoteID) throws -> RemoteRecord {
    guard let found = try self.remote(remote), !found.isDeleted else {
      throw SalvorError(.notFound, "This remote ID is not registered. Register it first.")
    }
    return found
  }

  package func delete(_ remote: RemoteID, block: Bool, now: Int64) throws -> Bool {
    guard let known = try self.remote(remote), !known.isDeleted || known.isBlocked != block else { return false }
    if let sequence = known.sequence { try remember(sequence, of: remote, now: now) }
    // Whoever has the ID next may be another copy of the database: what was sent under it until now is news to him.
    try connection.run(
      """
      UPDATE salvor_remote SET deleted = 1, blocked = ?2, sequence = NULL, reset = 0,
        own_after = coalesce((SELECT max(number) FROM salvor_commit), 0) WHERE id = ?1
      """, .text(remote.text), .integer(block ? 1 : 0))
    try Staging(connection: connection).forget(remote)
    return true
  }

  /// Also of one that was deleted: it is told when it comes back. False: there is no such remote, or it is blocked.
  package func demandReset(_ remote: RemoteID, demand: Int64) throws -> Bool {
    guard let known = try self.remote(remote), !known.isBlocked else { return false }
    try connection.run("UPDATE salvor_remote SET reset = ?2 WHERE id = ?1", .text(remote.text), .integer(demand))
    return true
  }

  /// Of every remote that is registered, or of a principal's. Answers with how many.
  package func demandResets(of principal: String?, demand: Int64) throws -> Int64 {
    try connection.run(
      "UPDATE salvor_remote SET reset = ?1 WHERE deleted = 0" + (principal == nil ? "" : " AND principal = ?2"),
      [.integer(demand)] + (principal.map { [.text($0)] } ?? []))
    return Int64(connection.changes)
  }

  /// False: there is no such remote.
  package func settleReset(_ remote: RemoteID, demand: Int64) throws -> Bool {
    guard let known = try self.remote(remote), !known.isBlocked else { return false }
    try connection.run(
      "UPDATE salvor_remote SET reset = 0 WHERE id = ?1 AND reset = ?2", .text(remote.text), .integer(demand))
    return true
  }

  private func remember(_ sequence: SequenceID, of remote: RemoteID, now: Int64) throws {
    try connection.run(
      "INSERT INTO salvor_sequence (remote, sequence, time) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
      .text(remote.text), .text(sequence.text), .integer(now))
  }

  // MARK: Results

  /// S becomes an older one, S := `sequence`, and the results stand with it.
  func record(_ remote: RemoteID, _ sequence: SequenceID, _ results: UploadResults, now: Int64) throws {
    if let before = try self.remote(remote)?.sequence, before != sequence { try remember(before, of: remote, now: now) }
    try connection.run(
      "UPDATE salvor_remote SET sequence = ?2, last_upload = ?3 WHERE id = ?1", .text(remote.text),
      .text(sequence.text),
      .integer(now))
    try connection.run(
      "INSERT INTO salvor_result (remote, sequence, result) VALUES (?1, ?2, ?3) "
        + "ON CONFLICT (remote) DO UPDATE SET sequence = ?2, result = ?3",
      .text(remote.text), .text(sequence.text), .text(results.json.text))
    try Staging(connection: connection).forget(remote)
  }

  /// S := `sequence`, which is that of the recorded results.
  package func takeUp(_ sequence: SequenceID, of remote: RemoteID) throws {
    try connection.run(
      "UPDATE salvor_remote SET sequence = ?2 WHERE id = ?1", .text(remote.text), .text(sequence.text))
    try connection.run(
      "DELETE FROM salvor_sequence WHERE remote = ?1 AND sequence = ?2", .text(remote.text), .text(sequence.text))
  }

  /// Of the remote's last upload, where it is `sequence`; also after an administrator has deleted the remote.
  package func results(_ remote: RemoteID, _ sequence: SequenceID) throws -> UploadResults? {
    guard
      let text = try connection.scalar(
        "SELECT result FROM salvor_result WHERE remote = ?1 AND sequence = ?2", .text(remote.text), .text(sequence.text)
      )?
      .string
    else { return nil }
    return try UploadResults(JSONValue(parsing: Array(text.utf8)))
  }
}
