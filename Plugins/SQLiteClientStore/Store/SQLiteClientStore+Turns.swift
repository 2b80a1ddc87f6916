import SQLiteSupport
import SalvorModel
import SalvorStorage

extension SQLiteClientStore: TurnTakingClientStore {
  /// Takes the lock beside the database file, and opens the database anew where another process has changed it. Does
  /// nothing for a database in memory, or where the store has the turn.
  public func takeTurn() throws {
    guard isFile, !hasTurn else { return }
    if lock == nil { lock = SessionLock(database: path) }
    try lock?.take()
    hasTurn = true
    do { try catchUp() } catch {
      giveTurn()
      throw error
    }
  }

  /// Does nothing where the store does not have the turn.
  public func giveTurn() {
    guard hasTurn else { return }
    hasTurn = false
    lock?.release()
  }

  /// A session ends: the lock stays with who has the turn.
  func releaseLock() { if !hasTurn { lock?.release() } }

  /// What another process did before: another SyncConfig, tables made anew, another file.
  private func catchUp() throws {
    try openIfInterrupted()
    guard let context, try context.connection.pausedSince() == nil else { return }
    let setup = try openedSetup()
    if FileIdentity(path) != openedFile {
      _ = try open(setup)
    } else if try quiet?.stillHolds(context.connection) != true, try Opened(context.connection) != openedAs {
      try giveUpAhead()
      uploadPlan = nil
      quiet = nil
      try reopen(setup, context.connection)
    }
  }
}
