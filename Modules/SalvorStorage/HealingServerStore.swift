import SalvorModel
import SalvorWire

/// A server store that takes offers (semantics 10): changes of an upload that bring back what it lost with a restore
/// (`UploadedChange.offer`). A store without it tells devices so, and they keep what was lost in their archives.
///
/// What becomes of an offered column:
///
/// | the server has | then |
/// | --- | --- |
/// | what an ordinary write made of it after the parting | stands; the offered value is a conflict version |
/// | what an older version's offer made of it | the offered value |
/// | what a newer version's offer made of it, or the same one's | stands; nothing is kept |
/// | what an offer made of it, and nobody can tell which is newer | stands; the offered value is a conflict version |
/// | what it was at the parting | the offered value |
///
/// A delete is a version of all columns. An offer of a commit that the server has is refused (`not-lost`).
///
/// An offer **waits** (`UploadResults.waiting`), and changes nothing, where its row needs a parent that is neither there nor in the
/// upload, until that comes; and where it needs the operator's consent (`ServerSetup.reviewsOffers`, the table's `heal: "review"`,
/// `Offer.isForReview`), or healing is paused. What waits is settled by the same rules, as an upload of its own. An offer that
/// would change nothing does not wait.
public protocol HealingServerStore: RecoveringServerStore {
  /// What waits, oldest first, each with its row as it is now; at most `limit` after the place `after` (0: from the first).
  func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer]

  /// How much waits, by restore, table, remote, operation and reason.
  func waitingOffers() async throws -> [WaitingCount]

  /// The operator accepts what waits for his consent: it is settled now. What lacks a parent goes on waiting for that.
  ///
  /// - Returns: how many offers were settled, or wait for a parent now.
  func acceptOffers(_ query: WaitingQuery) async throws -> Int64

  /// The operator rejects what waits: it is refused (`rejected`), and each device is told when it sends it again.
  ///
  /// - Returns: how many offers.
  func rejectOffers(_ query: WaitingQuery) async throws -> Int64

  /// The remote takes back offers of its own: those that wait are forgotten. One that was settled meanwhile stays settled.
  ///
  /// - Returns: how many of them had waited, deletes aside.
  func withdrawOffers(_ ids: [RequestID], of remote: RemoteID) async throws -> Int64

  /// Settles what waits and may go on: its parent is there, healing goes on again, or the rate allows it. Cheap where nothing does.
  func settleWaitingOffers() async throws

  /// How fast offers are settled now.
  func healPace() async throws -> HealPace

  /// Pauses healing, lets it go on, or bounds it. Kept over restarts of the server. What may go on now is settled
  /// before this returns. Throws `not-found` where the store cannot do it.
  func setHealPace(_ pace: HealPace) async throws
}

extension HealingServerStore {
  /// None: for stores in which nothing waits.
  public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer] { [] }
  /// None.
  public func waitingOffers() async throws -> [WaitingCount] { [] }
  /// There are none to accept.
  public func acceptOffers(_ query: WaitingQuery) async throws -> Int64 { 0 }
  /// There are none to reject.
  public func rejectOffers(_ query: WaitingQuery) async throws -> Int64 { 0 }
  /// None had waited.
  public func withdrawOffers(_ ids: [RequestID], of remote: RemoteID) async throws -> Int64 { 0 }
  /// Does nothing.
  public func settleWaitingOffers() async throws {}
  /// Not paused, and not bounded.
  public func healPace() async throws -> HealPace { HealPace() }
  /// Throws `not-found`.
  public func setHealPace(_ pace: HealPace) async throws {
    throw SalvorError(.notFound, "This server's storage module cannot pause healing. Use the storage \"sqlite\".")
  }
}

/// How fast offers are settled, over all devices.
public struct HealPace: Sendable, Hashable {
  /// None is: all wait.
  public var isPaused: Bool
  /// So many rows a second; nil: as they come.
  public var rowsPerSecond: Int64?
  /// By default offers are settled as they come.
  public init(isPaused: Bool = false, rowsPerSecond: Int64? = nil) {
    self.isPaused = isPaused
    self.rowsPerSecond = rowsPerSecond
  }

  /// `{"paused":BOOLEAN,"rowsPerSecond":NUMBER or null}`.
  public var json: JSONValue {
    ["paused": .bool(isPaused), "rowsPerSecond": rowsPerSecond.map(JSONValue.integer) ?? .null]
  }
}

