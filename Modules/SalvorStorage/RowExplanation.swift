import SalvorModel
import SalvorWire

/// Why a row is on one side, or not: what `salvor explain` says. No value of the row besides its key is in it.
public struct RowExplanation: Sendable, Hashable {
  /// One thing that bears on it.
  public struct Reason: Sendable, Hashable {
    /// `out-of-scope`, `deleted` …: for programs. The text is for people.
    public var code: String
    /// A sentence for people, which names what to look at.
    public var text: String
    /// A word for programs, and a sentence for people.
    public init(_ code: String, _ text: String) {
      self.code = code
      self.text = text
    }
  }

  /// Whose database it is about.
  public enum Side: String, Sendable {
    case device, server
  }

  /// Whose database it is about.
  public var side: Side
  /// The row's table.
  public var table: String
  /// The row's primary key: all that is said of its values.
  public var key: Key
  /// In the table, as an application reads it.
  public var isThere: Bool
  /// What decides stands first.
  public var reasons: [Reason] = []
  /// More for programs, by name.
  public var facts: [JSONValue.Member] = []

  /// An explanation without reasons and facts; add them.
  public init(side: Side, table: String, key: Key, isThere: Bool) {
    self.side = side
    self.table = table
    self.key = key
    self.isThere = isThere
  }

  /// Puts a reason behind those that are there.
  public mutating func add(_ code: String, _ text: String) { reasons.append(Reason(code, text)) }

  /// As `salvor explain --json` says it: the facts stand beside the other members.
  public var json: JSONValue {
    .object(
      [
        .init("side", .string(side.rawValue)), .init("table", .string(table)),
        .init("key", .array(key.map { JSONValue($0) })), .init("there", .bool(isThere)),
        .init("reasons", .array(reasons.map { ["code": .string($0.code), "text": .string($0.text)] })),
      ] + facts)
  }
}

// MARK: The device

/// A device's database that knows where a row comes from. A store without it synchronizes all the same.
public protocol ExplainingClientStore: ClientStore {
  /// What is known of a row of a synchronized table, whether it is there or not. Changes nothing.
  func facts(of table: String, _ key: Key) async throws -> DeviceRowFacts
}

/// What a device's database knows of one row.
public struct DeviceRowFacts: Sendable, Hashable {
  /// What the server last said of a row.
  public enum Base: Sendable, Hashable {
    /// It is there.
    case present
    case deleted
    /// It left what this device may see or has subscribed to.
    case left
  }

  /// In the table, as an application reads it.
  public var isThere = false
  /// Nil: nothing was said of it by itself; a row that is there and has no requests came with its group's first download.
  public var base: Base?
  /// The server's commit that the base stands at; nil: not known by itself.
  public var version: Int64?
  /// This device's own upload made that version.
  public var isOwnVersion = false
  /// No subscription covers it any more; it stays while a change waits.
  public var isLeaving = false
  /// Its table waits to be compared with the server's: triggers were away.
  public var isUnproven = false
  /// Those that change it, in order, in whatever state.
  public var requests: [QueuedRequest] = []
  /// Of a row of which nothing is known: it is not there.
  public init() {}
}

// MARK: The server

/// A server's database that knows where a row comes from.
public protocol ExplainingServerStore: ServerStore {
  /// What is known of a row of a synchronized table, whether it is there or not.
  ///
  /// - Parameter scopes: in which of these the row is asked for.
  func facts(of table: String, _ key: Key, in scopes: [ReadScope]) async throws -> ServerRowFacts
}

/// What the server's database knows of one row.
public struct ServerRowFacts: Sendable, Hashable {
  /// One entry of the change log.
  public struct Change: Sendable, Hashable {
    /// What was done to the row.
    public var operation: Operation
    /// Nil: not numbered yet.
    public var commit: Int64?
    /// Milliseconds since 1970.
    public var time: Int64?
    /// Whose upload it was, and of which principal; nil: another program's of the server.
    public var remote: RemoteID?
    /// The name of the principal whose upload it was; nil: another program's of the server.
    public var principal: String?
    /// By default nothing is known but the operation.
    public init(
      operation: Operation, commit: Int64? = nil, time: Int64? = nil, remote: RemoteID? = nil, principal: String? = nil
    ) {
      self.operation = operation
      self.commit = commit
      self.time = time
      self.remote = remote
      self.principal = principal
    }
  }

  /// In the server's table.
  public var isThere = false
  /// For each scope asked about, in order; empty where there is no row.
  public var findings: [ScopeFinding] = []
  /// Nil: the log has none; older than what is kept, or the row was there before Salvor.
  public var lastChange: Change?
  /// The last commit that the log has lost; 0: none.
  public var trimmed: Int64 = 0
  /// Its conflict versions, the newest first; a hundred at most.
  public var conflicts: [ConflictVersion] = []
  /// Of a row of which nothing is known: it is not there.
  public init() {}
}
