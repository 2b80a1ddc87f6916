import SQLiteSupport
import SalvorModel
import SalvorStorage

/// `salvor_setting` and `salvor_subscription`, which any SQLite library may write, too.
extension SQLiteClientStore {
  public func deviceSettings() throws -> DeviceSettings {
    let connection = try opened().connection
    return try connection.transaction(.deferred) { try connection.deviceSettings() }
  }

  /// One transaction: where `change` throws, the settings stay as they were.
  public func changeDeviceSettings<Answer: Sendable>(
    _ change: @Sendable (inout DeviceSettings) throws -> Answer
  ) throws -> Answer {
    let connection = try opened().connection
    return try connection.transaction {
      let before = try connection.deviceSettings()
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
