import SQLiteSupport
import SalvorModel

extension SQLiteStatement {
  /// Runs a statement that brings one row to what it is to be. Triggers of the application's do what they like beside it, and cannot
  /// take its place: where one did (`RAISE(IGNORE)`), it runs once more without triggers (semantics 2, 11.4). A statement that finds
  /// nothing to change runs twice then, too.
  ///
  /// Throws `storage` where a trigger has ended the transaction.
  func write(on connection: SQLiteConnection) throws {
    do {
      try run()
    } catch {
      guard !connection.isInTransaction, connection.triggersEnabled else { throw error }
      throw SalvorError(
        .storage,
        "A trigger of the application's on this device has rolled everything back (RAISE(ROLLBACK, …)): \(asSalvor(error)). Nothing was applied. Drop it, or write RAISE(ABORT, …), which refuses its row alone."
      )
    }
    guard connection.changes == 0, connection.triggersEnabled else { return }
    try connection.withTriggers(false) { try run() }
  }

  /// Runs a DELETE of one row. A trigger of the application's has no say in what the server has deleted: where one refuses it, the row goes
  /// without triggers. Answers with SQLite's words then.
  func writeDelete(on connection: SQLiteConnection) throws -> String? {
    do {
      try write(on: connection)
      return nil
    } catch let error as SalvorError
      where error.isConstraintViolation && connection.triggersEnabled && connection.isInTransaction
    {
      try connection.withTriggers(false) { try run() }
      return error.sqliteDetail
    }
  }

  private func asSalvor(_ error: any Error) -> String { (error as? SalvorError)?.sqliteDetail ?? "\(error)" }
}
