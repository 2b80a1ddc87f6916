import SalvorHost
import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The demo's server and devices: processes of this same executable, each with a configuration file of its own.
struct DemoFleet: Sendable {
  let directory: String
  let devices: [String]
  let executable = ChildProgram.own()
  var url = ""
  private var server: ChildProgram?
  /// The strategies of devices that have another one than the default.
  private var strategies: [String: String] = [:]

  var serverDatabase: String { "\(directory)/server/consolidated.db" }
  var log: String { "\(directory)/demo.log" }
  func database(_ device: String) -> String { "\(directory)/\(device)/field.db" }

  /// `limits` of the devices, `snapshots` of the servers.
  private let limits: String
  private let snapshots: String

  init(
    directory: String, devices: [String], data: DemoData,
    storage: String = #"{ module: "sqlite", path: "consolidated.db" }"#, limits: String = "{}",
    snapshots: String = "{ minRows: 1000 }"
  ) throws {
    self.snapshots = snapshots
    self.limits = limits
    self.directory = directory
    self.devices = devices
    for folder in ["server", "restored"] + devices { try makeFolder("\(directory)/\(folder)") }
    try write(try readFile("\(data.directory)/schema.json5"), to: "schema.json5")
    try configureServer("server", storage: storage)
  }

  func configureServer(_ folder: String, storage: String) throws {
    try write(
      """
      {
        schema: "../schema.json5",
        server: {
          storage: \(storage),
          listen: { module: "http", address: "127.0.0.1", port: 0 },
          authentication: { module: "none" },
          // Any group whose rows are worth a file in the demo's small data, too.
          snapshots: \(snapshots),
          recovery: { selfServiceRemoteDeletion: true },
        },
      }

      """, to: "\(folder)/salvor.json5")
  }

  /// Starts `salvor serve` and writes the devices' configurations with the URL that it says.
  mutating func startServer() async throws {
    let program = try ChildProgram(
      executable, ["serve", "--quiet", "--config", "\(directory)/server/salvor.json5"], log: log)
    server = program
    let prefix = "listening on "
    guard let line = await program.firstLine(), line.hasPrefix(prefix) else {
      throw SalvorError(.failed, "The demo's server did not start; \(log) says why.")
    }
    url = String(line.dropFirst(prefix.count))
    try configureDevices()
  }

  /// With the URL of now.
  func configureDevices() throws {
    for device in devices { try configure(device, as: device) }
    for device in strategies.keys.sorted() { try configure(device, as: principal(device)) }
  }

  private func configure(_ device: String, as principal: String) throws {
    let recovery = strategies[device].map { "recovery: { strategy: \"\($0)\" }," } ?? ""
    try write(
      """
      {
        schema: "../schema.json5",
        client: {
          storage: { module: "sqlite", path: "field.db" },
          transport: { module: "http", url: "\(url)" },
          credentials: { principal: "\(principal)" },
          limits: \(limits),
          \(recovery)
        },
      }

      """, to: "\(device)/salvor.json5")
  }

  /// Ends the server as an operator does; true: in order.
  mutating func stopServer() async -> Bool {
    guard let server else { return true }
    self.server = nil
    server.terminate()
    return await server.result().code == 0
  }

  /// `salvor sync` on a device. 0 and 6 (some requests refused) are what a demo expects.
  func sync(_ device: String, expecting codes: [Int32] = [0, 6]) async throws -> DemoSync {
    let started = SystemClock().now()
    let result = try await salvor(device, ["sync"])
    guard codes.contains(result.code) else {
      throw SalvorError(.failed, "salvor sync of \(device) ended with \(result.code): \(result.out)")
    }
    return DemoSync(
      device: device, report: try JSONValue(parsing: trimmed(result.out)),
      milliseconds: SystemClock().now() - started)
  }

  /// A command's `--json` on a device.
  func json(_ device: String, _ words: [String]) async throws -> JSONValue {
    try JSONValue(parsing: trimmed(try await salvor(device, words).out))
  }

