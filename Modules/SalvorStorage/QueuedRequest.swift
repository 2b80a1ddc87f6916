import SalvorModel

/// One change of a request as people see it (`queue --json`, `errors --json`).
public struct QueuedRequest: Sendable, Hashable {
  /// The same for every change of the request.
  public var id: RequestID
  /// The name of the table whose row is changed.
  public var table: String
  /// The values of the row's primary key, in the order in which the schema names its columns.
  public var key: Key
  /// What the change does to the row.
  public var operation: Operation
  /// Changed columns only for an update, all for an insert or delete: name and value. Empty: there was no row.
  public var before: [NamedValue]
  /// Like `before`, with the values that the change gives. Empty: a delete.
  public var after: [NamedValue]
  /// Where the whole request stands: in the queue, in an upload, or in the archive.
  public var state: RequestState
  /// Why it is in the archive, for programs: the server's `RefusalReason`, or a word of the store, such as
  /// `lost-on-server`. Nil: it waits in the queue, or nothing was noted.
  public var reason: String?
  /// In HTTP's terms, 400 to 599, as the server gave it. Nil: the server did not refuse it.
  public var status: Int?
  /// What was wrong and what to do, for people. Nil: nothing was said.
  public var message: String?
  /// All that depend on this request, in order, directly or through others.
  public var dependents: [RequestID]
  /// The tag that the application gave the request. Nil: none.
  public var tag: String?
  /// All that this request depends on, in order, directly or through others.
  public var needs: [RequestID] = []
  /// Of a blocked request: the failed one that it depends on.
  public var blockedBy: RequestID?
  /// What has to happen next. By default it follows from the state, as if no upload were stalled.
  public var waitsFor = WaitsFor.nextSync
  /// How often it was sent, under this ID or an earlier one, and came back refused or without an answer.
  public var attempts = 0
  /// When it was captured, or when the store first met it; milliseconds since 1970. Nil: not noted.
  public var since: Int64?
  /// Milliseconds since 1970.
  public var lastAttempt: Int64?
  /// When the next session is going to begin, in milliseconds since 1970. Nil: the request is not in an upload, or
  /// nobody has said when.
  public var nextAttempt: Int64?
  /// Of an entry of the archive: the row as the server last confirmed it, the columns that travel; empty: it has none.
  /// Nil: not known, or no entry of the archive.
  public var serverRow: [NamedValue]?
  /// The IDs that it had before, oldest first: it was sent again, or made from these.
  public var history: [RequestID] = []

  /// Of requests that a device holds back.
  public static let blockedMessage =
    "A request that it depends on is in error: it waits until that one is accepted."

  /// What has to happen before anything becomes of a request.
  public enum WaitsFor: String, Sendable, CaseIterable {
    case nextSync = "next-sync"
    /// It is sent; the outcome is not known yet.
    case answer
    /// It is sent, and the upload makes no progress (`ClientStatus.upload` says why).
    case stalledUpload = "stalled-upload"
    /// The one that `blockedBy` names, or another that it needs.
    case request
    /// What is in its way has to go.
    case room
    /// The server holds what this device gives back: for its operator's consent, for the row that it needs, or because healing is paused.
    case server
    /// A person: edit the row, retry or delete; of a kept entry, reapply or delete.
    case person

    /// What a request in this state waits for.
    ///
    /// - Parameter isStalled: whether the upload under way makes no progress (`UploadStatus.stall`). It matters for
    ///   sent requests alone.
    public init(_ state: RequestState, isStalled: Bool = false) {
      switch state {
      case .queued: self = .nextSync
      case .sent, .unknownOutcome: self = isStalled ? .stalledUpload : .answer
      case .refused, .kept: self = .person
      case .blocked: self = .request
      case .displaced: self = .room
      }
    }
  }

  /// What is not asked for here has its default: no needs, no attempts, no times. `waitsFor` follows from the state.
  public init(
    id: RequestID, table: String, key: Key, operation: Operation, before: [NamedValue], after: [NamedValue],
    state: RequestState, reason: String? = nil, status: Int? = nil, message: String? = nil,
    dependents: [RequestID] = [], tag: String? = nil
  ) {
    self.id = id
    self.table = table
    self.key = key
    self.operation = operation
    self.before = before
    self.after = after
    self.state = state
    self.reason = reason
    self.status = status
    self.message = message
    self.dependents = dependents
    self.tag = tag
    waitsFor = WaitsFor(state)
  }
}

/// One column of a row, with its value.
public struct NamedValue: Sendable, Hashable {
  /// The column's name, as the schema or the stored row writes it.
  public var name: String
  /// `Value.null` where the column is NULL.
  public var value: Value
  /// A column's name and its value.
  public init(_ name: String, _ value: Value) {
    self.name = name
    self.value = value
  }
}
