import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A connection that only reads, for pages. Each page is a short read transaction of its own, so the write-ahead log can
/// always be moved into the database.
actor ServerReader {
  private let queue: SQLiteQueue
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

  private let options: SQLiteServerStore.Options
  private let catalog: Catalog
  private var connection: SQLiteConnection?

  init(_ options: SQLiteServerStore.Options, _ catalog: Catalog, place: Int) {
    self.options = options
    self.catalog = catalog
    queue = SQLiteQueue("server.reader.\(place)")
  }

  func page(_ request: PageRequest) throws -> FeedPageMaker.Outcome {
    try FeedPageMaker.page(request, try opened(), catalog, now: options.clock.now())
  }

  func changedGroups(since cursors: [Commit]) throws -> GroupChanges {
    try GroupChangeQuery(connection: try opened(), catalog: catalog).run(since: cursors)
  }

  func ask<Answer>(
    _ scope: ReadScope, _ question: (RecoveryQueries) throws -> Answer
  ) throws -> Answer {
    let connection = try opened()
    return try connection.transaction(.deferred) {
      try question(RecoveryQueries(connection: connection, catalog: catalog, scope: scope))
    }
  }

  private func opened() throws -> SQLiteConnection {
    if let connection { return connection }
    let connection = try SQLiteConnection(
      options.path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: options.busyTimeoutMilliseconds))
    try connection.execute("PRAGMA query_only = ON")
    self.connection = connection
    return connection
  }

  func close() {
    connection?.close()
    connection = nil
  }
}
