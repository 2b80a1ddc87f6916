import Foundation
import MemoryStore
import NoAuthentication
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

private let schema = Schema(tables: [
  Table(
    "site", primaryKey: ["id"],
    columns: [Column("id", .text), Column("owner", .text), Column("name", .text, nullable: true)],
    scope: [ScopeColumn(column: "owner", source: .principal)])
])

/// A server on a file, spoken to by raw requests.
private final class Counter {
  let path: String
  private(set) var engine: ServerEngine
  private(set) var opening: ServerOpening
  var remote = RemoteID(from: SystemRandom())
  let log = LogLines()
  private let configure: (inout ServerConfiguration) -> Void

  final class LogLines: @unchecked Sendable {
    private let lock = NSLock()
    private var lines: [String] = []
    func add(_ line: String) { lock.withLock { lines.append(line) } }
    var all: [String] { lock.withLock { lines } }
  }

  init(_ configure: @escaping (inout ServerConfiguration) -> Void = { _ in }) async throws {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-recovery-\(UUID())")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    path = directory.appendingPathComponent("consolidated.db").path
    self.configure = configure
    (engine, opening) = try await Self.start(path, log, configure)
  }

  deinit { try? FileManager.default.removeItem(atPath: URL(fileURLWithPath: path).deletingLastPathComponent().path) }

  private static func start(
    _ path: String, _ log: LogLines, _ configure: (inout ServerConfiguration) -> Void
  ) async throws -> (ServerEngine, ServerOpening) {
    var configuration = ServerConfiguration(
      schema: schema, store: SQLiteServerStore(SQLiteServerStore.Options(path: path, durability: .normal)),
      authentication: NoAuthentication(), compressions: [], log: Log.lines { log.add($0) })
    configure(&configuration)
    return try await ServerEngine.start(configuration)
  }

  func execute(_ sql: String) throws { try SQLiteConnection(path).execute(sql) }

