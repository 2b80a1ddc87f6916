import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

/// A connection that only reads. Each page is a short read transaction of its own, so the write-ahead log can always be moved
/// into the database. What it answers never waits for who writes.
actor ServerReader {
  /// The database as the writer has opened it.
  struct View: Sendable {
    var serverID: ServerID
    var catalog: Catalog
    /// SQLite's own count, when the triggers were last looked at.
    var schemaVersion: Int64
  }

  private let queue: SQLiteQueue
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

  private let options: SQLiteServerOptions
  private let view: View
  private let interruption: Interruption
  private var connection: SQLiteConnection?
  private var logCount = LogCount()
  private var catalog: Catalog { view.catalog }

  init(_ options: SQLiteServerOptions, _ view: View, place: Int, _ interruption: Interruption) {
    self.options = options
    self.view = view
    self.interruption = interruption
    queue = SQLiteQueue("server.reader.\(place)")
  }

  func page(_ request: PageRequest) throws -> FeedPageMaker.Outcome {
    try FeedPageMaker.page(
      request, try opened(), catalog, now: options.clock.now(),
      limits: options.limits)
  }

  func changedGroups(since cursors: [Commit]) throws -> GroupChanges {
    try GroupChangeQuery(connection: try opened(), catalog: catalog).run(since: cursors)
  }

  /// Nil: there is something to number, or the schema was changed.
  func changedGroupsOfSealed(since cursors: [Commit]) throws -> GroupChanges? {
    let connection = try opened()
    guard let head = try connection.transaction(.deferred, { try sealedHead(connection) }) else { return nil }
    if cursors.allSatisfy({ $0 == head }) { return GroupChanges(head: head, changes: []) }
    return try changedGroups(since: cursors)
  }

  /// Nil: there is something to number, or the schema was changed.
  func admit(_ query: AdmissionQuery) throws -> Admission? {
    let connection = try opened()
    let now = options.clock.now()
    let seen = interruption.newest
    return try connection.transaction(.deferred) {
      guard try connection.schemaVersion() == view.schemaVersion else { return nil }
      guard let admission = try AdmissionBook(connection, catalog).admission(query, now: now) else { return nil }
      return isPast(admission.head, seen) ? admission : nil
    }
  }

  /// False: a commit that was there before is missing, and the writer is to look.
  private func isPast(_ head: Commit, _ seen: Commit?) -> Bool {
    guard let seen else { return true }
    return head == seen || head.number > seen.number
  }

  private func sealedHead(_ connection: SQLiteConnection) throws -> Commit? {
    let seen = interruption.newest
    guard try connection.schemaVersion() == view.schemaVersion else { return nil }
    let state = try CommitLog.state(connection)
    return state.isSealed && isPast(state.head, seen) ? state.head : nil
  }

  func book<Answer>(_ question: (RemoteBook) throws -> Answer) throws -> Answer {
    let connection = try opened()
    return try connection.transaction(.deferred) { try question(RemoteBook(connection: connection)) }
  }

  func staging<Answer>(_ question: (Staging) throws -> Answer) throws -> Answer {
    let connection = try opened()
    return try connection.transaction(.deferred) { try question(Staging(connection: connection)) }
  }

  func conflictBook<Answer>(_ question: (ConflictBook) throws -> Answer) throws -> Answer {
    let connection = try opened()
    return try connection.transaction(.deferred) {
      try question(ConflictBook(RowReader(connection: connection, catalog: catalog)))
    }
  }

  func facts(of table: String, _ key: Key, in scopes: [ReadScope]) throws -> ServerRowFacts {
    let connection = try opened()
    return try connection.transaction(.deferred) {
      try RowInquiry(RowReader(connection: connection, catalog: catalog)).facts(of: table, key, in: scopes)
    }
  }

  func stats() throws -> ServerStats {
    let connection = try opened()
    return try connection.transaction(.deferred) {
      try ServerStats(connection, serverID: view.serverID, logCount: &logCount)
    }
  }

  func answers() throws { _ = try CommitLog.state(try opened()) }

  func ask<Answer>(
    _ scope: ReadScope, _ question: (RecoveryQueries) throws -> Answer
  ) throws -> Answer {
    let connection = try opened()
    return try connection.transaction(.deferred) {
      try question(
        RecoveryQueries(
          connection: connection, catalog: catalog, scope: scope,
          limits: options.limits))
    }
  }

  private func opened() throws -> SQLiteConnection {
    try interruption.check()
    try interruption.checkFile()
    if let connection { return connection }
    let connection = try SQLiteConnection(
      options.path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: options.busyTimeoutMilliseconds),
      for: "server-reader")
    try connection.set("query_only", true)
    interruption.add(connection)
    self.connection = connection
    return connection
  }

  func close() {
    if let connection { interruption.remove(connection) }
    connection?.close()
    connection = nil
  }
}
