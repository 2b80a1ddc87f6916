import SalvorModel

/// One remote database, as the server knows it.
public struct RemoteRecord: Sendable, Hashable {
  /// The ID that the device drew for its database.
  public var id: RemoteID
  /// The name of the principal that it registered with; it stays with that one.
  public var principal: String
  /// An administrator keeps it out: it cannot register again.
  public var isBlocked: Bool
  /// An administrator deleted it; its old IDs are kept.
  public var isDeleted: Bool
  /// S, the stored sequence ID.
  public var sequence: SequenceID?
  /// Milliseconds since 1970.
  public var registered: Int64
  /// When its last upload was processed, in milliseconds since 1970; nil: it has uploaded nothing.
  public var lastUpload: Int64?
  /// The operator's demand that it recovers, by its number; nil: there is none.
  public var resetDemand: Int64?
  /// An operator demands that it recovers, and it has not done so yet.
  public var isResetDemanded: Bool { resetDemand != nil }
  /// By default no reset is demanded.
  public init(
    id: RemoteID, principal: String, isBlocked: Bool, isDeleted: Bool, sequence: SequenceID?, registered: Int64,
    lastUpload: Int64?, resetDemand: Int64? = nil
  ) {
    self.id = id
    self.principal = principal
    self.isBlocked = isBlocked
    self.isDeleted = isDeleted
    self.sequence = sequence
    self.registered = registered
    self.lastUpload = lastUpload
    self.resetDemand = resetDemand
  }
}
