import SalvorModel

/// A consolidated database that an operator puts back from a copy.
public protocol RestorableServerStore: ServerStore {
  /// Puts a copy that `backup` made in the place of the database, as it was then; what stood there is kept beside it. The
  /// next start says that it was restored (`ServerOpening.isRestored`), and devices that have seen more are told so by
  /// the checks of their begins.
  ///
  /// Works without `open`. Throws `storage-busy` where anybody has the database open, and `usage` where the file is not a
  /// whole copy of a server's database; nothing is changed then.
  ///
  /// - Parameter overAnotherServer: false: a copy of another server than the database is refused with `usage`.
  func restore(from path: String, overAnotherServer: Bool) async throws -> ServerRestoration

  /// Gives a database that is a copy of another one a server ID of its own, drawn now: a device of the other one that comes
  /// here is told `server-replaced`, and nothing of it is applied. The rows and their history stay.
  ///
  /// Works without `open`. Throws `storage-busy` where anybody has the database open; nothing is changed then.
  func adoptNewID() async throws -> ServerRenaming

  /// The next start takes the tables as they are, where it would refuse them since they are of another moment than the change log.
  /// Their groups come whole to every device then.
  ///
  /// Works without `open`. Returns where the database stands.
  func takeRows() async throws -> String

  /// The database counts, although `timeline` was promoted over it and has been seen: processes that refuse it for that take it up.
  ///
  /// Works without `open`. Throws `usage` where that timeline is no later one; nothing is changed then. Returns where the database
  /// stands.
  func takeHistory(over timeline: Int64) async throws -> String
}

extension RestorableServerStore {
  /// The same, of a copy of this server.
  public func restore(from path: String) async throws -> ServerRestoration {
    try await restore(from: path, overAnotherServer: false)
  }
}

extension RestorableServerStore {
  /// Throws `usage`: for stores that keep their ID.
  public func adoptNewID() async throws -> ServerRenaming {
    throw SalvorError(.usage, "This server's storage module cannot take another server ID. Use the storage \"sqlite\".")
  }
}

extension RestorableServerStore {
  /// Throws `usage`: for stores whose rows and log are in one file.
  public func takeRows() async throws -> String {
    throw SalvorError(.usage, "Rows and change log of this storage are of one moment. There is nothing to take.")
  }
}

extension RestorableServerStore {
  /// Throws `usage`: for stores that nothing is promoted over.
  public func takeHistory(over timeline: Int64) async throws -> String {
    throw SalvorError(.usage, "This storage has no timelines. There is nothing to take.")
  }
}

/// What `adoptNewID` has done.
public struct ServerRenaming: Sendable, Hashable {
  /// The ID that the database had until now, which the original keeps.
  public var before: ServerID
  /// The ID that was drawn for it.
  public var now: ServerID
  /// Where the database stands.
  public var database: String
  /// Both IDs, and where the database is.
  public init(before: ServerID, now: ServerID, database: String) {
    self.before = before
    self.now = now
    self.database = database
  }
}

/// What `restore(from:overAnotherServer:)` has done.
public struct ServerRestoration: Sendable, Hashable {
  /// The server ID in the copy.
  public var server: ServerID
  /// The newest commit of the copy.
  public var head: Commit
  /// Where the database stands.
  public var database: String
  /// Where the one before stands; nil: there was none.
  public var before: String?
  /// The number of the newest commit that the database's surroundings remember; nil: they remember none of this server.
  public var remembered: Int64?
  /// The copy had been forgotten: devices need no longer keep what a restore of it loses.
  public var isForgotten = false
  /// What was restored, and what it has taken the place of.
  public init(server: ServerID, head: Commit, database: String, before: String?, remembered: Int64?) {
    self.server = server
    self.head = head
    self.database = database
    self.before = before
    self.remembered = remembered
  }
}
