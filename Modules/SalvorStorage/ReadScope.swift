import SalvorModel

/// Whose rows are read: those that the principal may see, and of them those that the device has subscribed to. What a
/// device may write is the principal's alone.
public struct ReadScope: Sendable, Hashable {
  /// Who reads, with the values that each parameter may take.
  public var principal: Principal
  /// What the device has subscribed to; empty: everything that the principal may see.
  public var subscriptions: ResolvedSubscriptions

  /// - Parameter subscriptions: by default none: everything that the principal may see.
  public init(_ principal: Principal, _ subscriptions: ResolvedSubscriptions = ResolvedSubscriptions()) {
    self.principal = principal
    self.subscriptions = subscriptions
  }
}
