import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A PostgreSQL and a standby of it, both of the demo's own in a folder of `/tmp`: never the system's.
struct DemoCluster: Sendable {
  enum Member: String, Sendable { case primary, standby }

  /// A socket's path has 107 bytes at most.
  let folder: String
  private let programs: String
  private let log: String
  static let database = "dinesafe"

  /// - Parameter log: what the programs say goes into this file.
  init(log: String) throws {
    guard let programs = Self.find() else {
      throw SalvorError(.usage, "PostgreSQL is not installed here. Install it (Debian's package postgresql).")
    }
    self.programs = programs
    self.log = log
    folder = "/tmp/salvor-demo-\(UInt32.random(in: .min ... .max))"
    for path in [folder, socket(.primary), socket(.standby)] {
      guard mkdir(path, 0o755) == 0 else { throw SalvorError(.failed, "The folder \(path) cannot be made.") }
    }
  }

  private static func find() -> String? {
    for version in (10...99).reversed() where access("/usr/lib/postgresql/\(version)/bin/initdb", X_OK) == 0 {
      return "/usr/lib/postgresql/\(version)/bin"
    }
    return ChildProgram.find("initdb").map { String($0.dropLast("/initdb".count)) }
  }

  private func socket(_ member: Member) -> String { "\(folder)/\(member.rawValue)" }
  private func data(_ member: Member) -> String { "\(socket(member))/data" }

  /// Both members: whoever takes writes is connected to.
  var url: String {
    "host=\(socket(.primary)),\(socket(.standby)) user=postgres dbname=\(Self.database)"
  }

  /// The primary runs, with an empty database.
  func begin() async throws {
    try await run("/bin/chown", ["-R", "postgres", folder], onlyAsRoot: true)
    try await asOwner(
      "initdb", ["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", data(.primary)])
    try await start(.primary)
    try await psql("CREATE DATABASE \(Self.database)", on: .primary, in: "postgres")
  }

  /// The standby runs and follows.
  func addStandby() async throws {
    try await asOwner(
      "pg_basebackup",
      ["--no-sync", "-h", socket(.primary), "-U", "postgres", "-D", data(.standby), "-c", "fast", "-R"])
    try await start(.standby)
  }

  private func start(_ member: Member) async throws {
    try await asOwner(
      "pg_ctl",
      [
        "-s", "-w", "-t", "120", "-D", data(member), "-l", "\(socket(member))/log", "-o",
        "-k \(socket(member)) -c listen_addresses='' -c max_connections=200", "start",
      ])
  }

  /// The standby gets nothing from now on, as behind a broken line.
  func cut() async throws {
    try await psql("ALTER SYSTEM SET primary_conninfo = ''", on: .standby, in: "postgres")
    try await psql("SELECT pg_reload_conf()", on: .standby, in: "postgres")
    let receiver = "SELECT count(*) FROM pg_stat_wal_receiver"
    while try await psql(receiver, on: .standby, in: "postgres").out != "0\n" { usleep(50_000) }
  }

  /// At once, as a power cut does.
  func kill(_ member: Member) async throws {
    try await asOwner("pg_ctl", ["-s", "-w", "-D", data(member), "-m", "immediate", "stop"])
  }

  func promote() async throws {
    try await asOwner("pg_ctl", ["-s", "-w", "-t", "120", "-D", data(.standby), "promote"])
  }

  /// Another program: whoever takes writes answers, or the named member.
  @discardableResult
  func psql(
    _ sql: String, on member: Member? = nil, in database: String = database, failing: Bool = false
  ) async throws -> ChildProgram.Result {
    let host = member.map(socket) ?? "\(socket(.primary)),\(socket(.standby))"
    let attributes = member == nil ? " target_session_attrs=read-write" : ""
    return try await run(
      "\(programs)/psql",
      [
        "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d",
        "host=\(host) user=postgres dbname=\(database)\(attributes)", "-c", sql,
      ], failing: failing)
  }

  func end() async {
    for member in [Member.standby, .primary] { try? await kill(member) }
    _ = try? await run("/bin/rm", ["-rf", folder])
  }

  /// PostgreSQL refuses to run as root.
  private func asOwner(_ program: String, _ arguments: [String]) async throws {
    let path = "\(programs)/\(program)"
    guard getuid() == 0 else {
      try await run(path, arguments)
      return
    }
    try await run(
      "/usr/bin/setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", path] + arguments)
  }

  @discardableResult
  private func run(
    _ path: String, _ arguments: [String], onlyAsRoot: Bool = false, failing: Bool = false
  ) async throws -> ChildProgram.Result {
    if onlyAsRoot, getuid() != 0 { return ChildProgram.Result(code: 0, out: "") }
    let result = try await ChildProgram.run(path, arguments, log: log)
    guard result.code == 0 || failing else {
      throw SalvorError(.failed, "\(path) ended with \(result.code); \(log) says why.")
    }
    return result
  }
}
