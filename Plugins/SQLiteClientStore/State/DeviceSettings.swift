import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What `salvor_setting` and `salvor_subscription` say.
extension SQLiteConnection {
  func deviceSettings() throws -> DeviceSettings {
    var found = DeviceSettings(
      subscribed: Set(try rows("SELECT target FROM salvor_subscribed").compactMap { $0[0].string }))
    for row in try rows("SELECT name, value FROM salvor_setting") {
      if let name = row[0].string { found.settings[name] = row[1] }
    }
    for subscription in try subscriptions() {
      found.subscriptions.insert(subscription)
      found.subscribed.insert(subscription.target)
    }
    return found
  }

  /// The rows of one target and ID are one subscription, whatever the ID.
  private func subscriptions() throws -> [Subscription] {
    var found: [Subscription] = []
    var last: [Value] = []
    for row in try rows(
      "SELECT target, id, parameter, value, setting FROM salvor_subscription ORDER BY target, id, parameter")
    {
      guard let target = row[0].string, let parameter = row[2].string else { continue }
      if Array(row[..<2]) != last { found.append(Subscription(target: target)) }
      last = Array(row[..<2])
      if parameter.isEmpty { continue }
      found[found.count - 1].parameters[parameter] = row[4].string.map { .setting($0) } ?? .value(row[3])
    }
    return found
  }
}
