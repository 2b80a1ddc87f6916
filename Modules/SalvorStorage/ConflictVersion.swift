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
  /// The table's name.
  public var table: String
  /// The row's, in the order of `Table.primaryKey`.
  public var key: Key
  /// The client's request.
  public var request: RequestID
  /// What the client wanted, and who it was.
  public var client: ClientSide
  /// What the server had, and who had written it.
  public var server: ServerSide
  /// How a person resolved it; nil: open, or settled by `policy`.
  public var resolution: Resolution?
  /// How the table's policy settled it when the upload was processed; nil: it was kept for a person.
  public var settlement: Settlement?

  /// What a client wanted of a row.
  public struct ClientSide: Sendable, Hashable {
    /// The device that sent it.
    public var remote: RemoteID
    /// The name of the principal who sent it.
    public var principal: String
    /// Milliseconds since 1970, when the server kept it.
    public var time: Int64
    /// The number of the commit that the change was made on.
    public var made: Int64
    /// What the client did with the row.
    public var operation: Operation
    /// The columns that it changes, with what the client saw and what it wants; of a delete none.
    public var columns: [ConflictColumn]
    /// Not nil: it is no new change, but what an offer would bring back (semantics 10).
    public var offer: LostVersion?
    /// By default it is a new change, and no offer.
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

  /// What the server had in the place of the row.
  public struct ServerSide: Sendable, Hashable {
    /// Every column that travels, when the version was kept, or just before the policy settled it; nil: there was no row.
    public var row: [NamedValue]?
    /// The newest commit after the one that the client's change was made on that changed the row, others' than this
    /// remote's; nil where there is none, or none that the log still has.
    public var commit: Int64?
    /// When that commit was made, in milliseconds since 1970.
    public var time: Int64?
    /// Whose upload it was; nil: another program's of the server, or no such commit is known.
    public var remote: RemoteID?
    /// The name of the principal who sent that upload; nil: not known.
    public var principal: String?
    /// By default nothing is known of who had written the row.
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

  /// What a person decided.
  public struct Resolution: Sendable, Hashable {
    /// Whose version stands, in every row of the request.
    public var keep: ConflictSide
    /// Milliseconds since 1970.
    public var time: Int64
    /// Who resolved it.
    public var by: String
    /// All parts given.
    public init(keep: ConflictSide, time: Int64, by: String) {
      self.keep = keep
      self.time = time
      self.by = by
    }
  }

  /// What the table's policy decided.
  public struct Settlement: Sendable, Hashable {
    /// The policy's name.
    public var policy: String
    /// What became of the row: every column that travels; nil: it was deleted.
    public var row: [NamedValue]?
    /// All parts given.
    public init(policy: String, row: [NamedValue]?) {
      self.policy = policy
      self.row = row
    }
  }

  /// By default it is open: it waits for a person.
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

  /// Who has settled it, if anybody has.
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
  /// As it was kept, with its resolution if there is one.
  public var version: ConflictVersion
  /// Every column that travels; nil: there is no row.
  public var present: [NamedValue]?
  /// All parts given.
  public init(version: ConflictVersion, present: [NamedValue]?) {
    self.version = version
    self.present = present
  }
}

/// How far a conflict is settled.
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
  /// With `client` its version is written into the rows; with `server` they stay as they are.
  case client, server
}

/// The errors of `ServerStore.resolveConflict`, worded alike whatever the store.
extension SalvorError {
  /// `not-found`: no conflict version has this ID.
  public static func noConflict(_ id: Int64) -> SalvorError {
    SalvorError(.notFound, "There is no conflict version \(id). salvor conflicts lists them.")
  }

  /// `conflict-resolved`: a person has resolved it before.
  public static func conflictResolved(_ version: ConflictVersion, _ resolution: ConflictVersion.Resolution)
    -> SalvorError
  {
    SalvorError(
      .conflictResolved,
      "Conflict version \(version.id) was resolved before: the \(resolution.keep.rawValue)'s was kept. Nothing was changed. Change the row itself if it is to be otherwise.",
      context: ["id": "\(version.id)", "keep": resolution.keep.rawValue])
  }

  /// `conflict-resolved`: the policy of this name has settled it when the upload was processed.
  public static func conflictSettled(_ version: ConflictVersion, by policy: String) -> SalvorError {
    SalvorError(
      .conflictResolved,
      "Conflict \(version.id) was settled by the policy \(policy) when the upload was processed. Nothing was changed. Change the row itself if it is to be otherwise.",
      context: ["id": "\(version.id)", "policy": policy])
  }

  /// `conflict-unresolvable`: the client's version cannot stand.
  ///
  /// - Parameters:
  ///   - version: the one that a person wanted to keep.
  ///   - reason: what the client's version would be refused with.
  ///   - why: a sentence with its full stop.
  public static func conflictUnresolvable(_ version: ConflictVersion, _ reason: RefusalReason, _ why: String)
    -> SalvorError
  {
    SalvorError(
      .conflictUnresolvable,
      "The client's version of conflict \(version.id) cannot be written: \(why) Nothing was changed. Change the rows first, or keep the server's.",
      context: ["id": "\(version.id)", "reason": reason.rawValue, "table": version.table])
  }

  /// `conflict-unresolvable` with the reason `row-deleted`: the client updated a row that is gone.
  public static func conflictUnresolvable(deleted version: ConflictVersion) -> SalvorError {
    conflictUnresolvable(version, .rowDeleted, "the row of \(version.table) was deleted meanwhile.")
  }

  /// `conflict-unresolvable`: what the client changed is not in the schema any more.
  ///
  /// - Parameter column: nil: the table is gone.
  public static func conflictUnresolvable(_ version: ConflictVersion, gone column: String?) -> SalvorError {
    guard let column else {
      return conflictUnresolvable(version, .unknownTable, "the table \(version.table) is no longer synchronized.")
    }
    return conflictUnresolvable(
      version, .unknownColumn, "\(version.table) has no column \(column) any more.")
  }
}
