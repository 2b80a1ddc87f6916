import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Which file a path leads to.
struct FileIdentity: Hashable {
  private let device: UInt64
  private let node: UInt64

  /// Nil: there is none.
  init?(_ path: String) {
    var found = stat()
    guard stat(path, &found) == 0 else { return nil }
    device = UInt64(truncatingIfNeeded: found.st_dev)
    node = UInt64(truncatingIfNeeded: found.st_ino)
  }
}

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
