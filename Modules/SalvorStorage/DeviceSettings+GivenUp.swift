import SalvorModel

extension DeviceSettings {
  /// The report's lines of a recovery that does not keep them.
  public var givenUp: [RecoveryItem] {
    func item(_ table: String, _ name: String, _ values: [NamedValue], _ reason: String) -> RecoveryItem {
      RecoveryItem(
        fate: .givenUp, request: nil, table: table, key: [.text(name)], operation: nil, before: values, after: [],
        reason: reason)
    }
    let subscriptions = sortedSubscriptions.map { subscription in
      item(
        "salvor_subscription", subscription.target,
        subscription.parameters.sorted { $0.key < $1.key }.map { name, parameter in
          switch parameter {
          case .value(let value): NamedValue(name, value)
          case .setting(let setting): NamedValue(name, .text(setting))
          }
        }, "subscription")
    }
    return subscriptions
      + settings.sorted { $0.key < $1.key }.map {
        item("salvor_setting", $0.key, [NamedValue("value", $0.value)], "setting")
      }
  }
}
