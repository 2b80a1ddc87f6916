import SalvorModel
import SalvorWire

/// A sync with nothing to do, from an open client. The limit: one bare HTTP request (`GET /healthz`) through the same
/// transport to the same server.
struct IdleSync {
  var rows: Int

  private static let ratioMax = 3.0
  private static let bytesMax = 1500.0
  private static let warmUp = 50
  private static let syncsEachRun = 200

  func run(_ bench: Bench) throws -> WorkloadResult {
    let count = IdleSync.syncsEachRun * bench.options.runs
    let serverPath = bench.path("idle-server.db")
    let clientPath = bench.path("idle-client.db")
    defer { bench.discard(serverPath, clientPath) }
    bench.say("idle-sync: loading \(grouped(rows)) rows and synchronizing them")
    try PlainDatabase.seed(serverPath, .records(RecordData(), count: rows))
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record")
    defer { pair.end() }
    _ = try pair.sync()
    bench.settle()
    _ = try pair.client.call("idle", [("count", .integer(Int64(IdleSync.warmUp)))])
    let (serverCPU, clientCPU) = (try cpu(pair.server), try cpu(pair.client))
    let answer = try pair.client.call("idle", [("count", .integer(Int64(count)))])
    let syncs = try seconds(answer, "syncs")
    let requests = try seconds(answer, "requests")
    let details: [(String, JSONValue)] = [
      ("p99", .real(percentile(syncs, 0.99))), ("requestP99", .real(percentile(requests, 0.99))),
      ("clientCPUPerRound", .real((try cpu(pair.client) - clientCPU) / Double(count))),
      ("serverCPUPerRound", .real((try cpu(pair.server) - serverCPU) / Double(count))),
    ]
    // A sync of its own, for its bytes.
    let sync = try pair.sync()
    return WorkloadResult(
      name: "idle-sync", title: "\(grouped(rows)) rows, p50 of \(grouped(count))",
      figures: [
        Figure(
          name: "wall", value: percentile(syncs, 0.5), unit: .seconds, limit: percentile(requests, 0.5),
          limitName: "bare request", target: .ratio(atMost: IdleSync.ratioMax), details: details),
        Figure(
          name: "wire, both directions", value: Double(sync.bytes), unit: .bytes,
          target: .value(atMost: IdleSync.bytesMax), details: [sync].details),
        Figure(
          name: "round trips", value: Double(sync.roundTrips), unit: .count, target: .value(atMost: 1)),
      ])
  }

  private func cpu(_ process: ChildProcess) throws -> Double { try process.call("usage").real("cpu") }

  private func seconds(_ answer: JSONValue, _ key: String) throws -> [Double] {
    try answer.array(key).map { value in
      guard case .real(let seconds) = value else { throw SalvorError(.malformed, "\(key) are not all numbers.") }
      return seconds
    }
  }
}
