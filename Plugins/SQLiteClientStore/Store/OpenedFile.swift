import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What of a database a store holds in memory while it is open.
struct Opened: Hashable {
  private let rows: [[Value]]

  init(_ connection: SQLiteConnection) throws {
    rows =
      try [[.integer(connection.schemaVersion())]]
      + connection.rows(
        "SELECT value FROM salvor_state WHERE name IN ('\(StateName.remote.rawValue)', '\(StateName.fileStamp.rawValue)', '\(StateName.configHead.rawValue)', '\(StateName.configDelivered.rawValue)') ORDER BY name"
      ) + connection.rows("SELECT * FROM salvor_sync_config ORDER BY place")
  }
}
