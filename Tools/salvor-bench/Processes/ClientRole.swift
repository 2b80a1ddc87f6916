import SalvorClientEngine
import SalvorModel
import SalvorTransport
import SalvorWire

/// `role client DATABASE SCHEMA URL STRATEGY [HEAL [WAY]]`: one device. Commands: `open`, `sync`, `watch` (from then on;
/// answered when the server tells), `subscribe` with a `project`, `unsubscribe` from all, `idle` with a `count`, `usage`.
func runClientRole(_ arguments: [String]) async throws {
  guard (4...6).contains(arguments.count), let schema = namedSchema(arguments[1]),
    let heal = HealMode(rawValue: arguments.count > 4 ? arguments[4] : HealMode.own.rawValue),
    let way = DownloadWay(rawValue: arguments.count > 5 ? arguments[5] : DownloadWay.product.rawValue)
  else {
    throw SalvorError(.usage, "role client DATABASE SCHEMA URL STRATEGY [HEAL [WAY]]")
  }
  let device = try BenchClient.make(
    database: arguments[0], schema: schema, url: arguments[2], strategy: arguments[3], heal: heal,
    way: way)
  var watching: Task<SyncReport?, Never>?
  for await command in roleCommands() {
    do {
      switch command["do"]?.string {
      case "watch":
        let events = device.client.events
        watching = Task { await device.client.watch() }
        for await event in events { if case .listening = event { break } }
        reply(usage())
      case "open":
        try await device.client.open()
        reply(usage())
      case "sync": reply(try await timedSync(device))
      case "subscribe":
        let project = try command.integer("project")
        try await device.client.subscribe("record", ["project": .value(.integer(project))])
        reply(usage())
      case "unsubscribe":
        try await device.client.unsubscribe(allOf: "record")
        reply(usage())
      case "idle": reply(try await idle(device, count: Int(try command.integer("count"))))
      default: reply(usage())
      }
    } catch {
      reply([("error", .string("\(error)"))])
    }
  }
  watching?.cancel()
  _ = await watching?.value
  await device.client.close()
}

private func timedSync(_ device: BenchClient) async throws -> [(String, JSONValue)] {
  let sockets = SocketBytes.now()
  let cpu = Measure.cpu()
  let start = Measure.wall()
  let report = await device.client.attemptSync()
  let wall = Measure.wall() - start
  let usedCPU = Measure.cpu() - cpu
  if let error = report.error { throw error }
  let after = SocketBytes.now()
  var members: [(String, JSONValue)] = [
    ("wall", .real(wall)), ("clientCPU", .real(usedCPU)), ("uploaded", .integer(report.uploaded)),
    ("upserts", .integer(report.upserts)), ("deletes", .integer(report.deletes)),
    ("refused", .integer(report.refused)), ("roundTrips", .integer(report.roundTrips)),
    ("bytesSent", .integer(report.bytesSent)), ("bytesReceived", .integer(report.bytesReceived)),
  ]
  if let recovery = report.recovery { members.append(("recovery", recovery.json)) }
  // A connection that was closed took its counters along.
  if after.connections > 0, after.connections >= sockets.connections {
    members.append(("wireSent", .integer(after.sent - sockets.sent)))
    members.append(("wireReceived", .integer(after.received - sockets.received)))
  }
  return members + usage()
}

/// Syncs with nothing to do and bare requests in turns, so that both meet the same machine.
private func idle(_ device: BenchClient, count: Int) async throws -> [(String, JSONValue)] {
  var syncs: [Double] = []
  var requests: [Double] = []
  for _ in 0..<count {
    var start = Measure.wall()
    let report = await device.client.attemptSync()
    syncs.append(Measure.wall() - start)
    if let error = report.error { throw error }
    start = Measure.wall()
    let response = try await device.transport.send(
      TransportRequest(method: "GET", path: "/healthz", headers: device.credentials))
    _ = try await response.body.collect(upTo: 1024)
    requests.append(Measure.wall() - start)
  }
  return [("syncs", .array(syncs.map(JSONValue.real))), ("requests", .array(requests.map(JSONValue.real)))]
}
