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
}

/// Nil: not known.
public struct StorageObservation: Sendable, Hashable {
  public var databaseBytes: Int64?
  /// Of the write-ahead log.
  public var journalBytes: Int64?
  /// Room left where the database stands.
  public var freeBytes: Int64?
  /// Milliseconds since 1970.
  public var oldestLogEntry: Int64?
  /// Milliseconds since 1970.
  public var oldestTombstone: Int64?
  public init() {}
}
