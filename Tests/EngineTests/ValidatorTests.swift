import LoopbackTransport
import MemoryStore
import NoAuthentication
import SalvorClientEngine
import SalvorContracts
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

private let schema = Schema(tables: [
  Table("site", primaryKey: ["id"], columns: [Column("id", .text), Column("name", .text)]),
  Table(
    "visit", primaryKey: ["id"],
    columns: [Column("id", .text), Column("site_id", .text), Column("note", .text, nullable: true)],
    references: [Reference(column: "site_id", table: "site")]),
])

/// Both engines over the memory stores, and a validator of the visits.
private struct Pair {
  let rules = NoteRules()
  let server: ServerEngine
  let serverStore = MemoryServerStore()
  let clientStore = MemoryClientStore()
  let client: SalvorClient
  let logged = Mutex2()

  final class Mutex2: Sendable {
    private let lines = Mutex<[String]>([])
    func add(_ line: String) { lines.withLock { $0.append(line) } }
    var all: [String] { lines.withLock { $0 } }
  }

  init(
    onFailure: ConfiguredValidator.OnFailure = .retryLater, batchRequestsMax: Int = 500,
    limits configure: (inout Limits) -> Void = { _ in }
  ) async throws {
    var limits = Limits()
    limits.attemptsMax = 1
    configure(&limits)
    let logged = logged
    (server, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: schema, store: serverStore, authentication: NoAuthentication(), compressions: [],
        validators: [
          ConfiguredValidator(
            name: "notes", validator: rules, tables: ["visit"], onFailure: onFailure, batchRequestsMax: batchRequestsMax
          )
        ], limits: limits, log: Log.lines { logged.add($0) }))
    let network = LoopbackNetwork()
    let server = server
    _ = try await LoopbackServerTransport(network).start { await server.handle($0) }
    client = SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: "anna", store: clientStore, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": "anna"]), compressions: [], uploadCompression: nil, limits: limits)
    )
    try await client.open()
  }

  func write(_ table: String, _ values: KeyValuePairs<String, Value>) async throws {
    try await clientStore.write([.insert(table: table, values: values.map { NamedValue($0.key, $0.value) })])
  }

  var archive: [QueuedRequest] {
    get async throws { try await clientStore.requests(in: [.refused, .blocked], after: nil, limit: 1000) }
  }
}

/// A device by hand: one upload, as bodies of the protocol.
private struct ByHand {
  let remote = RemoteID(from: SystemRandom())
  let sequence = SequenceID(from: SystemRandom())
  let stamp = RequestStamp(from: SystemRandom())

  func payload(_ notes: [Value]) -> (bytes: [UInt8], last: Int64) {
    var writer = UploadChunkWriter()
    let site = writer.place(of: UploadShape(table: "site", operation: .insert, columns: ["id", "name"]))
    let visit = writer.place(of: UploadShape(table: "visit", operation: .insert, columns: ["id", "site_id", "note"]))
    writer.beginChange(shape: site, stamp: stamp, counter: 1, made: 0)
    for value in ["s1", "one"] as [Value] { writer.value(value) }
    writer.endChange()
    for (index, note) in notes.enumerated() {
      writer.beginChange(shape: visit, stamp: stamp, counter: Int64(index) + 2, made: 0)
      for value in [.text("v\(index)"), "s1", note] as [Value] { writer.value(value) }
      writer.endChange()
    }
    return (writer.finish(), Int64(notes.count) + 1)
  }

  func begin(_ upload: BeginMessage.Upload) -> [UInt8] {
    BeginMessage(
      remote: remote, server: nil, previous: nil, current: sequence, schemaVersion: 1,
      schemaDigest: SyncConfig(schema).digest, groups: [], upload: upload, position: nil, history: nil
    ).json.bytes + [0x0A]
  }

  func send(_ server: ServerEngine, _ method: String, _ path: String, _ body: [UInt8]) async throws -> (
    Int, [JSONValue]
  ) {
    let response = await server.handle(
      TransportRequest(method: method, path: path, headers: ["salvor-principal": "anna"], body: .bytes(body)))
    let bytes = try await response.body.collect(upTo: 1 << 24)
    return (response.status, try bytes.split(separator: 0x0A).map { try JSONValue(parsing: Array($0)) })
  }
}

extension [JSONValue] {
  fileprivate var refused: [JSONValue]? { compactMap { $0["results"]?["refused"]?.array }.first }
}

