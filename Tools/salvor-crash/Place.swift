import Foundation
import SQLiteSupport
import SalvorModel
import SalvorWire

/// A directory with servers of one database and devices of every strategy, driven by the salvor tool.
final class Place {
  /// Of each device.
  let strategies: [String]
  /// Every device gives back what the server lost: all that was acknowledged must be on the server in the end.
  let heals: Bool
  /// Devices that give nothing back now, by their configuration; what they hold they offer once it is changed.
  private(set) var silent: Set<Int> = []
  /// First synchronizations go by files.
  let takesSnapshots: Bool
  /// Files that were taken over, as far as the devices could say.
  private(set) var snapshots: Int64 = 0
  static let rowsAtFirst = 200
  static let tables = ["site", "visit"]

  let directory: String
  private let salvor: String
  let server: any ServerDatabase
  /// One after the other gets a device's synchronizations.
  private var servers: [Child?]
  private var urls: [String]
  private var turn = 0
  private(set) var backups: [String] = []
  private var backupsMade = 0

  init(salvor: String, heals: Bool, takesSnapshots: Bool, storage: String, servers count: Int) throws {
    self.salvor = salvor
    servers = Array(repeating: nil, count: count)
    urls = Array(repeating: "", count: count)
    self.takesSnapshots = takesSnapshots
    self.heals = heals
    // The others give up what waits.
    strategies =
      heals
      ? Array(repeating: "recover-unsynced-changes", count: 5)
      : [
        "recover-unsynced-changes", "discard-unsynced-changes", "copy-and-resubscribe", "recreate",
        "upload-then-recreate",
      ]
    directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-crash-\(UUID().uuidString)").path
    server =
      storage == "sqlite"
      ? SQLiteServerDatabase(in: directory + "/server-0") : try PostgreSQLServerDatabase(in: directory + "/pg")
    try write(
      """
      { version: 1, tables: {
          site: { maintained: "dual", primaryKey: "id", columns: { id: "text", body: "text" } },
          visit: { maintained: "dual", primaryKey: "id", columns: { id: "text", site_id: "text", body: "text" },
                   references: { site_id: { table: "site", onDelete: "cascade" } } } } }
      """, "schema.json5")
    for number in servers.indices {
      // The files of first synchronizations are one folder of all.
      try write(
        """
        { schema: "../schema.json5",
          server: { storage: \(server.configuration(ofServer: number)),
                    listen: { module: "http", address: "127.0.0.1", port: 0 },
                    \(takesSnapshots ? "snapshots: { minRows: 1, path: \"../files\" }," : "")
                    authentication: { module: "none" }, recovery: { selfServiceRemoteDeletion: true } } }
        """, "server-\(number)/salvor.json5")
    }
    for device in strategies.indices {
      try FileManager.default.createDirectory(atPath: folder(device), withIntermediateDirectories: true)
    }
  }