/// Which of the offers that wait.
public struct WaitingQuery: Sendable, Hashable {
  /// Of the restore with this ID; nil: of all.
  public var restore: Int64?
  /// Of this table; nil: of all.
  public var table: String?
  /// Sent by this remote; nil: by any.
  public var remote: RemoteID?
  /// By default all that wait.
  public init(restore: Int64? = nil, table: String? = nil, remote: RemoteID? = nil) {
    self.restore = restore
    self.table = table
    self.remote = remote
  }
}

/// Why an offer waits.
public enum WaitingReason: String, Sendable, CaseIterable {
  /// A row that it references is not there.
  case parent
  /// The operator has not accepted it.
  case review
  /// Healing is paused.
  case paused
  /// More rows came than `HealPace.rowsPerSecond` lets pass.
  case rate
}

/// An offer that the server holds.
public struct WaitingOffer: Sendable, Hashable {
  /// Its place in the list.
  public var place: Int64
  /// The ID of the restore that lost it (`RestoreRecord.id`); 0: not known.
  public var restore: Int64
  /// Under this ID its device sends it again.
  public var request: RequestID
  /// The device that sent it.
  public var remote: RemoteID
  /// The principal's name.
  public var principal: String
  /// When it came, in milliseconds since 1970.
  public var time: Int64
  /// The name of its table.
  public var table: String
  /// The row's, in the order of `Table.primaryKey`.
  public var key: Key
  /// What it would do with the row.
  public var operation: Operation
  /// The lost commit that it would bring back.
  public var version: LostVersion
  /// Why it waits.
  public var reason: WaitingReason
  /// The row that it waits for; nil: it waits for something else.
  public var parent: ParentRow?
  /// What it would write; of a delete nothing.
  public var values: [NamedValue]
  /// The row as it is now; nil: there is none.
  public var present: [NamedValue]?

  /// A row that others reference.
  public struct ParentRow: Sendable, Hashable {
    /// The table's name.
    public var table: String
    /// The row's, in the order of `Table.primaryKey`.
    public var key: Key
    /// All parts given.
    public init(table: String, key: Key) {
      self.table = table
      self.key = key
    }
  }

  /// All parts given.
  public init(
    place: Int64, restore: Int64, request: RequestID, remote: RemoteID, principal: String, time: Int64, table: String,
    key: Key, operation: Operation, version: LostVersion, reason: WaitingReason, parent: ParentRow?,
    values: [NamedValue], present: [NamedValue]?
  ) {
    self.place = place
    self.restore = restore
    self.request = request
    self.remote = remote
    self.principal = principal
    self.time = time
    self.table = table
    self.key = key
    self.operation = operation
    self.version = version
    self.reason = reason
    self.parent = parent
    self.values = values
    self.present = present
  }

  /// An entry of `GET restores/ID/waiting` (docs/reference/administration.md). Holds values of rows.
  public var json: JSONValue {
    func object(_ values: [NamedValue]) -> JSONValue {
      .object(values.map { JSONValue.Member($0.name, JSONValue($0.value)) })
    }
    return [
      "place": .integer(place), "restore": .integer(restore), "request": .string(request.description),
      "remote": .string(remote.text), "principal": .string(principal), "time": .integer(time), "table": .string(table),
      "key": .array(key.map { JSONValue($0) }), "operation": .string(operation.rawValue),
      "lost": ["incarnation": .string(version.incarnation.text), "commit": .integer(version.number)],
      "reason": .string(reason.rawValue),
      "parent": parent.map { ["table": .string($0.table), "key": .array($0.key.map { JSONValue($0) })] } ?? .null,
      "offered": values.isEmpty ? .null : object(values), "present": present.map(object) ?? .null,
    ]
  }
}

/// How many offers of one kind wait.
public struct WaitingCount: Sendable, Hashable {
  /// The ID of the restore that lost them (`RestoreRecord.id`); 0: not known.
  public var restore: Int64
  /// The name of their table.
  public var table: String
  /// The device that sent them.
  public var remote: RemoteID
  /// What they would do with their rows.
  public var operation: Operation
  /// Why they wait.
  public var reason: WaitingReason
  /// At least 1.
  public var count: Int64
  /// All parts given.
  public init(
    restore: Int64, table: String, remote: RemoteID, operation: Operation, reason: WaitingReason, count: Int64
  ) {
    self.restore = restore
    self.table = table
    self.remote = remote
    self.operation = operation
    self.reason = reason
    self.count = count
  }

  /// An entry of `waiting` of its restore, which is why it does not name that.
  public var json: JSONValue {
    [
      "table": .string(table), "remote": .string(remote.text), "operation": .string(operation.rawValue),
      "reason": .string(reason.rawValue), "count": .integer(count),
    ]
  }
}
