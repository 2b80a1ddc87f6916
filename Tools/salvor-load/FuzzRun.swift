import Foundation
import GzipCompression
import HTTPClientTransport
import ManualRecovery
import RecoverUnsyncedChangesRecovery
import SQLiteClientStore
import SQLiteSupport
import SalvorClientEngine
import SalvorHost
import SalvorModel
import SalvorStorage
import SalvorTransport
import StandardModules

/// Mutates exchanges of every route for both ends, from a seed.
struct FuzzRun: Sendable {
  let options: LoadOptions
  init(_ options: LoadOptions) { self.options = options }

  /// kB that either process may take.
  static let memoryMax = 768 << 10

  private struct Tally {
    var sent = 0
    var answers: [Int: Int] = [:]
    var closed = 0
    var synced = 0
    var refused: [String: Int] = [:]
    var faults: [String] = []
  }

  /// True: both ends live, are small, have healthy databases, and every answer was well-formed.
  func run() async throws -> Bool {
    let server = try ServerUnderTest(options.salvor, files: 0)
    let schema = try Host.load(server.configuration, modules: StandardModules.all, environment: [:]).schema
    let corpus = try await record(server, schema)
    var tally = Tally()
    var mutation = Mutation(draws: Draws(options.seed), corpus: corpus.map(\.body))
    var device = try FuzzDevice(server, schema, number: 0)
    let start = ContinuousClock.now
    var round = 0
    while options.runs.map({ round < $0 }) ?? (milliseconds(since: start) < options.seconds * 1000) {
      round += 1
      let before = tally.faults.count
      // The device's end: one of four, each takes several exchanges.
      if round % 4 == 0 {
        try await fuzz(&device, server, schema, &mutation, &tally, round)
      } else {
        try await fuzz(server, corpus, &mutation, &tally)
      }
      if round % 50 == 0 || tally.faults.count > before { try look(server, &tally, round) }
      if tally.faults.count > 20 { break }
    }
    try look(server, &tally, round)
    if try await honestSync(FuzzDevice(server, schema, number: round + 1)) == nil {
      tally.faults.append("a new device cannot synchronize any more")
    }
    let stop = server.stop()
    if !stop.isClean { tally.faults.append("the server did not end with 0") }
    report(tally, round)
    return tally.faults.isEmpty
  }

  private func look(_ server: ServerUnderTest, _ tally: inout Tally, _ round: Int) throws {
    guard server.isAlive else {
      tally.faults.append("round \(round): the server has ended")
      return
    }
    let own = Self.ownPeak()
    for (name, size) in [("server", server.kilobytes("VmHWM")), ("device", own)] where size > Self.memoryMax {
      tally.faults.append("round \(round): the \(name) took \(size / 1024) MB")
    }
    let damage = try server.damage()
    if !damage.isEmpty { tally.faults.append("round \(round): the server's database: \(damage.prefix(3))") }
  }

