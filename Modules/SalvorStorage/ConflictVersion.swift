import SalvorModel

/// What a client wanted of one row, kept beside what the server has, for a person (semantics 7, `keep-versions`). Every
/// row of a request that is kept has one, also those without a conflict of their own: the request stands or falls as a
/// whole.
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
  /// Nil: open.
  public var resolution: Resolution?

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
    public init(
      remote: RemoteID, principal: String, time: Int64, made: Int64, operation: Operation, columns: [ConflictColumn]
    ) {
      self.remote = remote
      self.principal = principal
      self.time = time
      self.made = made
      self.operation = operation
      self.columns = columns
    }
  }

  public struct ServerSide: Sendable, Hashable {
    /// Every column that travels, when the version was kept; nil: there was no row.
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

  public init(
    id: Int64, first: Int64, table: String, key: Key, request: RequestID, client: ClientSide, server: ServerSide,
    resolution: Resolution? = nil
  ) {
    self.id = id
    self.first = first
    self.table = table
    self.key = key
    self.request = request
    self.client = client
    self.server = server
    self.resolution = resolution
  }

  public var state: ConflictState { resolution == nil ? .open : .resolved }
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
  case open, resolved
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