@Suite("Validators, before an upload is processed (semantics 7)")
struct ValidatorTests {
  @Test("what it refuses is archived with its message and status, the rest is on the server")
  func refuses() async throws {
    let pair = try await Pair()
    try await pair.write("site", ["id": "s1", "name": "one"])
    try await pair.write("visit", ["id": "v1", "site_id": "s1", "note": "good"])
    try await pair.write("visit", ["id": "v2", "site_id": "s1", "note": "bad"])
    try await pair.clientStore.write([.update(table: "visit", key: ["v2"], values: [NamedValue("note", "better")])])
    let report = await pair.client.attemptSync()
    #expect(report.error == nil)
    #expect(report.uploaded == 2 && report.refused == 2)
    #expect(try await pair.serverStore.rows(of: "visit") == [["v1", "s1", "good"]])
    let archive = try await pair.archive
    #expect(archive.map(\.reason) == ["validator", "blocked"])
    #expect(archive.map(\.status) == [451, 424])
    #expect(archive.first?.message == "A visit needs a better note.")
    // Of the tables that it is for, old and new values with it.
    let requests = pair.rules.batches.flatMap(\.requests)
    #expect(requests.flatMap(\.changes).allSatisfy { $0.table == "visit" })
    #expect(requests.count == 3)
    #expect(requests.last?.changes.first?.columns == [UploadedColumn("note", old: "bad", new: "better")])
    #expect(pair.rules.batches.first?.principal.name == "anna")
  }

  @Test("a grouped request comes whole, with its changes of other tables, and falls whole")
  func group() async throws {
    let pair = try await Pair()
    try await pair.clientStore.write([
      .beginRequest(tag: "visit 1"),
      .insert(table: "site", values: [NamedValue("id", "s1"), NamedValue("name", "one")]),
      .insert(
        table: "visit", values: [NamedValue("id", "v1"), NamedValue("site_id", "s1"), NamedValue("note", "bad")]),
      .endRequest,
    ])
    let report = await pair.client.attemptSync()
    #expect(report.error == nil && report.uploaded == 0 && report.refused == 1)
    #expect(try await pair.serverStore.rows(of: "site").isEmpty)
    let request = try #require(pair.rules.batches.first?.requests.first)
    #expect(request.tag == "visit 1" && request.changes.map(\.table) == ["site", "visit"])
  }

  @Test("one that cannot be asked: the sync can be tried again, the queue is as it was, and then it goes through")
  func retryLater() async throws {
    let pair = try await Pair()
    try await pair.write("site", ["id": "s1", "name": "one"])
    try await pair.write("visit", ["id": "v1", "site_id": "s1", "note": "good"])
    for mood in [NoteRules.Mood.failing, .nonsense] {
      pair.rules.set(mood)
      let report = await pair.client.attemptSync()
      #expect(report.error?.code == .validatorUnavailable)
      #expect(report.error?.context["validator"] == "notes")
      #expect(report.exitCode == 3)
      #expect(try await pair.client.status().queued == 2)
      #expect(try await pair.serverStore.rows(of: "site").isEmpty, "nothing of the upload is processed")
    }
    #expect(pair.logged.all.count { $0.contains("notes") && $0.contains("retry-later") } == 2)
    #expect(pair.server.metrics.validationFailures.value == 2)
    pair.rules.set(.judging)
    let report = await pair.client.attemptSync()
    #expect(report.error == nil && report.uploaded == 2)
  }

  @Test("onFailure accept: what cannot be judged is accepted, and logged")
  func accept() async throws {
    let pair = try await Pair(onFailure: .accept)
    pair.rules.set(.failing)
    try await pair.write("site", ["id": "s1", "name": "one"])
    try await pair.write("visit", ["id": "v1", "site_id": "s1", "note": "bad"])
    let report = await pair.client.attemptSync()
    #expect(report.error == nil && report.uploaded == 2)
    #expect(pair.logged.all.contains { $0.contains("notes") && $0.contains("accept") })
  }

  @Test("an upload of no such table is not asked about; a large one comes in batches, in order")
  func batches() async throws {
    let pair = try await Pair(batchRequestsMax: 10) { $0.chunkBytesTarget = 200 }
    try await pair.write("site", ["id": "s1", "name": "one"])
    _ = await pair.client.attemptSync()
    #expect(pair.rules.batches.isEmpty)
    for number in 0..<25 {
      try await pair.write(
        "visit", ["id": .text("v\(number)"), "site_id": "s1", "note": number == 17 ? "bad" : "good"])
    }
    let report = await pair.client.attemptSync()
    #expect(report.error == nil && report.uploaded == 24 && report.refused == 1)
    #expect(report.roundTrips > 2, "it was staged")
    let batches = pair.rules.batches
    #expect(batches.map(\.number) == [0, 1, 2] && batches.map(\.requests.count) == [10, 10, 5])
    #expect(Set(batches.map(\.sequence)).count == 1)
    let keys = batches.flatMap(\.requests).flatMap(\.changes).map(\.key)
    #expect(keys == (0..<25).map { [.text("v\($0)")] })
  }

  @Test("an upload that was processed before is not asked about again, and has the same answer")
  func notAgain() async throws {
    let pair = try await Pair()
    let device = ByHand()
    let body = device.begin(.inline) + device.payload(["good", "bad"]).bytes
    let first = try await device.send(pair.server, "POST", "/v1/sync", body)
    let again = try await device.send(pair.server, "POST", "/v1/sync", body)
    #expect(first.0 == 200 && again.0 == 200)
    #expect(first.1.refused?.count == 1 && first.1.refused == again.1.refused)
    #expect(pair.rules.batches.count == 1)
  }

