import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension SQLiteClientStore: TurnTakingClientStore {
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

  public func giveTurn() {
    guard hasTurn else { return }
    hasTurn = false
    lock?.release()
  }

  /// A session ends: the lock stays with who has the turn.
  func releaseLock() { if !hasTurn { lock?.release() } }

  /// What another process did before: another SyncConfig, tables made anew, another file.
  private func catchUp() throws {
    guard let context, try context.connection.pausedSince() == nil else { return }
    let setup = try openedSetup()
    if FileIdentity(path) != openedFile {
      _ = try open(setup)
    } else if try Opened(context.connection) != openedAs {
      try giveUpAhead()
      uploadPlan = nil
      quiet = nil
      try reopen(setup, context.connection)
    }
  }
}

/// Which file a path leads to.
struct FileIdentity: Hashable {
  private let device: UInt64
  private let node: UInt64

  /// Nil: there is none.
  init?(_ path: String) {
    var found = stat()
    guard stat(path, &found) == 0 else { return nil }
    device = UInt64(truncatingIfNeeded: found.st_dev)
    node = UInt64(truncatingIfNeeded: found.st_ino)
  }
}

/// What of a database a store holds in memory while it is open.
struct Opened: Hashable {
  private let rows: [[Value]]

  init(_ connection: SQLiteConnection) throws {
    rows =
      try [[.integer(connection.schemaVersion())]]
      + connection.rows(
        "SELECT value FROM salvor_state WHERE name IN ('\(StateName.remote.rawValue)', '\(StateName.fileStamp.rawValue)', '\(StateName.configHead.rawValue)', '\(StateName.configDelivered.rawValue)') ORDER BY name"
      ) + connection.rows("SELECT * FROM salvor_sync_config ORDER BY place")
  }
}
