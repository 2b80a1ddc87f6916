import SalvorModel

/// What somebody chose on a device: personalization keys and subscriptions (semantics 1). A recovery keeps or loses them as
/// its strategy declares (`RecoveryGuarantees.settings`).
public struct DeviceSettings: Sendable, Hashable {
  /// The table `salvor_setting`: personalization keys by name.
  public var settings: [String: Value]
  /// The table `salvor_subscription`: by target (a table or a group) the parameters by name.
  public var subscriptions: [String: [String: Value]]
  public init(settings: [String: Value] = [:], subscriptions: [String: [String: Value]] = [:]) {
    self.settings = settings
    self.subscriptions = subscriptions
  }
}
