import Foundation
import SalvorModel

#if canImport(Glibc)
  import Glibc
#endif

/// A PostgreSQL of the run's own, in a folder of it: never the system's cluster.
final class PostgreSQLServerDatabase: ServerDatabase {
  private let folder: String
  private let programs: String
  private let name = "salvor"
  private static let separator: Character = "\u{1F}"

  init(in folder: String) throws {
    self.folder = folder
    let versions = (try? FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql")) ?? []
    let folders = versions.compactMap { Int($0) }.sorted(by: >).map { "/usr/lib/postgresql/\($0)/bin" }
    guard let programs = folders.first(where: { FileManager.default.isExecutableFile(atPath: $0 + "/initdb") }) else {
      throw Failure("PostgreSQL is not installed here: install the package postgresql")
    }
    self.programs = programs
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    if getuid() == 0 { try run("/bin/chown", ["postgres", folder]) }
    try asOwner("initdb", ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", "\(folder)/data"])
    try start()
    try psql("CREATE DATABASE \(name)", in: "postgres")
  }

  /// What the process writes stands in a file in the folder above, which is this program's own.
  @discardableResult
  private func run(_ program: String, _ arguments: [String]) throws -> String {
    let directory = (folder as NSString).deletingLastPathComponent
    let ended = try Child(program, arguments, in: directory, output: "postgresql.out").wait()
    guard ended.code == 0 else { throw Failure("\(program) \(arguments.joined(separator: " ")): \(ended.out)") }
    return ended.out
  }

  /// PostgreSQL refuses to run as root.
  private func asOwner(_ program: String, _ arguments: [String]) throws {
    let path = "\(programs)/\(program)"
    if getuid() == 0 {
      try run("setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", path] + arguments)
    } else {
      try run(path, arguments)
    }
  }

  private func start() throws {
    // What a crash must not lose is synced, as it is on a server.
    try asOwner(
      "pg_ctl",
      [
        "-s", "-w", "-t", "120", "-D", "\(folder)/data", "-l", "\(folder)/log", "-o",
        "-k \(folder) -c listen_addresses='' -c max_connections=100", "start",
      ])
  }

  private func stop() throws { try asOwner("pg_ctl", ["-s", "-w", "-D", "\(folder)/data", "-m", "immediate", "stop"]) }

  @discardableResult
  private func psql(_ sql: String, in database: String? = nil) throws -> [[String]] {
    let text = try run(
      "\(programs)/psql",
      [
        "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-F", String(Self.separator), "-h", folder, "-U", "postgres",
        "-d", database ?? name, "-c", sql,
      ])
    return text.split(separator: "\n").map {
      $0.split(separator: Self.separator, omittingEmptySubsequences: false).map(String.init)
    }
  }

  func configuration(ofServer server: Int) -> String {
    #"{ module: "postgresql", url: "host=\#(folder) user=postgres dbname=\#(name)", connections: 4, stateDirectory: "." }"#
  }

  func fill(_ count: Int) throws {
    try psql("INSERT INTO site SELECT 's' || i, 'at first' FROM generate_series(0, \(count - 1)) i")
  }

  private var connecting: [String] { ["-h", folder, "-U", "postgres"] }

  func backup(_ copy: String, _ operate: ([String]) throws -> Void) throws {
    try run("\(programs)/pg_dump", connecting + ["-Fc", "-f", "\(copy).dump", name])
  }

  /// As an operator does it whose servers run: restored beside, and then in the database's place.
  func restore(_ copy: String, _ operate: ([String]) throws -> Void) throws {
    try psql("DROP DATABASE IF EXISTS restored", in: "postgres")
    try psql("CREATE DATABASE restored", in: "postgres")
    try run("\(programs)/pg_restore", connecting + ["-d", "restored", "\(copy).dump"])
    try psql("DROP DATABASE \(name) WITH (FORCE)", in: "postgres")
    try psql("ALTER DATABASE restored RENAME TO \(name)", in: "postgres")
  }

  var isRestoredUnderServers: Bool { true }

  func rows(of table: String) throws -> [[Value]] {
    try psql("SELECT * FROM \(table) ORDER BY id").map { $0.map { .text(Array($0.utf8)) } }
  }

  func hasConflict(_ table: String, _ id: String, _ body: String?) throws -> Bool {
    // Ids and bodies are this program's own words.
    let isSo = body.map { "strpos(client, '\($0)') > 0" } ?? "operation = 'delete'"
    return try !psql(
      "SELECT 1 FROM salvor.salvor_conflict WHERE \"table\" = '\(table)' AND strpos(key, '\"\(id)\"') > 0 AND \(isSo)"
    ).isEmpty
  }

  func problems() throws -> [String] {
    try psql("SELECT v.id FROM visit v LEFT JOIN site s ON s.id = v.site_id WHERE s.id IS NULL").map {
      "server: visit \($0[0]) has no site"
    }
  }

  /// Either every connection of the servers, or the whole cluster, as a power cut would.
  func kill(_ random: inout some RandomNumberGenerator) throws -> Bool {
    if Bool.random(using: &random) {
      try psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '\(name)' AND pid <> pg_backend_pid()")
    } else {
      try stop()
      try start()
    }
    return true
  }

  func end() { try? stop() }
}
