import SalvorModel

/// One change of a request as people see it (`queue --json`, `errors --json`).
public struct QueuedRequest: Sendable, Hashable {
  public var id: RequestID
  public var table: String
  public var key: Key
  public var operation: Operation
  /// Changed columns only for an update, all for an insert or delete: name and value. Empty: there was no row.
  public var before: [NamedValue]
  public var after: [NamedValue]
  public var state: RequestState
  public var reason: String?
  public var status: Int?
  public var message: String?
  /// All that depend on this request, in order, directly or through others.
  public var dependents: [RequestID]
  public var tag: String?
  /// All that this request depends on, in order, directly or through others.
  public var needs: [RequestID] = []
  /// Of a blocked request: the failed one that it depends on.
  public var blockedBy: RequestID?
  public var waitsFor = WaitsFor.nextSync
  /// How often it was sent, under this ID or an earlier one, and came back refused or without an answer.
  public var attempts = 0
  /// When it was captured, or when the store first met it; milliseconds since 1970. Nil: not noted.
  public var since: Int64?
  /// Milliseconds since 1970.
  public var lastAttempt: Int64?
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
    /// A person: edit the row, retry or delete; of a kept entry, reapply or delete.
    case person

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

public struct NamedValue: Sendable, Hashable {
  public var name: String
  public var value: Value
  public init(_ name: String, _ value: Value) {
    self.name = name
    self.value = value
  }
}