  /// What happens while `change` runs is lost.
  func restored(_ change: () async throws -> Void) async throws {
    let copy = path + ".copy-\(UUID())"
    try await SQLiteServerStore(path: path).backup(to: copy)
    try await change()
    await engine.stop()
    for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: path + suffix) }
    try FileManager.default.moveItem(atPath: copy, toPath: path)
    (engine, opening) = try await Self.start(path, log, configure)
  }

  func send(_ method: String, _ path: String, _ body: String = "", as principal: String = "anna") async throws -> (
    status: Int, lines: [JSONValue], response: TransportResponse
  ) {
    let response = await engine.handle(
      TransportRequest(
        method: method, path: path, headers: ["salvor-principal": principal], body: .bytes(Array(body.utf8))))
    let bytes = try await response.body.collect(upTo: 16 << 20)
    return (response.status, try bytes.split(separator: 0x0A).map { try JSONValue(parsing: Array($0)) }, response)
  }

  /// A begin in the state that `cursor`, `previous` and `commits` say.
  func begin(
    cursor: Commit?, previous: SequenceID? = nil, current: SequenceID? = nil, commits: [Commit] = [],
    sequences: [SequenceID] = [], server: ServerID? = nil, digest: String? = nil, tables: JSONValue = [],
    upload: BeginMessage.Upload = .none
  ) -> String {
    BeginMessage(
      remote: remote, server: server ?? opening.serverID, previous: previous, current: current, schemaVersion: 1,
      schemaDigest: digest ?? SyncConfig(schema).digest,
      groups: [BeginMessage.Group(name: "default", cursor: cursor, scope: nil)], upload: upload, position: nil,
      history: BeginMessage.History(sequences: sequences, incarnations: [], commits: commits, tables: tables)
    ).json.text + "\n"
  }

  /// The cursor that a download ends with.
  func cursor() async throws -> Commit {
    let answer = try await send("POST", "/v1/sync", begin(cursor: nil))
    let group = try #require(answer.lines.last?["end"]?["groups"]?.array?.first)
    return try Commit(try #require(group["cursor"]))
  }

  func facts(_ begin: String, as principal: String = "anna") async throws -> RecoveryFacts {
    let answer = try await send("POST", "/v1/recovery", begin, as: principal)
    return try RecoveryFacts(try #require(answer.lines.first, "\(answer.status)"))
  }
}

@Suite("Recovery over the wire (semantics 5, 6, 9)")
struct RecoveryRouteTests {
  @Test("in step: the facts name no reason, the head, the scopes and the rows that the principal sees")
  func inStep() async throws {
    let desk = try await Counter()
    try desk.execute("INSERT INTO site VALUES ('s1', 'anna', 'one'), ('s2', 'berta', 'hers')")
    let cursor = try await desk.cursor()
    let answer = try await desk.send("POST", "/v1/recovery", desk.begin(cursor: cursor))
    #expect(answer.status == 200)
    #expect(answer.lines.count == 1)
    let facts = try RecoveryFacts(answer.lines[0])
    #expect(facts.server == desk.opening.serverID)
    #expect(facts.principal == "anna")
    #expect(facts.reason == nil)
    #expect(facts.shared == cursor)
    #expect(facts.head == cursor)
    #expect(facts.rows == 1)
    #expect(Array(facts.scopes.keys) == ["default"])
    #expect(facts.clientRecoveryEnabled && !facts.selfServiceRemoteDeletion)
    let metrics = try await desk.engine.handle(TransportRequest(method: "GET", path: "/metrics")).body
      .collect(upTo: 1 << 20)
    let text = String(decoding: metrics, as: UTF8.self)
    #expect(text.contains("salvor_recoveries_total{reason=\"none\"} 1\n"))
    #expect(text.contains("salvor_recoveries 1\n"))
  }

  @Test("a restored server: with a shared commit a begin is told that the histories parted, and rows can be asked for")
  func parted() async throws {
    let desk = try await Counter()
    try desk.execute("INSERT INTO site VALUES ('s1', 'anna', 'one'), ('s3', 'berta', 'hers')")
    let shared = try await desk.cursor()
    var lost = shared
    try await desk.restored {
      try desk.execute("INSERT INTO site VALUES ('s2', 'anna', 'lost'); UPDATE site SET name = 'new' WHERE id = 's1'")
      lost = try await desk.cursor()
    }
    let begin = desk.begin(cursor: lost, commits: [shared, lost])
    let refused = try await desk.send("POST", "/v1/sync", begin)
    #expect(refused.status == 409)
    #expect(refused.lines[0]["code"]?.string == "history-parted")
    #expect(refused.lines[0]["shared"]?.string == "\(shared.number)")
    let alone = try await desk.send("POST", "/v1/sync", desk.begin(cursor: lost))
    #expect(alone.lines[0]["reason"]?.string == "server-restored")
    #expect(alone.lines[0]["number"]?.integer == -10400)

    let facts = try await desk.facts(begin)
    #expect(facts.reason == .serverRestored)
    #expect(facts.shared == shared)
    let rows = try await desk.send(
      "POST", "/v1/recovery/\(facts.token)/rows",
      RowQuery(table: "site", keys: [["s1"], ["s2"], ["s3"]]).json.text + "\n")
    #expect(
      rows.lines.dropFirst().map(\.text) == [
        #"{"rows":[["s1","anna","one"]]}"#, #"{"lost":[["s2"]]}"#, #"{"left":[["s3"]]}"#,
      ])
    let ranges = try await desk.send("POST", "/v1/recovery/\(facts.token)/ranges", #"{"table":"site","after":null}"#)
    let page = try RangePage(ranges.lines[0])
    #expect(page.columns == ["id", "owner", "name"])
    #expect(
      page.ranges == [RangeDigest(last: nil, count: 1, digest: RowDigest(["s1", "anna", "one"] as [Value]).text)])
    let none = try await desk.send("POST", "/v1/recovery/\(facts.token)/ranges", #"{"table":"site","after":["s1"]}"#)
    #expect(try RangePage(none.lines[0]).ranges.map(\.count) == [0])
    #expect(desk.log.all.contains { $0.contains("rewinds") && $0.contains(desk.remote.text) })
    #expect(!desk.log.all.contains { $0.contains("one") && $0.contains("s1") })
  }

  @Test("the download goes on from any commit, leaves nothing of this device's own out, and goes on where it was cut")
  func download() async throws {
    let desk = try await Counter { $0.limits.chunkBytesTarget = 1 << 10 }
    let cursor = try await desk.cursor()
    let rows = (0..<200).map { "('s\($0)', 'anna', '\(String(repeating: "x", count: 20))')" }
    try desk.execute("INSERT INTO site VALUES " + rows.joined(separator: ", "))
    let facts = try await desk.facts(desk.begin(cursor: cursor))
    let group = BeginMessage.Group(name: "default", cursor: cursor, scope: facts.scopes["default"])
    func ask(_ position: String?) -> String {
      (["groups": [group.json], "position": position.map(JSONValue.string) ?? .null] as JSONValue).text + "\n"
    }
    let answer = try await desk.send("POST", "/v1/recovery/\(facts.token)/download", ask(nil))
    func keys(_ lines: some Sequence<JSONValue>) -> Set<String> {
      Set(lines.flatMap { $0["rows"]?.array ?? [] }.compactMap { $0.array?.first?.string })
    }
    #expect(answer.lines.first?["session"]?["server"]?.string == desk.opening.serverID.text)
    #expect(keys(answer.lines).count == 200)
    #expect(answer.lines.last?["end"]?["groups"]?.array?.count == 1)
    let cut = try #require(answer.lines.firstIndex { $0["position"] != nil })
    let position = try #require(answer.lines[cut]["position"]?.string)
    let rest = try await desk.send("POST", "/v1/recovery/\(facts.token)/download", ask(position))
    #expect(keys(answer.lines[..<cut]).union(keys(rest.lines)).count == 200)
    #expect(keys(rest.lines).count < 200)
    let again = try await desk.send("POST", "/v1/recovery/\(facts.token)/download", ask(nil))
    #expect(keys(again.lines).count == 200)
  }

  @Test("an operator's demand is told before everything else, and ends with the recovery")
  func operatorRequested() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    let unknown = try await desk.send("POST", "/admin/v1/remotes/\(RemoteID(from: SystemRandom()))/reset", as: "admin")
    #expect(unknown.status == 404)
    #expect(try await desk.send("POST", "/admin/v1/remotes/\(desk.remote)/reset").status == 403)
    #expect(try await desk.send("POST", "/admin/v1/remotes/\(desk.remote)/reset", as: "admin").status == 204)
    let shown = try await desk.send("GET", "/admin/v1/remotes/\(desk.remote)", as: "admin")
    #expect(shown.lines[0]["resetDemanded"]?.bool == true)
    let refused = try await desk.send("POST", "/v1/sync", desk.begin(cursor: cursor))
    #expect(refused.status == 409)
    #expect(refused.lines[0]["code"]?.string == "UPLOAD_FAILED_AT_SERVER")
    #expect(refused.lines[0]["reason"]?.string == "operator-requested")
    let facts = try await desk.facts(desk.begin(cursor: cursor))
    #expect(facts.reason == .operatorRequested)
    let left = try await desk.facts(desk.begin(cursor: cursor))
    #expect(try await desk.send("DELETE", "/v1/recovery/\(left.token)").status == 204)
    #expect(try await desk.send("POST", "/v1/recovery/\(left.token)/end").status == 404)
    #expect(try await desk.send("POST", "/v1/sync", desk.begin(cursor: cursor)).status == 409)
    // One that is made while the device recovers is another demand.
    #expect(try await desk.send("POST", "/admin/v1/remotes/\(desk.remote)/reset", as: "admin").status == 204)
    func end(_ facts: RecoveryFacts) async throws -> Int {
      let demand = facts.demand.map { "\($0)" } ?? "null"
      return try await desk.send("POST", "/v1/recovery/\(facts.token)/end", "{\"demand\":\(demand)}").status
    }
    #expect(try await end(facts) == 204)
    #expect(try await end(facts) == 404)
    #expect(try await desk.send("POST", "/v1/sync", desk.begin(cursor: cursor)).status == 409)
    #expect(try await end(desk.facts(desk.begin(cursor: cursor))) == 204)
    #expect(try await desk.send("POST", "/v1/sync", desk.begin(cursor: cursor)).status == 200)
  }

  @Test("recoveries are counted by reason where they begin, and by reason and strategy where they end")
  func counted() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    func recover(_ said: String, server: ServerID? = nil) async throws {
      let facts = try await desk.facts(desk.begin(cursor: cursor, server: server))
      #expect(try await desk.send("POST", "/v1/recovery/\(facts.token)/end", said).status == 204)
    }
    try await recover(
      #"{"demand":null,"reason":"server-replaced","strategy":"recreate"}"#, server: ServerID(from: SystemRandom()))
    for _ in 0..<2 {
      try await recover(#"{"demand":null,"reason":"server-restored","strategy":"recover-unsynced-changes"}"#)
    }
    // What a device says is a name, or it is `other`; where nothing is said, only the end is counted.
    try await recover(#"{"demand":null,"reason":"a \"b\"} 1","strategy":"x\ny"}"#)
    try await recover(#"{"demand":null}"#)
    let metrics = try await desk.engine.handle(TransportRequest(method: "GET", path: "/metrics")).body
      .collect(upTo: 1 << 20)
    let lines = String(decoding: metrics, as: UTF8.self).split(separator: "\n").map(String.init)
    let ended = "salvor_recoveries_ended_by_strategy_total"
    #expect(
      lines.filter { $0.hasPrefix(ended + "{") } == [
        ended + #"{reason="other",strategy="other"} 1"#, ended + #"{reason="server-replaced",strategy="recreate"} 1"#,
        ended + #"{reason="server-restored",strategy="recover-unsynced-changes"} 2"#,
      ])
    #expect(lines.contains("salvor_recoveries_ended_total 5"))
    #expect(lines.contains(#"salvor_recoveries_total{reason="server-replaced"} 1"#))
    #expect(lines.contains(#"salvor_recoveries_total{reason="none"} 4"#))
    #expect(lines.contains("salvor_recoveries 0"))
  }

  @Test("another server: the facts are given all the same, with nothing shared")
  func replaced() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    let begin = desk.begin(cursor: cursor, commits: [cursor], server: ServerID(from: SystemRandom()))
    let facts = try await desk.facts(begin)
    #expect(facts.reason == .serverReplaced)
    #expect(facts.shared == nil)
    #expect(facts.server == desk.opening.serverID)
  }

  @Test("the device's sequence IDs: S and client-rewound")
  func rewound() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    let current = SequenceID(from: SystemRandom())
    let uploaded = try await desk.send(
      "POST", "/v1/sync", desk.begin(cursor: cursor, current: current, upload: .inline))
    #expect(uploaded.status == 200)
    let facts = try await desk.facts(desk.begin(cursor: cursor))
    #expect(facts.stored == current)
    #expect(facts.reason == .clientRewound)
  }

  @Test("schemas: a difference brings the SyncConfig, and destructive ones are named")
  func schemas() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    let additive = try await desk.send("POST", "/v1/recovery", desk.begin(cursor: cursor, digest: "none"))
    #expect(additive.lines.count == 2)
    #expect(additive.lines[1]["config"] != nil)
    let dropped = Table("gone", primaryKey: ["id"], columns: [Column("id", .text)])
    let destructive = try await desk.send(
      "POST", "/v1/recovery",
      desk.begin(cursor: cursor, digest: "other", tables: .array([TableDefinition.json(dropped)])))
    #expect(destructive.lines.count == 2)
    #expect(destructive.lines[1]["config"] != nil)
    let facts = try RecoveryFacts(destructive.lines[0])
    #expect(facts.reason == .schemaIncompatible)
    #expect(facts.differences == ["table gone: dropped or renamed"])
  }

  @Test("nobody uses another's recovery, and blocked and other principals' remote IDs are refused")
  func rights() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    let facts = try await desk.facts(desk.begin(cursor: cursor))
    let query = RowQuery(table: "site", keys: [["s1"]]).json.text
    let other = try await desk.send("POST", "/v1/recovery/\(facts.token)/rows", query, as: "mallory")
    #expect(other.status == 404)
    #expect(other.lines[0]["code"]?.string == "session-unknown")
    let stranger = try await desk.send("POST", "/v1/recovery", desk.begin(cursor: cursor), as: "mallory")
    #expect(stranger.lines[0]["code"]?.string == "remote-of-another-principal")
    #expect(try await desk.send("DELETE", "/v1/recovery/\(facts.token)/remote").status == 403)
    let path = "/admin/v1/remotes/\(desk.remote)"
    #expect(try await desk.send("DELETE", path + "?block=true", as: "admin").status == 204)
    let blocked = try await desk.send("POST", "/v1/recovery", desk.begin(cursor: cursor))
    #expect(blocked.lines[0]["code"]?.string == "remote-blocked")
  }

  @Test("where it may, a device deletes its own remote ID, and is then a first contact")
  func selfService() async throws {
    let desk = try await Counter { $0.selfServiceRemoteDeletion = true }
    let cursor = try await desk.cursor()
    let current = SequenceID(from: SystemRandom())
    _ = try await desk.send("POST", "/v1/sync", desk.begin(cursor: cursor, current: current, upload: .inline))
    let facts = try await desk.facts(desk.begin(cursor: cursor))
    for _ in 0..<2 {
      #expect(try await desk.send("DELETE", "/v1/recovery/\(facts.token)/remote").status == 204)
    }
    #expect(try await desk.facts(desk.begin(cursor: cursor)).stored == nil)
    #expect(try await desk.send("POST", "/v1/sync", desk.begin(cursor: cursor)).status == 200)
  }

  @Test("a thousand recoveries begun at once: those over the limit are told when to come back")
  func stampede() async throws {
    let desk = try await Counter {
      $0.limits.recoveriesMax = 8
      // However long the thousand take, none of the eight has been idle.
      $0.clock = RecoveryTableTests.TestClock()
    }
    let cursor = try await desk.cursor()
    var statuses: [Int: Int] = [:]
    var delays: Set<String> = []
    for _ in 0..<1000 {
      desk.remote = RemoteID(from: SystemRandom())
      let answer = try await desk.send("POST", "/v1/recovery", desk.begin(cursor: cursor))
      statuses[answer.status, default: 0] += 1
      guard answer.status == 503 else { continue }
      #expect(answer.lines[0]["code"]?.string == "overloaded")
      delays.insert(try #require(answer.response.headers["retry-after"]))
    }
    #expect(statuses == [200: 8, 503: 992])
    #expect(delays.count > 20)
    #expect(desk.log.all.count { $0.contains("recoveriesMax") } == 1)
  }

  @Test("what is too much or misshapen is refused before anything is done")
  func limits() async throws {
    let desk = try await Counter()
    let cursor = try await desk.cursor()
    let facts = try await desk.facts(desk.begin(cursor: cursor))
    let path = "/v1/recovery/\(facts.token)"
    let keys = [Key](repeating: ["s1"], count: RecoveryLimits.keysMax + 1)
    #expect(try await desk.send("POST", path + "/rows", RowQuery(table: "site", keys: keys).json.text).status == 413)
    let most = try await desk.send(
      "POST", path + "/rows", RowQuery(table: "site", keys: Array(keys.dropLast())).json.text)
    #expect(most.status == 200)
    #expect(most.lines.reduce(0) { $0 + ($1["lost"]?.array?.count ?? 0) } == RecoveryLimits.keysMax)
    #expect(try await desk.send("POST", path + "/rows", "{}").status == 400)
    #expect(try await desk.send("POST", path + "/rows", "").status == 200)
    #expect(try await desk.send("POST", path + "/ranges", "").status == 400)
    #expect(try await desk.send("POST", path + "/ranges", #"{"table":"nothing"}"#).status == 400)
    let questions = String(repeating: "{\"table\":\"site\"}\n", count: RecoveryLimits.rangeQuestionsMax + 1)
    #expect(try await desk.send("POST", path + "/ranges", questions).status == 413)
    for wrong in ["{\"table\":\"site\"}\n{}", "{\"table\":\"site\",\"rows\":0}", "{\"table\":\"site\",\"last\":7}"] {
      #expect(try await desk.send("POST", path + "/ranges", wrong).status == 400)
    }
    #expect(try await desk.send("POST", path + "/nothing").status == 404)
    let without = desk.begin(cursor: cursor).replacingOccurrences(of: "\"history\"", with: "\"story\"")
    #expect(try await desk.send("POST", "/v1/recovery", without).status == 400)
    let commits = [Commit](repeating: cursor, count: RecoveryLimits.historyMax + 1)
    #expect(try await desk.send("POST", "/v1/recovery", desk.begin(cursor: cursor, commits: commits)).status == 413)
  }

  @Test("a store that cannot help answers not-found, and never tells a device to rewind")
  func otherStore() async throws {
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: schema, store: PlainStore(MemoryServerStore()), authentication: NoAuthentication(), compressions: []))
    let response = await engine.handle(
      TransportRequest(method: "POST", path: "/v1/recovery", headers: ["salvor-principal": "anna"]))
    #expect(response.status == 404)
  }
}

