import SQLiteSupport
import SalvorModel
import SalvorStorage

/// `salvor_setting` and `salvor_subscription`, which any SQLite library may write, too.
extension SQLiteClientStore {
  public func deviceSettings() throws -> DeviceSettings {
    let connection = try opened().connection
    return try connection.transaction(.deferred) { try Self.settings(connection) }
  }

  static func settings(_ connection: SQLiteConnection) throws -> DeviceSettings {
    var found = DeviceSettings(
      subscribed: Set(try connection.rows("SELECT target FROM salvor_subscribed").compactMap { $0[0].string }))
    for row in try connection.rows("SELECT name, value FROM salvor_setting") {
      if let name = row[0].string { found.settings[name] = row[1] }
    }
    for subscription in try subscriptions(connection) {
      found.subscriptions.insert(subscription)
      found.subscribed.insert(subscription.target)
    }
    return found
  }

  /// The rows of one target and ID are one subscription, whatever the ID.
  private static func subscriptions(_ connection: SQLiteConnection) throws -> [Subscription] {
    var found: [Subscription] = []
    var last: [Value] = []
    for row in try connection.rows(
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

  public func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) throws -> Answer {
    let connection = try opened().connection
    return try connection.transaction {
      let before = try Self.settings(connection)
      var after = before
      let answer = try change(&after)
      try write(after.settings, before.settings, connection)
      if after.subscriptions != before.subscriptions || after.subscribed != before.subscribed {
        try connection.execute("DELETE FROM salvor_subscription; DELETE FROM salvor_subscribed")
        for target in after.subscribed {
          try connection.run("INSERT INTO salvor_subscribed (target) VALUES (?1)", .text(target))
        }
        for subscription in after.subscriptions { try write(subscription, connection) }
      }
      return answer
    }
  }

  private func write(_ after: [String: Value], _ before: [String: Value], _ connection: SQLiteConnection) throws {
    for name in before.keys where after[name] == nil {
      try connection.run("DELETE FROM salvor_setting WHERE name = ?1", .text(name))
    }
    for (name, value) in after where before[name] != value {
      try connection.run(
        "INSERT INTO salvor_setting (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        .text(name), value)
    }
  }

  private func write(_ subscription: Subscription, _ connection: SQLiteConnection) throws {
    func write(_ parameter: String, _ value: Value, _ setting: Value) throws {
      try connection.run(
        "INSERT INTO salvor_subscription (target, id, parameter, value, setting) VALUES (?1, ?2, ?3, ?4, ?5)",
        .text(subscription.target), .text(subscription.id), .text(parameter), value, setting)
    }
    if subscription.parameters.isEmpty { try write("", .null, .null) }
    for (parameter, choice) in subscription.parameters {
      switch choice {
      case .value(let value): try write(parameter, value, .null)
      case .setting(let key): try write(parameter, .null, .text(key))
      }
    }
  }
}