  private func write(_ text: String, _ name: String) throws {
    let path = directory + "/" + name
    try FileManager.default.createDirectory(
      atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
    try text.write(toFile: path, atomically: true, encoding: .utf8)
  }

  func remove() { try? FileManager.default.removeItem(atPath: directory) }

  // MARK: - The servers

  func startServers() throws {
    for number in servers.indices { try startServer(number) }
  }

  func startServer(_ number: Int) throws {
    let child = try Child(salvor, ["serve"], in: directory + "/server-\(number)", output: "out")
    servers[number] = child
    for _ in 0..<6000 where !child.hasEnded(within: 0.01) {
      let mark = "listening on "
      guard let line = child.out.split(separator: "\n").first(where: { $0.hasPrefix(mark) }) else { continue }
      urls[number] = String(line.dropFirst(mark.count))
      return
    }
    throw Failure("the server does not start: \(child.out)")
  }

  /// Answers with which one it was.
  func killServer(_ random: inout some RandomNumberGenerator) -> Int {
    let number = Int.random(in: servers.indices, using: &random)
    servers[number]?.kill()
    return number
  }

  /// Nothing of the run goes on.
  func end() {
    for child in servers { child?.kill() }
    server.end()
  }

  func stopServers() throws {
    for child in servers { try child?.terminate() }
  }

  func backup() throws {
    let name = "backup-\(backupsMade)"
    try server.backup(name, operate)
    backupsMade += 1
    backups.append(name)
  }

  /// None of before is restored any more.
  func beginBackupsAnew() throws {
    backups = []
    try backup()
  }

  /// Puts an older state of the servers' database back, under them or not.
  func restore(_ backup: String, stops: Bool) throws {
    let stops = stops || !server.isRestoredUnderServers
    if stops { try stopServers() }
    try server.restore(backup, operate)
    if stops { try startServers() }
  }

  private func operate(_ arguments: [String]) throws {
    let ended = try Child(salvor, arguments, in: directory + "/server-0", output: "operator.out").wait()
    guard ended.code == 0 else { throw Failure("salvor \(arguments.joined(separator: " ")): \(ended.out)") }
  }

  // MARK: - Devices

  private func folder(_ device: Int) -> String { directory + "/device-\(device)" }
  func database(_ device: Int) -> String { folder(device) + "/field.db" }

  private func configure(_ device: Int, url: String) throws {
    try write(
      """
      { schema: "../schema.json5",
        client: { storage: { module: "sqlite", path: "field.db" },
                  transport: { module: "http", url: "\(url)" }, credentials: { principal: "anna" },
                  recovery: { strategy: "\(strategies[device])"\(silent.contains(device) ? ", heal: \"off\"" : "") } } }
      """, "device-\(device)/salvor.json5")
  }

  func setSilent(_ device: Int, _ isSilent: Bool) {
    if isSilent { silent.insert(device) } else { silent.remove(device) }
  }

  func start(_ device: Int, _ arguments: String...) throws -> Child {
    turn = (turn + 1) % servers.count
    try configure(device, url: urls[turn])
    return try Child(salvor, arguments, in: folder(device), output: "out")
  }

  /// A device that has nothing unsent and nothing in its archive loses its database. False: it has.
  func renew(_ device: Int) throws -> Bool {
    _ = try settle(device)
    let own = try SQLiteConnection(database(device))
    let kept = try own.integer("SELECT count(*) FROM salvor_error_archive") ?? 0
    own.close()
    guard kept == 0 else { return false }
    for name in try FileManager.default.contentsOfDirectory(atPath: folder(device)) where name.hasPrefix("field.db") {
      try FileManager.default.removeItem(atPath: folder(device) + "/" + name)
    }
    // Its tables, for the application to write in.
    let ended = try start(device, "status", "--json").wait()
    guard ended.code == 0 else { throw Failure("salvor status: \(ended.out)") }
    return true
  }

  /// Syncs until it is quiet. Answers how often a person had to decide.
  func settle(_ device: Int) throws -> Int {
    var decisions = 0
    var quiet = 0
    for _ in 0..<200 {
      let ended = try start(device, "sync", "--json").wait()
      let (json, error) = (Self.json(ended), Self.error(ended))
      snapshots += json?["snapshots"]?.integer ?? 0
      switch ended.code {
      case 0, 6:
        quiet = json?["uploaded"]?.integer == 0 && json?["recovery"]?.isNull != false ? quiet + 1 : 0
        if quiet == 2 { return decisions }
      case 5:
        decisions += 1
        try decide(device)
      // The session of a killed process still counts as under way for a while.
      case 1 where error == "session-in-use", 3 where error == "overloaded": usleep(300_000)
      // Its servers open another database in the place of theirs.
      case 1 where error == "storage-busy" && server.isRestoredUnderServers: usleep(300_000)
      default: throw Failure("device \(device): salvor sync ends with \(ended.code ?? -1): \(ended.out)")
      }
    }
    throw Failure("device \(device) does not become quiet")
  }

  /// An error stands below it once more, in words.
  private static func json(_ ended: Child.Ended) -> JSONValue? {
    try? JSONValue(parsing: Array(ended.out.prefix { $0 != "\n" }.utf8))
  }

  private static func error(_ ended: Child.Ended) -> String { json(ended)?["error"]?["name"]?.string ?? "" }

  /// A guard asked for a person: the strategy of the configuration runs, by hand, or where it cannot, the standard one.
  private func decide(_ device: Int) throws {
    let status = try JSONValue(parsing: Array(try start(device, "status", "--json").wait().out.utf8))
    guard let token = status["recovery"]?["token"]?.string else {
      throw Failure("device \(device) needs a recovery and has no token: \(status.text)")
    }
    for strategy in [strategies[device], strategies[0]] {
      let ended = try start(device, "recover", "--json", "--token", token, "--strategy", strategy).wait()
      if ended.code == 0 || ended.code == 6 { return }
      // Its servers open another database longer than it waits: a person comes again.
      if server.isRestoredUnderServers, ["storage-busy", "session-unknown"].contains(Self.error(ended)) {
        usleep(300_000)
        return
      }
      guard ended.code == 2, strategy != strategies[0] else { throw Failure("salvor recover: \(ended.out)") }
    }
  }
}