  private static func ownPeak() -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = text.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
    return line?.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap { Int($0) } ?? 0
  }

  // MARK: What is mutated

  /// Honest exchanges: a first sync, small and large uploads, blobs, a recovery, and the routes that a device does not use.
  private func record(_ server: ServerUnderTest, _ schema: Schema) async throws -> [RecordedRequest] {
    let device = try FuzzDevice(server, schema, number: -1)
    for count in [0, 3, 400] {
      try await device.write(count)
      if let error = await device.client.attemptSync().error { throw error }
    }
    var all = device.transport.recorded
    guard let begin = all.first(where: { $0.path == "/v1/sync" }) else { throw Failure("nothing was recorded") }
    func add(_ method: String, _ path: String, _ body: String = "") {
      all.append(RecordedRequest(method: method, path: path, headers: begin.headers, body: Array(body.utf8)))
    }
    let hash = String(repeating: "ab", count: 32)
    add("POST", "/v1/blobs/missing", #"{"blobs":[{"ref":"\#(hash)","size":40000}]}"#)
    add("PUT", "/v1/blobs/\(hash)?size=8&offset=0", "12345678")
    add("GET", "/v1/blobs/\(hash)?size=8&offset=0&table=visit&key=[%22d1%22]&column=note")
    add("POST", "/v1/blobs/\(hash)?size=8&offset=0", #"{"table":"visit","key":["d1"],"column":"note"}"#)
    var text = String(decoding: begin.body, as: UTF8.self)
    if let end = text.range(of: "\"upload\"") {
      text.insert(
        contentsOf: #""history":{"sequences":[],"incarnations":[],"commits":[],"tables":[]},"#, at: end.lowerBound)
    }
    add("POST", "/v1/recovery", text)
    for path in ["rows", "ranges", "download", "end"] {
      add("POST", "/v1/recovery/\(String(repeating: "0", count: 32))/\(path)", #"{"table":"visit","keys":[["a"]]}"#)
    }
    for path in [
      "/healthz", "/readyz", "/metrics", "/admin/v1/remotes", "/admin/v1/conflicts?state=all", "/admin/v1/stats",
    ] { add("GET", path) }
    add("DELETE", "/v1/sync/\(String(repeating: "0", count: 32))")
    return all
  }

  // MARK: The server's end

  private func fuzz(
    _ server: ServerUnderTest, _ corpus: [RecordedRequest], _ mutation: inout Mutation, _ tally: inout Tally
  ) async throws {
    var request = corpus[mutation.number(corpus.count)]
    var bytes: [UInt8]
    switch mutation.number(5) {
    case 0: bytes = mutation.mutate(request.bytes)
    case 1:
      request.path = String(decoding: mutation.mutate(Array(request.path.utf8)), as: UTF8.self)
        .filter { $0.isASCII && $0 > " " }
      bytes = request.bytes
    case 2:
      request.body = try await ByteStream.bytes(mutation.mutate(request.body)).compressed(by: GzipCompression())
        .collect(upTo: .max)
      if mutation.number(2) == 0 { request.body = mutation.mutate(request.body) }
      request.headers["content-encoding"] = "gzip"
      bytes = request.bytes
    default:
      request.body = mutation.mutate(request.body)
      bytes = request.bytes
    }
    let port = server.port
    let sent = bytes
    let method = request.method
    tally.sent += 1
    let received = await onThread { () -> [UInt8]? in
      guard let connection = RawConnection(port, timeoutSeconds: 20) else { return nil }
      connection.send(sent)
      // Whatever length it says: no more comes.
      connection.finishSending()
      return connection.receive()
    }
    guard let received else {
      tally.faults.append(
        "the server neither answered nor closed: \(String(decoding: sent.prefix(300), as: UTF8.self))")
      return
    }
    // Only asked whether it is still there, and then closed: as good as closed at once.
    if received.isEmpty || received == Array("HTTP/1.1 100 Continue\r\n\r\n".utf8) {
      tally.closed += 1
      return
    }
    do {
      let answer = try RawAnswer(received, isHead: method == "HEAD")
      tally.answers[answer.status, default: 0] += 1
      if answer.status >= 500, answer.status != 503, answer.status != 505 {
        tally.faults.append(
          "status \(answer.status): \(String(decoding: answer.body.prefix(300), as: UTF8.self)) to \(String(decoding: sent.prefix(600), as: UTF8.self))"
        )
      }
    } catch {
      tally.faults.append(
        "an answer that is not well-formed (\(error)): \(String(decoding: received.prefix(300), as: UTF8.self)) to \(String(decoding: sent.prefix(300), as: UTF8.self))"
      )
    }
  }

  // MARK: The device's end

  private func fuzz(
    _ device: inout FuzzDevice, _ server: ServerUnderTest, _ schema: Schema, _ mutation: inout Mutation,
    _ tally: inout Tally, _ round: Int
  ) async throws {
    try await device.write(mutation.number(4))
    let shared = Mutex(mutation)
    device.transport.changeAnswers { response in
      var response = response
      let body = try await response.body.collect(upTo: 64 << 20)
      let changed = shared.withLock { $0.number(3) == 0 ? body : $0.mutate(body) }
      response.body = .bytes(changed)
      response.contentLength = changed.count
      if shared.withLock({ $0.number(20) }) == 0 {
        response.status = shared.withLock { [200, 204, 302, 404, 500][$0.number(5)] }
      }
      return response
    }
    let report = await device.client.attemptSync()
    device.transport.changeAnswers(nil)
    mutation = shared.withLock { $0 }
    tally.refused[report.error?.code.rawValue ?? "none", default: 0] += 1
    let damage = try device.damage()
    if !damage.isEmpty { tally.faults.append("round \(round): the device's database: \(damage.prefix(3))") }
    // The way on: an honest sync goes through, or names what a person must decide.
    if let outcome = try await honestSync(device) {
      tally.synced += 1
      if outcome == .recoveryRequired { device = try FuzzDevice(server, schema, number: round) }
    } else {
      tally.faults.append("round \(round): the device cannot synchronize any more: \(device.lastError)")
      device = try FuzzDevice(server, schema, number: round)
    }
  }

  private func honestSync(_ device: FuzzDevice) async throws -> SyncReport.Outcome? {
    let report = await device.client.attemptSync()
    guard let error = report.error else { return report.outcome }
    device.lastError = "\(error)"
    // A lie that was believed (another server ID, another sequence) ends as a recovery, which is a way on.
    return error.code.exitCode == 5 ? .recoveryRequired : nil
  }

  private func report(_ tally: Tally, _ rounds: Int) {
    if options.isJSON {
      let json: [String: Any] = [
        "well": tally.faults.isEmpty, "rounds": rounds, "sent": tally.sent, "closed": tally.closed,
        "answers": Dictionary(tally.answers.map { ("\($0.key)", $0.value) }) { $1 }, "synced": tally.synced,
        "device": tally.refused, "faults": tally.faults,
      ]
      if let data = try? JSONSerialization.data(withJSONObject: json, options: [.sortedKeys]) {
        print(String(decoding: data, as: UTF8.self))
      }
      return
    }
    print("rounds \(rounds), seed \(options.seed)")
    print("server: \(tally.sent) requests, closed without an answer \(tally.closed), answers by status:")
    for (status, count) in tally.answers.sorted(by: { $0.key < $1.key }) { print("  \(status)  \(count)") }
    print(
      "device: \(tally.refused.values.reduce(0, +)) syncs with changed answers, \(tally.synced) honest ones after them:"
    )
    for (code, count) in tally.refused.sorted(by: { $0.key < $1.key }) { print("  \(code)  \(count)") }
    for fault in tally.faults { print("FAULT \(fault)") }
    print(tally.faults.isEmpty ? "well" : "not well")
  }
}

/// A device with a database of its own in the server's directory.
final class FuzzDevice: @unchecked Sendable {
  let client: SalvorClient
  let transport: RecordingTransport
  var lastError = ""
  private let database: String
  private let number: Int
  private var written = 0

  init(_ server: ServerUnderTest, _ schema: Schema, number: Int) throws {
    self.number = number
    database = server.directory.appendingPathComponent("device\(number).db").path
    transport = RecordingTransport(try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(server.url))))
    var limits = Limits()
    limits.singleRoundTripBytesMax = 4096
    limits.chunkBytesTarget = 4096
    limits.attemptsMax = 1
    client = SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: "device", store: SQLiteClientStore(path: database), transport: transport,
        credentials: credentialHeaders(["principal": "device"]), limits: limits,
        recovery: RecoveryConfiguration(
          strategies: [RecoverUnsyncedChangesRecovery(), ManualRecovery()], strategy: "recover-unsynced-changes")))
  }

  func write(_ count: Int) async throws {
    try await client.open()
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    for _ in 0..<count {
      written += 1
      try connection.run(
        "INSERT INTO visit (id, note) VALUES (?1, ?2)", .text("d\(number)-\(written)"), .text("visit \(written)"))
    }
  }

  func damage() throws -> [String] {
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    return try connection.rows("PRAGMA integrity_check").map { $0[0].description }.filter { !$0.contains("ok") }
      + connection.rows("PRAGMA foreign_key_check").map { "foreign key of \($0[0])" }
  }
}
