import Foundation
import SQLiteSupport
import SalvorModel

/// The consolidated database of a run, as its operator and its other programs reach it.
protocol ServerDatabase: AnyObject {
  /// `server.storage` of one of the processes.
  func configuration(ofServer server: Int) -> String
  /// Writes sites as another program does: `s0` to `s(count - 1)`.
  func fill(_ count: Int) throws
  /// Makes a copy under the name, while servers run. `operate` runs `salvor` as the operator.
  func backup(_ name: String, _ operate: ([String]) throws -> Void) throws
  /// Puts a copy back. Servers run only where `isRestoredUnderServers`.
  func restore(_ name: String, _ operate: ([String]) throws -> Void) throws
  var isRestoredUnderServers: Bool { get }
  /// Id and body of each row, and what stands between them, in the order of the ids.
  func rows(of table: String) throws -> [[Value]]
  /// Whether the change stands in a conflict version. `body`: nil: it is a delete.
  func hasConflict(_ table: String, _ id: String, _ body: String?) throws -> Bool
  /// What the database itself finds wrong.
  func problems() throws -> [String]
  /// Kills what serves the database, where that is a process of its own, and starts it again. False: there is none.
  func kill(_ random: inout some RandomNumberGenerator) throws -> Bool
  /// Nothing of it runs any more.
  func end()
}

final class SQLiteServerDatabase: ServerDatabase {
  private let path: String
  private let folder: String

  init(in folder: String) {
    self.folder = folder
    path = folder + "/consolidated.db"
  }

  func configuration(ofServer server: Int) -> String { #"{ module: "sqlite", path: "consolidated.db" }"# }

  private func open() throws -> SQLiteConnection { try SQLiteConnection(path, busyTimeoutMilliseconds: 60_000) }

  func fill(_ count: Int) throws {
    try open().execute(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < \(count - 1)) SELECT 's' || i, 'at first' FROM n"
    )
  }

  func backup(_ name: String, _ operate: ([String]) throws -> Void) throws { try operate(["server", "backup", name]) }

  func restore(_ name: String, _ operate: ([String]) throws -> Void) throws {
    try operate(["server", "restore", name])
    for file in try FileManager.default.contentsOfDirectory(atPath: folder) where file.contains(".before-restore-") {
      try FileManager.default.removeItem(atPath: folder + "/" + file)
    }
  }

  var isRestoredUnderServers: Bool { false }

  func rows(of table: String) throws -> [[Value]] { try open().rows("SELECT * FROM \(table) ORDER BY id") }

  func hasConflict(_ table: String, _ id: String, _ body: String?) throws -> Bool {
    try open().integer(
      """
      SELECT 1 FROM salvor_conflict WHERE "table" = ?1 AND instr(key, '"' || ?2 || '"') > 0
        AND CASE WHEN ?3 IS NULL THEN operation = 'delete' ELSE instr(client, ?3) > 0 END
      """, .text(table), .text(id), body.map { .text($0) } ?? .null) != nil
  }

  func problems() throws -> [String] {
    let connection = try open()
    return try connection.rows("PRAGMA integrity_check").filter { $0 != ["ok"] }.map { "server: \($0)" }
      + connection.rows("PRAGMA foreign_key_check").map { "server: foreign key \($0)" }
  }

  func kill(_ random: inout some RandomNumberGenerator) throws -> Bool { false }

  func end() {}
}