  @Test("a device that comes back while its upload is judged waits for the same answer")
  func joins() async throws {
    let pair = try await Pair()
    pair.rules.set(.waiting)
    let device = ByHand()
    let body = device.begin(.inline) + device.payload(["good", "bad"]).bytes
    let first = Task { try await device.send(pair.server, "POST", "/v1/sync", body) }
    while pair.rules.batches.isEmpty { try await Task.sleep(for: .milliseconds(2)) }
    // It hangs up, and comes back.
    first.cancel()
    let second = Task { try await device.send(pair.server, "POST", "/v1/sync", body) }
    // Another upload under the same name is another upload.
    let other = device.begin(.inline) + device.payload(["good"]).bytes
    try await Task.sleep(for: .milliseconds(50))
    pair.rules.set(.judging)
    let answer = try await second.value
    #expect(answer.0 == 200 && answer.1.refused?.count == 1)
    #expect(pair.rules.batches.count == 1)
    #expect(try await device.send(pair.server, "POST", "/v1/sync", other).1.refused?.count == 1, "the recorded answer")
    #expect(try await pair.serverStore.rows(of: "visit").count == 1)
  }

  @Test("what is staged cannot be changed between being judged and being processed")
  func stagedStays() async throws {
    let pair = try await Pair()
    let device = ByHand()
    let (good, last) = device.payload(["good"])
    let (bad, _) = device.payload(["bad"])
    let (_, lines) = try await device.send(pair.server, "POST", "/v1/sync", device.begin(.staged))
    let token = try #require(lines.first?["session"]?["token"]?.string)
    let chunk = "/v1/sync/\(token)/chunks/0?first=1&last=\(last)&final=true"
    #expect(try await device.send(pair.server, "PUT", chunk, good).0 == 204)
    pair.rules.set(.waiting)
    let processing = Task { try await device.send(pair.server, "POST", "/v1/sync/\(token)/process", []) }
    while pair.rules.batches.isEmpty { try await Task.sleep(for: .milliseconds(2)) }
    let changed = try await device.send(pair.server, "PUT", chunk, bad)
    #expect(changed.0 == 423 && changed.1.first?["code"]?.string == "session-in-use")
    pair.rules.set(.judging)
    #expect(try await processing.value.1.refused == [])
    #expect(try await pair.serverStore.rows(of: "visit") == [["v0", "s1", "good"]])
  }

  @Test("an upload that is not staged whole is not asked about")
  func notWhole() async throws {
    let pair = try await Pair()
    let device = ByHand()
    let (bytes, last) = device.payload(["good"])
    let (_, lines) = try await device.send(pair.server, "POST", "/v1/sync", device.begin(.staged))
    let token = try #require(lines.first?["session"]?["token"]?.string)
    #expect(
      try await device.send(pair.server, "PUT", "/v1/sync/\(token)/chunks/0?first=1&last=\(last)", bytes).0 == 204)
    let answer = try await device.send(pair.server, "POST", "/v1/sync/\(token)/process", [])
    #expect(answer.1.first?["code"]?.string == "chunk-missing")
    #expect(pair.rules.batches.isEmpty)
  }

  @Test("a server that stops closes its validators")
  func closes() async throws {
    let pair = try await Pair()
    await pair.server.stop()
    #expect(pair.rules.wasClosed)
  }
}

@Suite("The contract of validators")
struct ValidatorContractTests {
  /// What an application brings: two requests that break its rule, two that do not.
  private static func subject(_ validator: any RequestValidator) -> ValidatorSubject {
    let stamp = RequestStamp(unchecked: String(repeating: "a", count: 32))
    func visit(_ counter: Int64, _ note: Value) -> UploadedRequest {
      UploadedRequest(
        stamp: stamp, tag: nil,
        changes: [
          UploadedChange(
            counter: counter, made: 0, table: "visit", key: [.integer(counter)], operation: .insert,
            columns: [UploadedColumn("note", new: note)])
        ])
    }
    return ValidatorSubject(
      validator, refused: [visit(1, "bad"), visit(3, "bad")], accepted: [visit(2, "good"), visit(4, .null)])
  }

  @Test("an application's own validator keeps it", arguments: ValidatorContract.cases)
  func keepsTheContract(_ rule: ValidatorContract.Case) async throws {
    try await rule.run(Self.subject(NoteRules()))
  }

  @Test("the suite catches every broken validator", arguments: BrokenValidator.Fault.allCases)
  func catches(_ fault: BrokenValidator.Fault) async {
    let broken = await ContractPatience.$duration.withValue(.seconds(1)) {
      await brokenRules(ValidatorContract.cases) { Self.subject(BrokenValidator(NoteRules(), fault)) }
    }
    #expect(!broken.isEmpty)
  }
}
