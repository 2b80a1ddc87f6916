import SalvorModel
import SalvorStorage
import SalvorWire

extension BeginMessage.Group {
  /// The group as the device has it.
  init(_ state: GroupState) {
    self.init(
      name: state.name, cursor: state.cursor, scope: state.scopeDigest, subscriptions: state.subscriptions)
  }
}

extension SalvorClient.Configuration {
  /// What the device subscribes to now, with the values that its personalization keys have, and what of it brings nothing
  /// for want of one.
  func resolvedSubscriptions() async throws -> (subscriptions: ResolvedSubscriptions, notices: [String]) {
    try await store.deviceSettings().resolved(schema.parameters)
  }
}
