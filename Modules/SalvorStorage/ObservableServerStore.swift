/// A store that can say how it is: for `/metrics`, which must answer while somebody writes.
public protocol ObservableServerStore: ServerStore {
  /// What is known at this moment. Never waits for the connection that writes.
  func observation() async -> StorageObservation
}

/// A store that hears of writes to its database, by whatever program, without looking.
public protocol WriteNoticingServerStore: ServerStore {
  /// Something comes soon after a write, also after the server's own; what was written may be visible a moment later only. Nil: the
  /// system does not tell.
  func writes() -> AsyncStream<Void>?

  /// Whether it may come before what was written is visible: then it is looked for some times. Default: true.
  var tellsBeforeItIsVisible: Bool { get }
}

extension WriteNoticingServerStore {
  /// As of a file that is watched.
  public var tellsBeforeItIsVisible: Bool { true }
}

/// A store that can say what would keep it from being served, before it is opened: for `salvor doctor`.
public protocol ExaminableServerStore: ServerStore {
  /// Looks at the database without changing it, and without a lock that a writer waits for. Throws where the database cannot be reached.
  func examine(_ setup: ServerSetup) async throws -> StorageExamination
}

/// What a database is, and what keeps it from being served.
public struct StorageExamination: Sendable, Hashable {
  /// The product, its version and the database's name, without a password.
  public var description: String
  /// Each with its place and the way on; empty: it can be served.
  public var problems: [String]

  /// What was found.
  public init(description: String, problems: [String]) {
    self.description = description
    self.problems = problems
  }
}

/// How a store is at one moment. What is nil is not known, or the store does not have it.
public struct StorageObservation: Sendable, Hashable {
  /// Size of the database.
  public var databaseBytes: Int64?
  /// Of the write-ahead log.
  public var journalBytes: Int64?
  /// Room left where the database stands.
  public var freeBytes: Int64?
  /// When the oldest entry of the change log got its commit, in milliseconds since 1970.
  public var oldestLogEntry: Int64?
  /// When the oldest tombstone got its commit, in milliseconds since 1970.
  public var oldestTombstone: Int64?
  /// Of a copy of the database that answers downloads; nil: there is none.
  public var replica: Replica?

  /// What a copy of the database did since the start of the process.
  public struct Replica: Sendable, Hashable {
    /// Questions that it answered.
    public var answers: Int64
    /// Questions that it had not yet replayed enough for; the database itself answered.
    public var behind: Int64
    /// Questions at which it failed.
    public var failures: Int64

    /// What was counted.
    public init(answers: Int64, behind: Int64, failures: Int64) {
      self.answers = answers
      self.behind = behind
      self.failures = failures
    }
  }

  /// Nothing is known.
  public init() {}
}
