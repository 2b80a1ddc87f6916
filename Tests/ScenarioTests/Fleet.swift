import SQLiteSupport
import SalvorClientEngine
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import StandardModules
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A server and devices made from configuration files in a directory of their own, over the loopback transport whose
/// exchanges a test can cut. Applications write with plain SQLite connections that know nothing of Salvor.
final class Fleet {
  let directory: String
  let faults = Faults()
  private let modules: [ModuleFactory]
  private(set) var server: RunningServer?
  private(set) var devices: [Device] = []
  private(set) var log: LogLines = LogLines()
  var schemaText: String
  var serverOptions: String
  var principals: String
  /// The members of `server.storage`.
  let storage: String

  static let visits = """
    {
      version: 1,
      groups: { reference: {}, visits: {} },
      tables: {
        severity: { maintained: "server", group: "reference", primaryKey: "id",
                    columns: { id: "integer", name: "text" } },
        site: { maintained: "dual", group: "visits", primaryKey: "id",
                columns: { id: "text", name: "text", city: "text?", seats: "integer = 0" } },
        visit: { maintained: "dual", group: "visits", primaryKey: "id",
                 columns: { id: "text", site_id: "text", note: "text?", severity_id: "integer?" },
                 references: { site_id: { table: "site", onDelete: "cascade" }, severity_id: "severity" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  /// - Parameters:
  ///   - storage: the members of `server.storage`; by default a SQLite database, which backups and connections here are of.
  ///   - serverOptions: further members of `server`, e.g. `authentication: {…},`.
  ///   - others: modules besides the built-in ones.
  init(
    schema: String = Fleet.visits, storage: String = "module: \"sqlite\", path: \"consolidated.db\"",
    serverOptions: String = "authentication: { module: \"none\" },",
    principals: String = "principal: \"anna\"", modules others: [ModuleFactory] = []
  ) throws {
    directory = try temporaryDirectory()
    schemaText = schema
    self.storage = storage
    self.serverOptions = serverOptions
    self.principals = principals
    let standard = StandardModules.all
    modules = standard + others + [faults.transportFactory(wrapping: standard)]
  }

  deinit { removeDirectory(directory) }

  var serverPath: String { directory + "/consolidated.db" }

  private func write(_ text: String, _ name: String) throws -> String {
    let path = directory + "/" + name
    try writeText(text, to: path)
    return path
  }

  private func load(_ text: String, _ name: String) throws -> HostConfiguration {
    try Host.load(try write(text, name), modules: modules, environment: [:])
  }

  /// Starts the server on its database, with the present schema.
  func start() async throws {
    _ = try write(schemaText, "schema.json5")
    var configuration = try load(
      """
      { schema: "schema.json5",
        server: { storage: { \(storage) },
                  listen: { module: "loopback", name: "\(directory)" }, compression: ["gzip"], \(serverOptions) } }
      """, "server.json5")
    // On a machine under load a device may be silent for longer than half a minute, and some of them try only once.
    configuration.server?.limits.sessionIdleMilliseconds = 3_600_000
    let lines = log
    let server = try await Host.makeServer(configuration, log: Log.lines { lines.append($0) })
    _ = try await server.start()
    self.server = server
  }

  func stop() async {
    await server?.stop()
    server = nil
  }

  func restart() async throws {
    await stop()
    try await start()
  }

  /// Copies the server's database, as a nightly backup does.
  func backup(_ name: String) async throws {
    await stop()
    try copyDatabase(serverPath, to: directory + "/\(name).backup")
    try await start()
  }

  /// Puts a backup back: the side file stays, as it does on a server.
  func restore(_ name: String) async throws {
    await stop()
    try copyDatabase(directory + "/\(name).backup", to: serverPath)
    try await start()
  }

  /// Puts a backup into the file that the server has open, as the shell's `.restore` does.
  func restoreInPlace(_ name: String) throws {
    try SQLiteConnection("\(directory)/\(name).backup", mode: .readOnly).backup(into: try serverConnection())
  }

  /// A device with a database of its own.
  ///
  /// - Parameters:
  ///   - recovery: members of `client.recovery`.
  ///   - limits: `client.limits`.
  func device(
    _ name: String, schema: String? = nil, credentials: String? = nil, recovery: String = "", limits: String = "{}",
    adjust: @escaping @Sendable (inout SalvorClient.Configuration) -> Void = { _ in }
  ) throws -> Device {
    let schemaFile = "schema-\(name).json5"
    _ = try write(schema ?? schemaText, schemaFile)
    let configuration = try load(
      """
      { schema: "\(schemaFile)",
        client: { storage: { module: "sqlite", path: "\(name).db" },
                  transport: { module: "faulty", name: "\(directory)" }, credentials: { \(credentials ?? principals) },
                  recovery: { \(recovery) }, limits: \(limits) } }
      """, "\(name).json5")
    let device = Device(
      name: name, path: directory + "/\(name).db", configuration: configuration, adjust: adjust)
    devices.append(device)
    return device
  }

  /// Another program's connection to the server's database.
  func serverConnection() throws -> SQLiteConnection {
    let connection = try SQLiteConnection(serverPath)
    try connection.execute("PRAGMA foreign_keys = ON")
    return connection
  }

  /// Rows of a table on the server, in key order.
  func serverRows(_ table: String, order: String = "1") throws -> [[Value]] {
    try serverConnection().rows("SELECT * FROM \(quoted(table)) ORDER BY \(order)")
  }

  /// Every device has the server's rows of these tables, value for value, and both databases are healthy.
  func expectEqual(_ tables: [String], _ devices: [Device], sourceLocation: SourceLocation = #_sourceLocation) throws {
    for table in tables {
      let expected = try serverRows(table)
      for device in devices {
        let found = try device.rows(table)
        #expect(found == expected, "\(table) on \(device.name)", sourceLocation: sourceLocation)
      }
    }
    for path in [serverPath] + devices.map(\.path) {
      let connection = try SQLiteConnection(path)
      #expect(try connection.scalar("PRAGMA integrity_check") == "ok", sourceLocation: sourceLocation)
      #expect(try connection.rows("PRAGMA foreign_key_check") == [], sourceLocation: sourceLocation)
    }
  }
}

/// A device: Salvor's client, and the application beside it.
final class Device {
  let name: String
  let path: String
  private let configuration: HostConfiguration
  private let adjust: @Sendable (inout SalvorClient.Configuration) -> Void
  private var client: SalvorClient?
  private var isOpen = false

  init(
    name: String, path: String, configuration: HostConfiguration,
    adjust: @escaping @Sendable (inout SalvorClient.Configuration) -> Void
  ) {
    self.adjust = adjust
    self.name = name
    self.path = path
    self.configuration = configuration
  }

  private func made() throws -> SalvorClient {
    if let client { return client }
    let client = try Host.makeClient(configuration, adjust: adjust)
    self.client = client
    return client
  }

  func open() async throws -> SalvorClient {
    let client = try made()
    if !isOpen { try await client.open() }
    isOpen = true
    return client
  }

  /// The client opens its database itself.
  @discardableResult
  func sync(_ groups: Set<String>? = nil) async throws -> SyncReport {
    await (try made()).attemptSync(groups: groups)
  }

  /// As a killed process leaves it: nothing in memory goes on.
  func close() async {
    await client?.close()
    client = nil
    isOpen = false
  }

  func connection() throws -> SQLiteConnection {
    let connection = try SQLiteConnection(path)
    try connection.execute("PRAGMA foreign_keys = ON")
    return connection
  }

  /// What an application does: plain SQL in one transaction.
  func write(_ statements: String...) async throws {
    _ = try await open()
    let connection = try connection()
    try connection.transaction(.immediate) { for sql in statements { try connection.execute(sql) } }
  }

  func rows(_ table: String, order: String = "1") throws -> [[Value]] {
    try connection().rows("SELECT * FROM \(quoted(table)) ORDER BY \(order)")
  }
}

/// Each of them, one after the other, so many times: none may end with an error.
func synchronize(_ devices: [Device], times: Int = 1, sourceLocation: SourceLocation = #_sourceLocation) async throws {
  for _ in 0..<times {
    for device in devices {
      let report = try await device.sync()
      #expect(
        report.error == nil, "\(device.name): \(String(describing: report.error))", sourceLocation: sourceLocation)
    }
  }
}

func temporaryDirectory() throws -> String {
  var template = Array("/tmp/salvor-scenario-XXXXXX".utf8CString)
  guard mkdtemp(&template) != nil else { throw SalvorError(.failed, "no temporary directory") }
  return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

func removeDirectory(_ path: String) {
  guard let directory = opendir(path) else { return }
  while let entry = readdir(directory) {
    let name = withUnsafePointer(to: &entry.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name != "." && name != "..", unlink(path + "/" + name) != 0 { removeDirectory(path + "/" + name) }
  }
  closedir(directory)
  rmdir(path)
}

func writeText(_ text: String, to path: String) throws {
  guard let file = fopen(path, "w") else { throw SalvorError(.failed, "cannot write \(path)") }
  defer { fclose(file) }
  fputs(text, file)
}

/// Copies a database with its WAL and Salvor's files beside it, as a backup of closed files does.
func copyDatabase(_ source: String, to target: String, companions: [String] = ["", "-wal", "-shm"]) throws {
  for suffix in ["", "-wal", "-shm"] { unlink(target + suffix) }
  for suffix in companions {
    guard let input = fopen(source + suffix, "r") else { continue }
    defer { fclose(input) }
    guard let output = fopen(target + suffix, "w") else { throw SalvorError(.failed, "cannot write \(target)") }
    defer { fclose(output) }
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = fread(&buffer, 1, buffer.count, input)
      if count == 0 { break }
      fwrite(buffer, 1, count, output)
    }
  }
}

@discardableResult
func removeFile(_ path: String) -> Bool { unlink(path) == 0 }

extension String {
  func replacing(_ old: String, _ new: String) -> String {
    split(separator: old, omittingEmptySubsequences: false).joined(separator: new)
  }
}
