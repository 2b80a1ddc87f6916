import SalvorModel
import SalvorStorage
import SalvorWire

/// The scopes in which a device's rows are compared and counted, by group: what each group's cursor was made with, so that
/// both sides mean the same rows; for a group that was never synchronized, what it is to be, or in a recovery what a group
/// that references it was made with. What has been subscribed to since comes with the download, as the difference of the two.
final class GroupScopes: Sendable {
  private let schema: Schema
  let subscriptions: [String: ResolvedSubscriptions]

  /// - Parameter subscriptions: by group.
  init(_ subscriptions: [String: ResolvedSubscriptions], in schema: Schema) {
    self.schema = schema
    self.subscriptions = subscriptions
  }

  /// - Parameter message: with the names of `schema` (`BeginMessage.following`).
  convenience init(_ message: BeginMessage, in schema: Schema, recovers: Bool = false) {
    let synchronized = message.groups.filter { $0.cursor != nil }.map { ($0.name, $0.subscriptions) }
    let had = Dictionary(synchronized) { first, _ in first }
    let new = (message.groups.map { ($0.name, $0.subscriptions) } + schema.groups.map { ($0.name, .init()) }).map {
      let beside = recovers ? schema.subscriptions(ofNewGroup: $0.0, beside: had) : nil
      return ($0.0, beside ?? message.subscriptions ?? $0.1)
    }
    self.init(Dictionary(synchronized + new) { first, _ in first }, in: schema)
  }

  func scope(ofGroup group: String, for principal: Principal) -> ReadScope {
    let all = ReadScope(principal, subscriptions[group] ?? ResolvedSubscriptions())
    // Devices that differ in other groups alone have one scope.
    return ReadScope(principal, all.subscriptions(ofGroup: group, in: schema))
  }

  func scope(ofTable table: String, for principal: Principal) -> ReadScope {
    scope(ofGroup: schema.table(table)?.group ?? "", for: principal)
  }
}

extension BeginMessage {
  /// With the names that tables have in `schema`: a device subscribes under those that it knows.
  func following(_ schema: Schema) -> BeginMessage {
    var message = self
    message.subscriptions = subscriptions?.following(schema)
    for place in groups.indices {
      message.groups[place].subscriptions = groups[place].subscriptions.following(schema)
    }
    return message
  }

  /// Subscriptions decide which rows the device is to have.
  var isNarrowed: Bool {
    subscriptions.map { !$0.isEmpty } ?? groups.contains { !$0.subscriptions.isEmpty }
  }
}

extension BeginMessage.Group {
  /// As the device has it.
  var state: GroupState {
    GroupState(name: name, cursor: cursor, scopeDigest: scope, subscriptions: subscriptions)
  }
}
