import SalvorModel
import SalvorWire

/// A server process and a device's process over real HTTP on loopback.
final class Pair {
  let serverPath: String
  let clientPath: String
  let url: String
  let server: ChildProcess
  private(set) var client: ChildProcess

  /// Starts both; the device's database is opened (its tables are made), nothing is synchronized yet.
  ///
  /// - Parameters:
  ///   - strategy: how the device recovers.
  ///   - heal: what it gives back to a restored server.
  ///   - snapshots: first synchronizations go by files.
  ///   - files: where these are, too (`server.snapshots.url`).
  init(
    serverPath: String, clientPath: String, schemaName: String, strategy: String = "recover-unsynced-changes",
    snapshots: Bool = false, files: String? = nil, heal: HealMode = .own
  ) throws {
    self.serverPath = serverPath
    self.clientPath = clientPath
    let files = snapshots ? ["snapshots"] + (files.map { [$0] } ?? []) : []
    server = try ChildProcess(role: "server", [serverPath, schemaName] + files)
    url = try server.answer(to: "start").string("url")
    client = try ChildProcess(role: "client", [clientPath, schemaName, url, strategy, heal.rawValue])
    try client.call("open")
  }

  /// Another device in the place of the one that was; it ends, and its database is made anew.
  ///
  /// - Parameter way: by which way its rows come.
  func renewClient(_ path: String, _ schemaName: String, way: DownloadWay = .product) throws {
    client.end()
    PlainDatabase.remove(path)
    client = try ChildProcess(
      role: "client",
      [path, schemaName, url, "recover-unsynced-changes", HealMode.own.rawValue, way.rawValue])
    try client.call("open")
  }

  func sync() throws -> SyncMeasurement {
    let before = try server.call("usage").real("cpu")
    var sync = try SyncMeasurement(try client.call("sync"))
    let after = try server.call("usage")
    sync.serverCPU = try after.real("cpu") - before
    sync.serverPeak = try after.integer("peak")
    return sync
  }

  func end() {
    client.end()
    server.end()
  }
}

/// One synchronization as seen from outside.
struct SyncMeasurement {
  var wall: Double
  var clientCPU: Double
  var serverCPU = 0.0
  var clientPeak: Int64
  var serverPeak: Int64 = 0
  var uploaded: Int64
  var upserts: Int64
  var refused: Int64
  var roundTrips: Int64
  /// Bodies, compressed.
  var bodySent: Int64
  var bodyReceived: Int64
  /// Of the recovery in it (`RecoverySummary.json`).
  var recovery: JSONValue?
  /// All that the sockets carried, where the connection lived on.
  var wireSent: Int64?
  var wireReceived: Int64?

  init(_ json: JSONValue) throws {
    wall = try json.real("wall")
    clientCPU = try json.real("clientCPU")
    clientPeak = try json.integer("peak")
    uploaded = try json.integer("uploaded")
    upserts = try json.integer("upserts")
    refused = try json.integer("refused")
    roundTrips = try json.integer("roundTrips")
    bodySent = try json.integer("bytesSent")
    bodyReceived = try json.integer("bytesReceived")
    recovery = json["recovery"]
    wireSent = try json.optionalInteger("wireSent")
    wireReceived = try json.optionalInteger("wireReceived")
  }

  /// What the network carried in both directions: the sockets' bytes, or else the bodies alone.
  var bytes: Int64 { sent + received }
  var sent: Int64 { wireSent ?? bodySent }
  var received: Int64 { wireReceived ?? bodyReceived }
}

extension JSONValue {
  /// A number. A whole one may have been read as an integer.
  func real(_ key: String) throws -> Double {
    switch self[key] {
    case .real(let value): value
    case .integer(let value): Double(value)
    default: throw SalvorError(.malformed, "The answer has no number \"\(key)\".")
    }
  }
}

extension [SyncMeasurement] {
  func median(_ value: (SyncMeasurement) -> Double) -> Double { map(value).median }
  func median(_ value: (SyncMeasurement) -> Int64) -> Int64 { map(value).median }

  /// Medians that explain a figure.
  var details: [(String, JSONValue)] {
    [
      ("clientCPU", .real(median(\.clientCPU))), ("serverCPU", .real(median(\.serverCPU))),
      ("roundTrips", .integer(median(\.roundTrips))), ("bodySent", .integer(median(\.bodySent))),
      ("bodyReceived", .integer(median(\.bodyReceived))),
      ("wireSent", .integer(median(\.sent))), ("wireReceived", .integer(median(\.received))),
      ("isWireCounted", .bool(allSatisfy { $0.wireSent != nil })), ("walls", .array(map { .real($0.wall) })),
    ]
  }
}
