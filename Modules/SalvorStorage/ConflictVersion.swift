import SalvorModel

/// One conflict: what a client wanted of a row, beside what the server had (semantics 7).
///
/// Kept for a person (`keep-versions`): every row of the request has one, also those without a conflict of their own, since
/// the request stands or falls as a whole. Settled by the table's policy (`policy`): a record of the row in conflict and of
/// what it was before, so that no value is overwritten in silence.
public struct ConflictVersion: Sendable, Hashable {
  /// From 1, never used again.
  public var id: Int64
  /// The ID of the first version of the same request; they are resolved together.
  public var first: Int64
  public var table: String
  public var key: Key
  public var request: RequestID
  public var client: ClientSide
  public var server: ServerSide
  /// How a person resolved it; nil: open, or settled by `policy`.
  public var resolution: Resolution?
  /// How the table's policy settled it when the upload was processed; nil: it was kept for a person.
  public var settlement: Settlement?

  public struct ClientSide: Sendable, Hashable {
    public var remote: RemoteID
    /// The name of the principal who sent it.
    public var principal: String
    /// Milliseconds since 1970, when the server kept it.
    public var time: Int64
    /// The number of the commit that the change was made on.
    public var made: Int64
    public var operation: Operation
    /// The columns that it changes, with what the client saw and what it wants; of a delete none.
    public var columns: [ConflictColumn]
    /// Not nil: it is no new change, but what an offer would bring back (semantics 10).
    public var offer: LostVersion?
    public init(
      remote: RemoteID, principal: String, time: Int64, made: Int64, operation: Operation, columns: [ConflictColumn],
      offer: LostVersion? = nil
    ) {
      self.offer = offer
      self.remote = remote
      self.principal = principal
      self.time = time
      self.made = made
      self.operation = operation
      self.columns = columns
    }
  }

  public struct ServerSide: Sendable, Hashable {
    /// Every column that travels, when the version was kept, or just before the policy settled it; nil: there was no row.
    public var row: [NamedValue]?
    /// The newest commit after the one that the client's change was made on that changed the row, others' than this
    /// remote's; nil where there is none, or none that the log still has.
    public var commit: Int64?
    /// When that commit was made, in milliseconds since 1970.
    public var time: Int64?
    /// Whose upload it was, and of which principal; nil: another program's of the server.
    public var remote: RemoteID?
    public var principal: String?
    public init(
      row: [NamedValue]?, commit: Int64? = nil, time: Int64? = nil, remote: RemoteID? = nil, principal: String? = nil
    ) {
      self.row = row
      self.commit = commit
      self.time = time
      self.remote = remote
      self.principal = principal
    }
  }

  public struct Resolution: Sendable, Hashable {
    public var keep: ConflictSide
    /// Milliseconds since 1970.
    public var time: Int64
    /// Who resolved it.
    public var by: String
    public init(keep: ConflictSide, time: Int64, by: String) {
      self.keep = keep
      self.time = time
      self.by = by
    }
  }

  public struct Settlement: Sendable, Hashable {
    /// The policy's name.
    public var policy: String
    /// What became of the row: every column that travels; nil: it was deleted.
    public var row: [NamedValue]?
    public init(policy: String, row: [NamedValue]?) {
      self.policy = policy
      self.row = row
    }
  }

  public init(
    id: Int64, first: Int64, table: String, key: Key, request: RequestID, client: ClientSide, server: ServerSide,
    resolution: Resolution? = nil, settlement: Settlement? = nil
  ) {
    self.settlement = settlement
    self.id = id
    self.first = first
    self.table = table
    self.key = key
    self.request = request
    self.client = client
    self.server = server
    self.resolution = resolution
  }

  public var state: ConflictState {
    if settlement != nil { return .settled }
    return resolution == nil ? .open : .resolved
  }

  /// Of a settled conflict: the server's values that were overwritten; of a deleted row all of them.
  public var lostOfServer: [NamedValue] {
    guard let settlement, let before = server.row else { return [] }
    return before.filter { value in settlement.row?.first { $0.name == value.name }?.value != value.value }
  }

  /// Of a settled conflict: the client's values that the policy did not take.
  public var lostOfClient: [NamedValue] {
    guard let row = settlement?.row else { return [] }
    return client.columns.compactMap { column in
      let stands = row.first { $0.name == column.name }?.value == column.new
      return stands ? nil : NamedValue(column.name, column.new)
    }
  }
}

/// A conflict version beside its row as it is now.
public struct ConflictRow: Sendable, Hashable {
  public var version: ConflictVersion
  /// Every column that travels; nil: there is no row.
  public var present: [NamedValue]?
  public init(version: ConflictVersion, present: [NamedValue]?) {
    self.version = version
    self.present = present
  }
}

public enum ConflictState: String, Sendable, CaseIterable {
  /// It waits for a person.
  case open
  /// A person has resolved it.
  case resolved
  /// The table's policy settled it at once.
  case settled
}

/// Whose version stands once a conflict is resolved.
public enum ConflictSide: String, Sendable, CaseIterable {
  case client, server
}

/// The errors of `ServerStore.resolveConflict`, worded alike whatever the store.
extension SalvorError {
  public static func noConflict(_ id: Int64) -> SalvorError {
    SalvorError(.notFound, "There is no conflict version \(id). salvor conflicts lists them.")
  }

  public static func conflictResolved(_ version: ConflictVersion, _ resolution: ConflictVersion.Resolution)
    -> SalvorError
  {
    SalvorError(
      .conflictResolved,
      "Conflict version \(version.id) was resolved before: the \(resolution.keep.rawValue)'s was kept. Nothing was changed. Change the row itself if it is to be otherwise.",
      context: ["id": "\(version.id)", "keep": resolution.keep.rawValue])
  }

  public static func conflictSettled(_ version: ConflictVersion, by policy: String) -> SalvorError {
    SalvorError(
      .conflictResolved,
      "Conflict \(version.id) was settled by the policy \(policy) when the upload was processed. Nothing was changed. Change the row itself if it is to be otherwise.",
      context: ["id": "\(version.id)", "policy": policy])
  }

  /// - Parameter reason: what the client's version would be refused with.
  public static func conflictUnresolvable(_ version: ConflictVersion, _ reason: RefusalReason, _ why: String)
    -> SalvorError
  {
    SalvorError(
      .conflictUnresolvable,
      "The client's version of conflict \(version.id) cannot be written: \(why) Nothing was changed. Change the rows first, or keep the server's.",
      context: ["id": "\(version.id)", "reason": reason.rawValue, "table": version.table])
  }

  public static func conflictUnresolvable(deleted version: ConflictVersion) -> SalvorError {
    conflictUnresolvable(version, .rowDeleted, "the row of \(version.table) was deleted meanwhile.")
  }

  /// - Parameter column: nil: the table is gone.
  public static func conflictUnresolvable(_ version: ConflictVersion, gone column: String?) -> SalvorError {
    guard let column else {
      return conflictUnresolvable(version, .unknownTable, "the table \(version.table) is no longer synchronized.")
    }
    return conflictUnresolvable(
      version, .unknownColumn, "\(version.table) has no column \(column) any more.")
  }
}
