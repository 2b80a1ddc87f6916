import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// A restore by a copy of a SQLite database is written down in its `RestoreBook`.
struct RestoreOpening {
  let connection: SQLiteConnection

  /// This database is about to stand in the place of another one: what that one has and this one lacks is lost.
  ///
  /// - Parameter before: of the same server; one of another server lost nothing that a device would offer.
  func begin(inPlaceOf before: SQLiteConnection, now: Int64) throws {
    let (here, there) = (try CommitLog.state(connection).head, try CommitLog.state(before).head)
    guard there.number > 0 else { return }
    let parting = try self.parting(here, before, there)
    guard let incarnation = try incarnation(of: there, in: before) else { return }
    try connection.transaction(.immediate) {
      try connection.execute(RestoreBook.tables)
      let id = try RestoreBook(connection: connection).open(
        parting, incarnation, last: there.number, isExact: true, now: now)
      let insertion = try connection.prepare(
        "INSERT OR IGNORE INTO salvor_restore_commit (restore, number, remote, offered) VALUES (\(id), ?1, ?2, 0)")
      try before.query(
        "SELECT number, remote FROM salvor_commit WHERE number > ?1 ORDER BY number LIMIT ?2",
        [.integer(parting.number), .integer(RestoreBook.commitsMax)]
      ) { row in
        try insertion.bind(1, row.int64(0))
        try insertion.bind(2, row.value(1))
        try insertion.run()
        return true
      }
    }
  }

  /// The newest commit that both have: what comes before it they share, and nothing after it.
  private func parting(_ here: Commit, _ before: SQLiteConnection, _ there: Commit) throws -> Commit {
    func shared(_ number: Int64) throws -> Commit? {
      let find = "SELECT id FROM salvor_commit WHERE number = ?1"
      guard let id = try connection.scalar(find, .integer(number))?.string,
        try before.scalar(find, .integer(number))?.string == id
      else { return nil }
      return CommitID(id).map { Commit(number: number, id: $0) }
    }
    var (low, high) = (Int64(0), min(here.number, there.number))
    var found = Commit(number: 0, id: here.id)
    while low < high {
      let middle = low + (high - low + 1) / 2
      if let commit = try shared(middle) { (low, found) = (middle, commit) } else { high = middle - 1 }
    }
    return found
  }

  private func incarnation(of commit: Commit, in database: SQLiteConnection) throws -> IncarnationID? {
    try database.scalar("SELECT incarnation FROM salvor_commit WHERE number = ?1", .integer(commit.number))?.string
      .flatMap { IncarnationID($0) }
  }
}

extension DatabaseCopy {
  func restores(of path: String, limit: Int, busyTimeoutMilliseconds: Int64) throws -> [RestoreRecord] {
    guard Files.exists(path) else { return [] }
    let connection = try SQLiteConnection(
      path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: busyTimeoutMilliseconds))
    defer { connection.close() }
    return try connection.transaction(.deferred) {
      guard try connection.tableShape("salvor_restore") != nil else { return [] }
      var records = try RestoreBook(connection: connection).all(limit: limit)
      guard try connection.tableShape("salvor_heal_waiting") != nil else { return records }
      let waiting = try WaitingBook(connection: connection).counts()
      for index in records.indices { records[index].waiting = waiting.filter { $0.restore == records[index].id } }
      return records
    }
  }
}

extension SQLiteServerStore: RestoreReportingServerStore {
  /// Can be asked while the store is not open. Empty for a database in memory.
  public func restores(limit: Int) async throws -> [RestoreRecord] {
    guard options.isFile else { return [] }
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
