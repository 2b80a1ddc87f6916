import SQLiteSupport
import SalvorModel
import SalvorStorage

/// `salvor_setting` and `salvor_subscription`, which any SQLite library may write, too.
extension SQLiteClientStore {
  public func deviceSettings() throws -> DeviceSettings {
    let connection = try opened().connection
    var found = DeviceSettings()
    for row in try connection.rows("SELECT name, value FROM salvor_setting") {
      if let name = row[0].string { found.settings[name] = row[1] }
    }
    for row in try connection.rows("SELECT target, parameter, value FROM salvor_subscription") {
      if let target = row[0].string, let parameter = row[1].string {
        found.subscriptions[target, default: [:]][parameter] = row[2]
      }
    }
    return found
  }

  public func setDeviceSettings(_ settings: DeviceSettings) throws {
    let connection = try opened().connection
    try connection.transaction {
      try connection.execute("DELETE FROM salvor_setting; DELETE FROM salvor_subscription")
      for (name, value) in settings.settings {
        try connection.run("INSERT INTO salvor_setting (name, value) VALUES (?1, ?2)", .text(name), value)
      }
      for (target, parameters) in settings.subscriptions {
        for (parameter, value) in parameters {
          try connection.run(
            "INSERT INTO salvor_subscription (target, parameter, value) VALUES (?1, ?2, ?3)", .text(target),
            .text(parameter), value)
        }
      }
    }
  }
}
