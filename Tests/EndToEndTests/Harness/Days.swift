import Foundation
import SQLiteSupport

/// What a device has done that is not synchronized: an edit, a new inspection with an infraction, a removed infraction,
/// and a draft, which never is.
enum Unsynced {
  static let statements = """
    PRAGMA foreign_keys = ON;
    UPDATE establishment SET name = 'Edited offline' WHERE id = \(Inspections.waiting);
    INSERT INTO inspection VALUES (900100, \(Inspections.edited), '2026-01-09', 2);
    INSERT INTO infraction (inspection_id, line, infraction_type_id, severity_id, action_id)
      SELECT 900100, 1, infraction_type_id, severity_id, action_id FROM infraction LIMIT 1;
    DELETE FROM infraction WHERE inspection_id = 104635721 AND line = 1;
    INSERT INTO draft VALUES (1, 'mine');
    """

  /// As `Device.kept` has them where a recovery has discarded them.
  static let discarded: Set<String> = [
    "update establishment \(Inspections.waiting): discarded", "insert inspection 900100: discarded",
    "insert infraction 900100,1: discarded", "delete infraction 104635721,1: discarded",
  ]

  /// How many of the four are in a database's rows.
  static func found(in database: String) throws -> Int64? {
    try SQLiteConnection(database, busyTimeoutMilliseconds: 20_000).integer(
      """
      SELECT (SELECT count(*) FROM establishment WHERE name = 'Edited offline')
        + (SELECT count(*) FROM inspection WHERE id = 900100) + (SELECT count(*) FROM infraction WHERE inspection_id = 900100)
        + (SELECT count(*) = 0 FROM infraction WHERE inspection_id = 104635721 AND line = 1)
      """)
  }
}

/// A device that registers (time1) and uploads three times (time2, time3, time4; sap-rbs-synchronize-recovery), with a
/// backup of the server each time, and with unsynced work at the end. Lived through once, for all tests.
enum Days {
  /// The server is at time4, and stopped.
  static func files() async throws -> Files { try await lived.value }

  /// The server was restored to time2.
  static func filesAtTime2() async throws -> Files { try await restored.value }

  static func edit(_ day: Int) -> String {
    """
    UPDATE establishment SET min_inspections_per_year = \(10 + day) WHERE id = \(Inspections.edited);
    INSERT INTO inspection VALUES (\(900_000 + day), \(Inspections.edited), '2026-01-0\(day)', 1);
    """
  }

  /// How many rows a server that went back to `time` has lost.
  static func lost(at time: Int) -> Int64 {
    // Each day's inspection, and the edit.
    time < 4 ? Int64(4 - time) + 1 : 0
  }

  /// How many of what the days made is in a database's rows: three inspections, and the last edit.
  static func found(in database: String) throws -> Int64? {
    try SQLiteConnection(database, busyTimeoutMilliseconds: 20_000).integer(
      """
      SELECT (SELECT count(*) FROM inspection WHERE id IN (900002, 900003, 900004))
        + (SELECT count(*) FROM establishment WHERE id = \(Inspections.edited) AND min_inspections_per_year = 14)
      """)
  }

  private static let lived = Task {
    let scene = try Inspections()
    try await scene.start()
    let device = try scene.device()
    let registered = try await device.salvor("register")
    guard registered.code == 0 else { throw Unexpected("not registered: \(registered.err)") }
    try await scene.backup("time1")
    try await device.sync()
    for day in 2...4 {
      try device.sqlite().execute(edit(day))
      try await device.sync()
      try await scene.backup("time\(day)")
    }
    try device.sqlite().execute(Unsynced.statements)
    _ = try await scene.place.server.stop()
    return try Files(of: scene.place.directory)
  }

  private static let restored = Task {
    let scene = try Inspections(files: try await files())
    try await scene.restoreStopped("time2")
    return try Files(of: scene.place.directory)
  }
}
