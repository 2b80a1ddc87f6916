import SalvorModel

/// What a person does with requests that are not settled: deletes, withdraws, sends again (semantics 8). Nothing here needs
/// an upload. A part of every `ClientStore`. Contract: `ClientStoreContract.archiving`.
///
/// Removing a request is the move that a settled one makes: it leaves the queue, and the rows that it touched are made anew
/// from base ⊕ the requests that remain.
public protocol RequestKeeping: Sendable {
  /// What `remove` would answer; nothing is written.
  func plan(_ removal: RequestRemoval) async throws -> RemovalReport

  /// Takes requests out of the queue or the archive, as wholes, with everything that has to go with them.
  ///
  /// Throws `not-found` where the request named is not there, or not in a state that the removal is for, and
  /// `outcome-unknown` where something that would go belongs to an upload whose outcome is not known: sync first.
  /// Nothing is changed then.
  func remove(_ removal: RequestRemoval) async throws -> RemovalReport

  /// Makes failed requests (`refused`, `blocked`) wait again: each one, with the outstanding requests on its rows, is one
  /// request under a new ID, made on the rows as they are now, and its old IDs are its history. Failed requests that one of
  /// them depends on come along. A displaced request stands again where nothing is in its way any more.
  ///
  /// - Parameter ids: nil: every failed and displaced request.
  ///
  /// Throws `not-found` for an ID that is neither failed nor displaced, and `outcome-unknown` where the rows of one have a
  /// request in an upload whose outcome is not known. Nothing is changed then.
  func retry(_ ids: Set<RequestID>?) async throws -> RetryReport

  /// Does again what a kept entry did, as a new request on the rows as they are now, tagged as it was. The entry leaves the
  /// archive, and its ID is the new one's history. Nil: the rows were so already, and there is nothing to send.
  ///
  /// Where the schema has changed since, it is applied as far as its columns are there now, under their names of now; what it
  /// says of others stays in the archive.
  ///
  /// Throws `not-found` where there is no kept entry of this ID, and `cannot-stand` where the tables as they are do not take
  /// it: its row is gone, a constraint is in its way, or the table or every column of it is not in the schema, which the
  /// message names. Nothing is changed then.
  func reapply(_ kept: RequestID) async throws -> RequestID?

  /// Queued requests of one change each, without a tag, that are all there is on a row become one under a new ID; where
  /// nothing is left of them (an insert and its delete), none. Rows that other requests were built on stay as they are.
  /// Answers how many requests there are less. Nothing is done while an upload is under way.
  func optimiseQueue() async throws -> Int

  /// Every change of one request, in any state. Empty: there is none of this ID.
  func request(_ id: RequestID) async throws -> [QueuedRequest]

  /// A session ended before the outcome of its upload was known. Where no upload is under way, nothing is written.
  func noteUploadFailure(_ failure: UploadFailure) async throws
}

/// What a person takes out of the queue or the archive.
public enum RequestRemoval: Sendable, Hashable {
  /// Deletion in whole mode: all that is refused, blocked or displaced goes. What was queued since stays, unless it cannot
  /// stand without what went. Names the entry that a person asked for; nil: none in particular.
  case archive(RequestID?)
  /// Deletion in individual mode: this refused, blocked or displaced request and all that depend on it, sent or unsent.
  case entry(RequestID)
  /// This queued request and all that depend on it.
  case withdraw(RequestID)
  /// One entry that a recovery kept.
  case kept(RequestID)
  /// Every entry that a recovery kept.
  case allKept
}

/// What a removal takes out, and what it leaves otherwise than it was.
public struct RemovalReport: Sendable, Hashable {
  /// Everything that goes, in the order of the queue.
  public var requests: [RemovedRequest] = []
  /// The rows that are made anew, in the order of the schema's tables and of the keys.
  public var rows: [RemadeRow] = []
  /// Displaced requests that stand again, since what was in their way is gone.
  public var returned: [RequestID] = []
  /// Requests that stay, and that cannot stand any more (semantics 2).
  public var displaced: [RequestID] = []
  /// Nothing goes yet.
  public init() {}
}

/// A request that a removal takes out.
public struct RemovedRequest: Sendable, Hashable {
  /// The ID of the request, which no other ever gets.
  public var id: RequestID
  /// With the values that go, and the state that the request was in.
  public var changes: [QueuedRequest]
  /// Why this one goes.
  public var cause: RemovalCause
  /// A request with all of its changes, and why it goes.
  public init(id: RequestID, changes: [QueuedRequest], cause: RemovalCause) {
    self.id = id
    self.changes = changes
    self.cause = cause
  }
}

