import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Salvor's triggers, when an application has been at them or has made some of its own, and groups that it left open.
extension SQLiteClientStore {
  /// In a transaction, before requests are looked at: what an application has left behind is put right, and said.
  @discardableResult
  func straighten(_ context: StoreContext) throws -> [String] {
    try checkTriggers(context) + [try closeOpenGroup(context)].compactMap { $0 }
  }

  /// In a transaction: triggers that are missing or altered are put back, and what that means for their tables is noted.
  func checkTriggers(_ context: StoreContext) throws -> [String] {
    guard try context.connection.schemaVersion() != checkedSchema else { return [] }
    if try !context.hasItsColumns {
      let notices = try Opening(connection: context.connection, random: random, clock: clock).follow(context)
      try context.connection.note(notices, at: clock.now())
      return notices
    }
    let (catalog, changes) = try CaptureCatalog.install(context.schema.synchronized, on: context.connection)
    context.catalog = catalog
    try UnprovenTables(context).mark(changes.unproven)
    try context.connection.note(Opening.restored(changes.restoredTriggers), at: clock.now())
    return Opening.restored(changes.restoredTriggers)
  }

  /// In a transaction, in the middle of a session: triggers that the application has made since it began fire after Salvor's again, also
  /// for what is written here. Salvor's that are missing or altered are the next session's matter.
  func orderTriggers(_ context: StoreContext) throws {
    guard try context.connection.schemaVersion() != checkedSchema else { return }
    let firing = try context.firingTables()
    for table in context.catalog.tables where firing.contains(table.number) {
      try CaptureCatalog.putTriggersLast(of: table, on: context.connection)
    }
  }

  /// A group that was left open becomes single requests.
  private func closeOpenGroup(_ context: StoreContext) throws -> String? {
    let connection = context.connection
    guard try connection.integer("SELECT 1 FROM salvor_request LIMIT 1") != nil else { return nil }
    try connection.execute("DELETE FROM salvor_request")
    if let open = try connection.integer("SELECT max(seq) FROM salvor_log WHERE op = \(LogOperation.open.rawValue)") {
      try context.deleteLogRows(where: "seq = ?1", [.integer(open)], areMarkers: true)
    }
    return "A request that was left open was closed and split into single requests."
  }
}
