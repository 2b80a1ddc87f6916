import SalvorModel

/// A page of the remote databases, in the order of their IDs.
public struct RemoteQuery: Sendable, Hashable {
  /// Which remotes are meant, by what an operator has done with them.
  public enum State: String, Sendable, CaseIterable {
    /// Neither blocked nor deleted.
    case known
    /// An operator keeps it out.
    case blocked
    /// An operator deleted it, and it may register again.
    case deleted
    /// An operator demands that it recovers.
    case resetDemanded = "reset-demanded"
  }

  /// After this one; nil: from the first.
  public var after: RemoteID?
  /// At most so many are answered with.
  public var limit: Int
  /// Nil: remotes in every state.
  public var state: State?
  /// Only those of the principal of this name; nil: of all.
  public var principal: String?
  /// Only those that have not uploaded since then, milliseconds since 1970; one that never has counts from its registration.
  public var unseenSince: Int64?

  /// By default every remote, from the first.
  public init(
    after: RemoteID? = nil, limit: Int, state: State? = nil, principal: String? = nil, unseenSince: Int64? = nil
  ) {
    self.after = after
    self.limit = limit
    self.state = state
    self.principal = principal
    self.unseenSince = unseenSince
  }

  /// Whether the query asks for this remote; `limit` plays no part.
  public func matches(_ remote: RemoteRecord) -> Bool {
    if let after, remote.id.text <= after.text { return false }
    if let principal, !remote.principal.isSameName(as: principal) { return false }
    if let unseenSince, remote.lastUpload ?? remote.registered >= unseenSince { return false }
    switch state {
    case nil: return true
    case .known: return !remote.isBlocked && !remote.isDeleted
    case .blocked: return remote.isBlocked
    case .deleted: return remote.isDeleted && !remote.isBlocked
    case .resetDemanded: return remote.isResetDemanded && !remote.isDeleted
    }
  }
}
