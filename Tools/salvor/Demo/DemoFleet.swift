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

  var serverDatabase: String { "\(directory)/server/consolidated.db" }
  var log: String { "\(directory)/demo.log" }
  func database(_ device: String) -> String { "\(directory)/\(device)/field.db" }

  init(directory: String, devices: [String], data: DemoData) throws {
    self.directory = directory
    self.devices = devices
    for folder in ["server"] + devices { try makeFolder("\(directory)/\(folder)") }
    try write(try readFile("\(data.directory)/schema.json5"), to: "schema.json5")
    try write(
      """
      {
        schema: "../schema.json5",
        server: {
          storage: { module: "sqlite", path: "consolidated.db" },
          listen: { module: "http", address: "127.0.0.1", port: 0 },
          compression: ["gzip"],
          authentication: { module: "none" },
        },
      }

      """, to: "server/salvor.json5")
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
    for device in devices {
      try write(
        """
        {
          schema: "../schema.json5",
          client: {
            storage: { module: "sqlite", path: "field.db" },
            transport: { module: "http", url: "\(url)", compression: "gzip" },
            credentials: { principal: "\(device)" },
          },
        }

        """, to: "\(device)/salvor.json5")
    }
  }

  /// Ends the server as an operator does; true: in order.
  mutating func stopServer() async -> Bool {
    guard let server else { return true }
    self.server = nil
    server.terminate()
    return await server.result().code == 0
  }

  /// `salvor sync` on a device. 0 and 6 (some requests refused) are what a demo expects.
  func sync(_ device: String) async throws -> DemoSync {
    let started = SystemClock().now()
    let result = try await salvor(device, ["sync"])
    guard result.code == 0 || result.code == 6 else {
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

  private func salvor(_ device: String, _ words: [String]) async throws -> ChildProgram.Result {
    try await ChildProgram.run(
      executable, words + ["--json", "--config", "\(directory)/\(device)/salvor.json5"], log: log)
  }

  private func trimmed(_ text: String) -> [UInt8] {
    var bytes = Array(text.utf8)
    while bytes.last == 0x0A { bytes.removeLast() }
    return bytes
  }

  private func makeFolder(_ path: String) throws {
    guard mkdir(path, 0o755) == 0 else {
      throw SalvorError(.failed, "The folder \(path) cannot be made: \(String(cString: strerror(errno))).")
    }
  }

  private func write(_ text: String, to name: String) throws { try write(Array(text.utf8), to: name) }

  private func write(_ bytes: [UInt8], to name: String) throws {
    let path = "\(directory)/\(name)"
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
