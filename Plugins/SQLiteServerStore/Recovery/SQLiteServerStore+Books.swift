import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

extension DatabaseCopy {
  /// The book of the database at `path`, whoever else has it open.
  func withBook<Answer: Sendable>(
    of path: String, busyTimeoutMilliseconds: Int64, _ body: @Sendable (BackupBook) throws -> Answer
  ) throws -> Answer {
    let connection = try SQLiteConnection(
      path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: busyTimeoutMilliseconds))
    defer { connection.close() }
    return try connection.transaction(.immediate) { try body(BackupBook(connection, database: path)) }
  }
}

extension SQLiteServerStore: BackupListingServerStore {
  public func recordedBackups() async throws -> [RecordedBackup] { try await book { try $0.all() } }

  /// Forgets the record alone: the copy itself is not removed.
  public func forgetBackup(_ id: String) async throws -> Bool {
    let now = options.clock.now()
    return try await book { try $0.forget(id, now: now) }
  }

  private func book<Answer: Sendable>(_ body: @escaping @Sendable (BackupBook) throws -> Answer) async throws -> Answer
  {
    guard options.isFile else { return try await writer.withBackups(body) }
    return try await DatabaseCopy().withBook(
      of: options.path, busyTimeoutMilliseconds: options.busyTimeoutMilliseconds, body)
  }
}

extension DatabaseCopy {
  /// - Returns: the newest `limit` restores, and how many waiting offers belong to no recorded restore.
  func restores(
    of path: String, limit: Int, busyTimeoutMilliseconds: Int64
  ) throws -> (records: [RestoreRecord], unnamed: Int64) {
    guard Files.exists(path) else { return ([], 0) }
    let connection = try SQLiteConnection(
      path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: busyTimeoutMilliseconds))
    defer { connection.close() }
    return try connection.transaction(.deferred) {
      guard try connection.tableShape("salvor_restore") != nil else { return ([], 0) }
      var records = try RestoreBook(connection: connection).all(limit: limit)
      guard try connection.tableShape("salvor_heal_waiting") != nil else { return (records, 0) }
      let waiting = try WaitingBook(connection: connection).counts()
      for index in records.indices { records[index].waiting = waiting.filter { $0.restore == records[index].id } }
      return (records, waiting.reduce(0) { $1.restore == 0 ? $0 + $1.count : $0 })
    }
  }
}

extension SQLiteServerStore: RestoreReportingServerStore {
  /// Can be asked while the store is not open. Empty for a database in memory.
  public func restores(limit: Int) async throws -> [RestoreRecord] { try await lookAtRestores(limit).records }

  public func unnamedWaiting() async throws -> Int64 { try await lookAtRestores(0).unnamed }

  private func lookAtRestores(_ limit: Int) async throws -> (records: [RestoreRecord], unnamed: Int64) {
    guard options.isFile else {
      return ([], try await waitingOffers().reduce(0) { $1.restore == 0 ? $0 + $1.count : $0 })
    }
    return try await DatabaseCopy().restores(
      of: options.path, limit: limit, busyTimeoutMilliseconds: options.busyTimeoutMilliseconds)
  }
}

extension ServerWriter {
  func unseenSinceRestore() throws -> Set<RemoteID> { try RestoreBook(connection: try opened().connection).unseen() }

  func noteSeen(_ remote: RemoteID) throws {
    try transaction(durable: false) { try RestoreBook(connection: $0.connection).noteSeen(remote) }
  }
}