/// Hides everything but `ServerStore`.
private struct PlainStore: ServerStore {
  let store: any ServerStore
  init(_ store: any ServerStore) { self.store = store }
  func open(_ setup: ServerSetup) async throws -> ServerOpening { try await store.open(setup) }
  func close() async { await store.close() }
  func admit(_ query: AdmissionQuery) async throws -> Admission { try await store.admit(query) }
  func register(_ remote: RemoteID, principal: String) async throws {
    try await store.register(remote, principal: principal)
  }
  func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {
    try await store.stage(chunk, index: index, remote: remote, sequence: sequence)
  }
  func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload {
    try await store.staged(remote, sequence: sequence)
  }
  func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]? {
    try await store.stagedChunk(index, remote: remote, sequence: sequence)
  }
  func unstage(_ remote: RemoteID, sequence: SequenceID) async throws {
    try await store.unstage(remote, sequence: sequence)
  }
  func process(_ upload: ProcessRequest) async throws -> UploadResults { try await store.process(upload) }
  func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults? {
    try await store.results(remote, sequence: sequence)
  }
  func page(_ request: PageRequest) async throws -> FeedPage { try await store.page(request) }
  func sweep() async throws -> Commit { try await store.sweep() }
  func changedGroups(since cursors: [Commit]) async throws -> GroupChanges {
    try await store.changedGroups(since: cursors)
  }
  func missingBlobs(of references: [BlobReference], for principal: Principal) async throws -> [BlobNeed] {
    try await store.missingBlobs(of: references, for: principal)
  }
  func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) async throws -> Int64 {
    try await store.stageBlob(part, of: reference, at: offset, for: principal)
  }
  func blobContent(
    of reference: BlobReference, at place: BlobPlace?, for principal: Principal
  ) async throws -> [UInt8]? {
    try await store.blobContent(of: reference, at: place, for: principal)
  }
  func remotes() async throws -> [RemoteRecord] { try await store.remotes() }
  func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool {
    try await store.deleteRemote(remote, block: block)
  }
  func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion] {
    try await store.conflicts(after: id, limit: limit, state: state)
  }
  func conflict(_ id: Int64) async throws -> [ConflictRow] { try await store.conflict(id) }
  func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
    try await store.resolveConflict(id, keep: keep, by: by)
  }
  func trim(before milliseconds: Int64) async throws { try await store.trim(before: milliseconds) }
  func trimSettledConflicts(before milliseconds: Int64) async throws {
    try await store.trimSettledConflicts(before: milliseconds)
  }
  func forgetStaged(before milliseconds: Int64) async throws { try await store.forgetStaged(before: milliseconds) }
  func stats() async throws -> ServerStats { try await store.stats() }
  func rows(of table: String) async throws -> [Row] { try await store.rows(of: table) }
  func write(_ writes: [ApplicationWrite]) async throws { try await store.write(writes) }
}