/// Why a request goes.
public enum RemovalCause: Sendable, Hashable, CustomStringConvertible {
  /// A person named it, or asked for all of its kind.
  case askedFor
  /// It is in the archive, which is emptied.
  case archived
  /// This other one goes, and it depends on that.
  case dependsOn(RequestID)
  /// What it changes or references is not there without this one.
  case cannotStand(without: RequestID)

  /// For people and `--json`, e.g. `depends-on`; the request named is `request`.
  public var name: String {
    switch self {
    case .askedFor: "asked-for"
    case .archived: "archived"
    case .dependsOn: "depends-on"
    case .cannotStand: "cannot-stand-without"
    }
  }

  /// The request on whose account this one goes. Nil: it goes on its own account.
  public var request: RequestID? {
    switch self {
    case .askedFor, .archived: nil
    case .dependsOn(let id), .cannotStand(let id): id
    }
  }

  /// For people: the name, and the request where there is one.
  public var description: String { request.map { "\(name) \($0)" } ?? name }
}

/// A row whose values follow again from its base and the requests that remain.
public struct RemadeRow: Sendable, Hashable {
  /// The name of the row's table.
  public var table: String
  /// The row's primary key.
  public var key: Key
  /// A row by its table and key.
  public init(table: String, key: Key) {
    self.table = table
    self.key = key
  }
}

/// What became of each request that was sent again, or that went into one, in the order of the queue.
public struct RetryReport: Sendable, Hashable {
  /// Each by the ID that it had before.
  public var requests: [RetriedRequest] = []
  /// By default nothing was sent again.
  public init(requests: [RetriedRequest] = []) { self.requests = requests }
}

/// What became of one request that was to be sent again.
public struct RetriedRequest: Sendable, Hashable {
  /// Where a request is after a retry.
  public enum Outcome: Sendable, Hashable {
    /// It is in the queue, as this request.
    case queued(RequestID)
    /// The rows are so already: there is nothing to send, and the request is gone.
    case nothingLeft
    /// It was displaced and stands again.
    case stands
    /// Something is still in its way.
    case displaced
  }
  /// As it was.
  public var id: RequestID
  /// Where it is now.
  public var outcome: Outcome
  /// A request by its old ID, and what became of it.
  public init(id: RequestID, outcome: Outcome) {
    self.id = id
    self.outcome = outcome
  }
}

extension SalvorError {
  /// A request that is not there, or not in a state for what was asked.
  ///
  /// - Parameters:
  ///   - state: that it has; nil: there is no such request.
  ///   - now: the request that it was sent again as, or went into.
  public static func requestNotFound(_ id: RequestID, state: RequestState?, now: RequestID?) -> SalvorError {
    let what =
      switch state {
      case .queued: "The request \(id) waits in the queue. Withdraw it, or sync."
      case .sent, .unknownOutcome: "The request \(id) belongs to an upload whose outcome is not known. Sync first."
      case .refused, .blocked, .displaced: "The request \(id) is in the error archive (\(state?.rawValue ?? ""))."
      case .kept: "The entry \(id) was kept by a recovery. Reapply it, or delete it as a kept one."
      case nil:
        now.map { "The request \(id) was sent again as \($0)." }
          ?? "There is no request \(id). List the queue and the error archive."
      }
    return SalvorError(.notFound, what, context: ["request": "\(id)"])
  }

  /// A request whose upload may have been taken in already.
  public static func outcomeUnknown(_ id: RequestID, _ sequence: SequenceID) -> SalvorError {
    SalvorError(
      .outcomeUnknown,
      "The request \(id) belongs to an upload whose outcome is not known: the server may have taken it in. Sync first.",
      context: ["request": "\(id)", "sequence": "\(sequence)"])
  }
  /// `usage`: results are for an upload that this database has not begun, or has ended.
  public static var noSuchUpload: SalvorError {
    SalvorError(.usage, "No upload with this sequence ID is under way. Begin a session first.")
  }
  /// A change that the tables as they are do not take.
  public static func cannotStand(_ id: RequestID, table: String, _ why: String) -> SalvorError {
    SalvorError(
      .cannotStand, "\(id) cannot be reapplied to the table \(table). \(why)",
      context: ["request": "\(id)", "table": table])
  }
}
