import Foundation
import SQLiteSupport
import SalvorModel

/// A temporary directory with a schema, a server and devices, each with a configuration file of its own.
final class Workspace: Sendable {
  let directory: URL
  let server: ServerSide
  private let others = Mutex<[ServerSide]>([])

  /// The tables most tests use: one of each kind.
  static let schema = """
    {
      version: 1,
      groups: { reference: {}, visits: {} },
      tables: {
        severity: { maintained: "server", group: "reference", primaryKey: "id",
                    columns: { id: "integer", name: "text" } },
        site: { maintained: "dual", group: "visits", primaryKey: "id",
                columns: { id: "text", name: "text", seats: "integer = 0" } },
        visit: { maintained: "dual", group: "visits", primaryKey: "id",
                 columns: { id: "text", site_id: "text", severity_id: "integer?", note: "text?", score: "real?", photo: "blob?" },
                 references: { site_id: "site", severity_id: "severity" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  /// The synchronized tables of `schema`.
  static let tables = ["severity", "site", "visit"]

  /// - Parameter port: 0: one that the system chooses, another one at each start.
  init(
    schema: String = Workspace.schema, port: UInt16 = 0, authentication: String = #"{ module: "none" }"#,
    serverLimits: String = "{}", serverOptions: String = "",
    storage: String = #"{ module: "sqlite", path: "consolidated.db" }"#
  ) throws {
    directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    try schema.write(to: directory.appendingPathComponent("schema.json5"), atomically: false, encoding: .utf8)
    let configuration = """
      {
        schema: "schema.json5",
        server: {
          storage: \(storage),
          listen: { module: "http", address: "127.0.0.1", port: \(port) },
          compression: ["gzip"],
          authentication: \(authentication),
          limits: \(serverLimits),
          \(serverOptions)
        },
      }
      """
    try configuration.write(
      to: directory.appendingPathComponent("salvor.json5"), atomically: false, encoding: .utf8)
    server = ServerSide(directory: directory)
  }

  deinit {
    for one in [server] + others.withLock({ $0 }) { one.kill() }
    try? FileManager.default.removeItem(at: directory)
  }

  /// A device in a directory of its own.
  func device(
    _ name: String, url: String, credentials: String? = nil, limits: String = "{}", schema: String? = nil,
    recovery: String = "{}"
  ) throws -> Device {
    let folder = directory.appendingPathComponent(name)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    var schemaPath = "../schema.json5"
    if let schema {
      schemaPath = "schema.json5"
      try schema.write(to: folder.appendingPathComponent(schemaPath), atomically: false, encoding: .utf8)
    }
    let device = Device(
      directory: folder, schemaPath: schemaPath, credentials: credentials ?? "{ principal: \"\(name)\" }",
      limits: limits, recovery: recovery)
    try device.connect(to: url)
    return device
  }

  /// Another server of the same configuration, in a directory of its own. For storages that several processes have open.
  func anotherServer(_ name: String) throws -> ServerSide {
    let folder = directory.appendingPathComponent(name)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    for file in ["schema.json5", "salvor.json5"] {
      try FileManager.default.copyItem(
        at: directory.appendingPathComponent(file), to: folder.appendingPathComponent(file))
    }
    let other = ServerSide(directory: folder)
    others.withLock { $0.append(other) }
    return other
  }

  func write(_ text: String, to name: String) throws {
    try text.write(to: directory.appendingPathComponent(name), atomically: true, encoding: .utf8)
  }
}

/// The `salvor` executable, run in `directory`.
func salvor(
  _ arguments: [String], in directory: URL, environment: [String: String] = [:]
) async throws -> Output {
  try await ChildProcess(Built.salvor, arguments, directory: directory, environment: environment).output()
}

/// The server's directory and, while it runs, its process.
final class ServerSide: @unchecked Sendable {
  let directory: URL
  let database: String
  private let lock = NSLock()
  private var process: ChildProcess?

  init(directory: URL) {
    self.directory = directory
    database = directory.appendingPathComponent("consolidated.db").path
  }

  var child: ChildProcess? { lock.withLock { process } }

  /// Starts `salvor serve` and waits until it says where it listens.
  @discardableResult
  func start(environment: [String: String] = [:]) async throws -> String {
    let child = try ChildProcess(
      Built.salvor, ["serve"], directory: directory, environment: environment)
    lock.withLock { process = child }
    return try await child.line(after: "listening on ")
  }

  func kill() { child?.signal(SIGKILL) }

  /// Kills it and waits until it is gone.
  func killAndWait() async {
    guard let child else { return }
    child.signal(SIGKILL)
    _ = await child.output()
  }

  /// Asks it to end as an operator does, and gives what it left.
  func stop() async throws -> Output {
    guard let child else { throw Unexpected("the server does not run") }
    child.signal(SIGTERM)
    return await child.output()
  }

  func salvor(_ arguments: String...) async throws -> Output {
    try await EndToEndTests.salvor(arguments, in: directory)
  }

  /// Another program's connection to the consolidated database.
  func sqlite() throws -> SQLiteConnection {
    let connection = try SQLiteConnection(database, busyTimeoutMilliseconds: 20_000)
    try connection.execute("PRAGMA foreign_keys = ON")
    return connection
  }
}

/// One device: its folder, its configuration, its database.
struct Device: Sendable {
  let directory: URL
  let schemaPath: String
  let credentials: String
  let limits: String
  let recovery: String

  var database: String { directory.appendingPathComponent("field.db").path }

  /// Writes the configuration anew with the server's URL.
  func connect(to url: String) throws {
    let text = """
      {
        schema: "\(schemaPath)",
        client: {
          storage: { module: "sqlite", path: "field.db" },
          transport: { module: "http", url: "\(url)", compression: "gzip" },
          credentials: \(credentials),
          limits: \(limits),
          recovery: \(recovery),
        },
      }
      """
    try text.write(to: directory.appendingPathComponent("salvor.json5"), atomically: true, encoding: .utf8)
  }

  func salvor(_ arguments: String..., environment: [String: String] = [:]) async throws -> Output {
    try await EndToEndTests.salvor(arguments, in: directory, environment: environment)
  }

  func start(_ arguments: String..., environment: [String: String] = [:]) throws -> ChildProcess {
    try ChildProcess(Built.salvor, arguments, directory: directory, environment: environment)
  }

  /// `salvor sync --json`, which must end with `code`.
  @discardableResult
  func sync(expecting code: Int32 = 0, environment: [String: String] = [:]) async throws -> JSON {
    let output = try await salvor("sync", "--json", environment: environment)
    guard output.code == code else {
      throw Unexpected("salvor sync ended with \(output.code), not \(code).\n\(output.out)\n\(output.err)")
    }
    return try output.json
  }

  /// The application's own connection.
  func sqlite() throws -> SQLiteConnection {
    let connection = try SQLiteConnection(database, busyTimeoutMilliseconds: 20_000)
    try connection.execute("PRAGMA foreign_keys = ON")
    return connection
  }
}

/// Every row of `tables`, in key order, by table.
func contents(_ path: String, _ tables: [String] = Workspace.tables) throws -> [String: [[Value]]] {
  let connection = try SQLiteConnection(path, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
  var out: [String: [[Value]]] = [:]
  for table in tables {
    let columns = try connection.rows("SELECT name, pk FROM pragma_table_info(?)", .text(table))
    let key = columns.filter { $0[1].integer != 0 }.sorted { ($0[1].integer ?? 0) < ($1[1].integer ?? 0) }
    let order = key.compactMap { $0[0].string.map(identifier) }.joined(separator: ", ")
    // In the order of the columns' names: a column added later stands elsewhere in an older database.
    let names = columns.compactMap { $0[0].string }.sorted().map(identifier).joined(separator: ", ")
    out[table] = try connection.rows("SELECT \(names) FROM \(identifier(table)) ORDER BY \(order)")
  }
  return out
}

private func identifier(_ name: String) -> String { "\"" + name.replacingOccurrences(of: "\"", with: "\"\"") + "\"" }

/// Problems that SQLite itself sees in a file; empty: healthy.
func damage(_ path: String) throws -> [String] {
  let connection = try SQLiteConnection(path, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
  var found: [String] = []
  for row in try connection.rows("PRAGMA integrity_check") where row[0] != "ok" { found.append(row[0].description) }
  for row in try connection.rows("PRAGMA foreign_key_check") { found.append("foreign key of \(row[0])") }
  return found
}