  func salvor(_ device: String, _ words: [String]) async throws -> ChildProgram.Result {
    try await ChildProgram.run(
      executable, words + ["--json", "--config", "\(directory)/\(device)/salvor.json5"], log: log)
  }

  func trimmed(_ text: String) -> [UInt8] {
    var bytes = Array(text.utf8)
    while bytes.last == 0x0A { bytes.removeLast() }
    return bytes
  }

  func makeFolder(_ path: String) throws {
    guard mkdir(path, 0o755) == 0 else {
      throw SalvorError(.failed, "The folder \(path) cannot be made: \(String(cString: strerror(errno))).")
    }
  }

  /// The file that the server makes by itself once a device has asked for the rows.
  func snapshot() async throws -> JSONValue {
    for _ in 0..<1200 {
      if let made = try await operate(["server", "snapshots"])["snapshots"]?.array?.first { return made }
      try await Task.sleep(for: .milliseconds(100))
    }
    throw SalvorError(.failed, "The demo's server made no snapshot within two minutes; \(log) says why.")
  }

  // MARK: - The bad day

  /// An operator's command on the server's database; its `--json`.
  func operate(_ words: [String]) async throws -> JSONValue {
    let result = try await salvor("server", words)
    guard result.code == 0 else {
      throw SalvorError(.failed, "salvor \(words.joined(separator: " ")) ended with \(result.code); \(log) says why.")
    }
    return try JSONValue(parsing: trimmed(result.out))
  }

  /// Keeps the stopped server's database as it is, to begin with it again.
  func keepServer() throws { try copyDatabase("consolidated.db", from: "server", to: "restored") }

  /// The stopped server's database is again what `keepServer` kept.
  func putBackServer() throws { try copyDatabase("consolidated.db", from: "restored", to: "server") }

  /// A device's database once more, under another strategy. Returns the new device's name.
  mutating func copyDevice(_ device: String, strategy: String) throws -> String {
    let copy = "\(device)~\(strategy)"
    try makeFolder("\(directory)/\(copy)")
    try copyDatabase("field.db", from: device, to: copy)
    strategies[copy] = strategy
    return copy
  }

  private func principal(_ copy: String) -> String { String(copy.prefix { $0 != "~" }) }

  /// A database that nobody has open, with what Salvor keeps beside it.
  private func copyDatabase(_ name: String, from folder: String, to target: String) throws {
    func isCopied(_ file: String) -> Bool {
      file.hasPrefix(name) && !file.contains(".before-restore-") && !file.hasSuffix("-snapshots")
    }
    for file in try files(target) where isCopied(file) { unlink("\(directory)/\(target)/\(file)") }
    for file in try files(folder) where isCopied(file) {
      try write(try readFile("\(directory)/\(folder)/\(file)"), to: "\(target)/\(file)")
    }
  }

  private func files(_ folder: String) throws -> [String] {
    guard let names = fileNames(in: "\(directory)/\(folder)") else {
      throw SalvorError(.failed, "The folder \(directory)/\(folder) cannot be read.")
    }
    return names
  }

  private func write(_ text: String, to name: String) throws { try write(Array(text.utf8), to: name) }

  func write(_ bytes: [UInt8], to name: String) throws { try write(bytes, toFile: "\(directory)/\(name)") }

  func write(_ bytes: [UInt8], toFile path: String) throws {
    guard let file = fopen(path, "w") else {
      throw SalvorError(.failed, "\(path) cannot be written: \(String(cString: strerror(errno))).")
    }
    defer { fclose(file) }
    guard fwrite(bytes, 1, bytes.count, file) == bytes.count else {
      throw SalvorError(.storageFull, "\(path) cannot be written: \(String(cString: strerror(errno))).")
    }
  }
}

/// What one `salvor sync` of the demo did.
struct DemoSync: Sendable {
  var device: String
  var report: JSONValue
  var milliseconds: Int64

  func number(_ path: String...) -> Int64 {
    path.reduce(Optional(report)) { $0?[$1] }?.integer ?? 0
  }

  var json: JSONValue {
    ["device": .string(device), "milliseconds": .integer(milliseconds), "report": report]
  }
}
