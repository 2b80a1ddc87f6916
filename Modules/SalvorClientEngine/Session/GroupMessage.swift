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

extension ClientConfiguration {
  /// What the device subscribes to now, with the values that its personalization keys have, and what of it brings nothing
  /// for want of one, or because no table is chosen by its parameter (any more).
  ///
  /// - Parameter known: what the database has; nil: it is asked.
  func resolvedSubscriptions(
    _ known: DeviceSettings? = nil
  ) async throws -> (subscriptions: ResolvedSubscriptions, notices: [String]) {
    let settings = if let known { known } else { try await store.deviceSettings() }
    var (subscriptions, notices) = settings.resolved(schema.parameters)
    guard settings.subscriptions.contains(where: { !$0.parameters.isEmpty }) else { return (subscriptions, notices) }
    let tables = Schema(tables: try await store.history().tables)
    subscriptions = subscriptions.usable(in: tables)
    for subscription in settings.sortedSubscriptions {
      let unknown = subscription.parameters.keys.filter {
        !tables.parameters(ofTarget: subscription.target).contains($0)
      }
      if unknown.isEmpty { continue }
      let usable = tables.parameters(ofTarget: subscription.target).sorted()
      notices.append(
        "No table of \(subscription.target) is chosen by \(unknown.sorted().joined(separator: ", ")) in the server's schema: "
          + (usable.isEmpty
            ? "the subscription \(subscription.text) counts for nothing, and every row comes that your credential allows. Take it back (salvor unsubscribe)."
            : "the subscription \(subscription.text) brings nothing. Take it back (salvor unsubscribe), and subscribe by \(usable.joined(separator: " or ")).")
      )
    }
    return (subscriptions, notices)
  }
}

extension SyncReport {
  /// Adds what it does not say yet.
  mutating func note(_ more: [String]) { notices += more.filter { !notices.contains($0) } }
}
