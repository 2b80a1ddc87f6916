import Foundation
import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#endif

/// `salvor serve` in a temporary directory, on loopback, ended with this object.
final class ServerUnderTest: @unchecked Sendable {
  static let schema = """
    {
      version: 1,
      tables: {
        site: { maintained: "server", primaryKey: "id", columns: { id: "text", name: "text" } },
        visit: { maintained: "dual", primaryKey: "id",
                 columns: { id: "text", site_id: "text?", note: "text?", score: "real?" }, references: { site_id: "site" } },
        memo: { maintained: "dual", primaryKey: "id", columns: { id: "text", owner: "text", site_id: "text?", note: "text?" },
                references: { site_id: "site" }, scope: { owner: "principal" } },
      },
    }
    """
  static let sites = 100

  let directory: URL
  let url: String
  let pid: pid_t
  private let lock = NSLock()
  private var exitStatus: Int32?

  var port: UInt16 { URL(string: url).flatMap(\.port).map(UInt16.init) ?? 0 }
  var database: String { directory.appendingPathComponent("consolidated.db").path }
  var configuration: String { directory.appendingPathComponent("salvor.json5").path }

  /// - Parameter files: the limit of files; 0: as it is.
  init(_ salvor: String, files: Int) throws {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-load-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    func write(_ text: String, _ name: String) throws {
      try text.write(to: directory.appendingPathComponent(name), atomically: false, encoding: .utf8)
    }
    try write(Self.schema, "schema.json5")
    try write(
      """
      { schema: "schema.json5",
        server: { storage: { module: "sqlite", path: "consolidated.db" },
                  listen: { module: "http", address: "127.0.0.1", port: 0 },
                  authentication: { module: "none" } },
        client: { storage: { module: "sqlite", path: "field.db" },
                  transport: { module: "http", url: "http://127.0.0.1:1" }, credentials: { principal: "load" } } }
      """, "salvor.json5")
    let out = directory.appendingPathComponent("out").path
    self.directory = directory
    let limit = files > 0 ? "ulimit -n \(files); " : ""
    let pid = try Self.spawn(
      "\(limit)exec \"$0\" serve --config \"$1\"", [salvor, directory.path + "/salvor.json5"], out)
    var found: String?
    let end = Date().addingTimeInterval(60)
    while found == nil, Date() < end {
      let text = (try? String(contentsOfFile: out, encoding: .utf8)) ?? ""
      found = text.split(separator: "\n").first { $0.hasPrefix("listening on ") }.map { String($0.dropFirst(13)) }
      var status: Int32 = 0
      if found == nil, waitpid(pid, &status, WNOHANG) == pid { throw Failure("salvor serve ended at once: \(text)") }
      if found == nil { usleep(20_000) }
    }
    self.pid = pid
    url = found ?? ""
    guard found != nil else { throw Failure("salvor serve does not listen") }
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    try connection.execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(Self.sites)) INSERT INTO site (id, name) SELECT 's' || i, 'Site number ' || i FROM n"
    )
  }

  private static func spawn(_ script: String, _ arguments: [String], _ output: String) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_addopen(&actions, 2, output + ".log", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    var words = (["sh", "-c", script] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var pid: pid_t = 0
    guard posix_spawn(&pid, "/bin/sh", &actions, nil, &words, environ) == 0 else {
      throw Failure("a shell cannot be run")
    }
    return pid
  }

  deinit {
    if isAlive { kill(pid, SIGKILL) }
    while isAlive { usleep(1000) }
    try? FileManager.default.removeItem(at: directory)
  }

  var isAlive: Bool {
    lock.withLock {
      if exitStatus != nil { return false }
      var status: Int32 = 0
      if waitpid(pid, &status, WNOHANG) == pid { exitStatus = status }
      return exitStatus == nil
    }
  }

  /// SIGTERM; seconds until it had ended, and whether with exit code 0.
  func stop() -> (seconds: Double, isClean: Bool) {
    let start = Date()
    kill(pid, SIGTERM)
    while isAlive, -start.timeIntervalSinceNow < 60 { usleep(5000) }
    return (-start.timeIntervalSinceNow, lock.withLock { exitStatus } == 0)
  }

  /// In kB, of /proc; 0 where there is none.
  func kilobytes(_ field: String) -> Int {
    let text = (try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)) ?? ""
    let line = text.split(separator: "\n").first { $0.hasPrefix(field + ":") }
    return line?.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap { Int($0) } ?? 0
  }

  /// Processor time so far.
  var seconds: Double {
    let text = (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)) ?? ""
    let fields = text.split(separator: ")").last?.split(separator: " ") ?? []
    guard fields.count > 12, let user = Double(fields[11]), let system = Double(fields[12]) else { return 0 }
    return (user + system) / Double(sysconf(Int32(_SC_CLK_TCK)))
  }

  var openFiles: Int {
    ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd")) ?? []).count
  }

  /// Those of these memos that are not there.
  func missing(_ memos: [String]) throws -> [String] {
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    let there = Set(try connection.rows("SELECT id FROM memo").compactMap { $0[0].string })
    return memos.filter { !there.contains($0) }
  }

  /// What SQLite finds wrong with the database; empty: nothing.
  func damage() throws -> [String] {
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    let found = try connection.rows("PRAGMA integrity_check").map { $0[0].description }.filter { !$0.contains("ok") }
    return found + (try connection.rows("PRAGMA foreign_key_check").map { "foreign key of \($0[0])" })
  }
}
