import GzipCompression
import HTTPClientTransport
import HTTPServerTransport
import SQLiteSupport
import SalvorClient
import SalvorModel
import SalvorServer
import SalvorStorage
import SalvorTransport
import SalvorWire
import CSQLite
#if canImport(Glibc)
import Glibc
#endif

let sid = ServerID(unchecked: "00000000000000000000000000000001")
let com = Commit(number: 0, id: CommitID(unchecked: "00000000000000000000000000000001"))
struct Auth: Authentication {
  func authenticate(_ request: TransportRequest) async throws -> Principal { Principal(name: "a") }
  func headers(credentials: [String: String]) throws -> [String: String] { [:] }
}
actor FakeServer: ServerStore {
  nonisolated let queue = SQLiteQueue("fs")
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
  let path: String
  var db: SQLiteConnection?
  init(_ p: String) { path = p }
  func open(_ setup: ServerSetup) async throws -> ServerOpening {
    db = try PlainDatabase.open(path)
    try db!.execute(TableDDL(softForeignKeys: true).createTable(RecordData.table, in: RecordData.schema).replacing("CREATE TABLE", with: "CREATE TABLE IF NOT EXISTS"))
    return ServerOpening(serverID: sid, incarnation: IncarnationID(unchecked: "00000000000000000000000000000001"))
  }
  func close() async {}
  func admit(_ q: AdmissionQuery) async throws -> Admission { Admission(remote: nil, previousIsOlder: false, cursors: q.cursors.map { _ in .known }, lastShared: nil, head: com) }
  func register(_ remote: RemoteID, principal: String) async throws {}
  func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {}
  func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload { StagedUpload() }
  func process(_ u: ProcessRequest) async throws -> UploadResults { throw SalvorError(.failed, "") }
  func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults? { nil }
  func page(_ r: PageRequest) async throws -> FeedPage {
    guard let db else { throw SalvorError(.failed, "") }
    var w = DownloadChunkWriter(capacity: r.bytesTarget + 4096)
    if r.groups.allSatisfy({ $0.cursor != nil }) { return FeedPage(bytes: [], position: nil, groups: r.groups) }
    let t = RecordData.table
    w.table(t.name, columns: t.columns.map(\.name))
    let s = try db.cached("SELECT id,name,address,city,note,token,created,quantity,price,status FROM record WHERE id > ?1 ORDER BY id")
    try s.bind(1, r.position ?? "")
    defer { s.reset() }
    var last = ""
    while try s.step() {
      w.beginRow(version: nil)
      for c in 0..<10 {
        switch s.type(c) {
        case SQLITE_INTEGER: w.value { $0.integer(s.int64(c)) }
        case SQLITE_FLOAT: w.value { $0.real(s.double(c)) }
        default: s.withText(c) { b in w.value { $0.text(b.assumingMemoryBound(to: UInt8.self)) } }
        }
      }
      w.endRow()
      if w.byteCount >= r.bytesTarget { last = s.string(0); break }
    }
    if last.isEmpty { return FeedPage(bytes: w.finish(), position: nil, groups: [GroupState(name: "default", cursor: com)]) }
    return FeedPage(bytes: w.finish(), position: last, groups: nil)
  }
  func sweep() async throws -> Commit { com }
  func remotes() async throws -> [RemoteRecord] { [] }
  func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool { false }
  func trim(before milliseconds: Int64) async throws {}
  func stats() async throws -> ServerStats { ServerStats(serverID: sid, head: com, remotes: 0, logEntries: 0, stagedBytes: 0) }
  func rows(of table: String) async throws -> [Row] { [] }
  func write(_ writes: [ApplicationWrite]) async throws {}
}
actor FakeClient: ClientStore {
  nonisolated let queue = SQLiteQueue("fc")
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
  let path: String
  var db: SQLiteConnection?
  var n: Int64 = 0
  var groups = [GroupState(name: "default")]
  init(_ p: String) { path = p }
  func open(_ setup: ClientSetup) async throws -> ClientOpening {
    db = try PlainDatabase.open(path)
    for t in setup.schema.tables { try db!.execute(TableDDL(softForeignKeys: false).createTable(t, in: setup.schema)) }
    return ClientOpening()
  }
  func close() async {}
  func beginSession(groups g: Set<String>?) async throws -> ClientSession {
    ClientSession(state: ClientState(remoteID: RemoteID(unchecked: "00000000000000000000000000000001"), principal: "a", groups: groups, configDigest: SyncConfig(RecordData.schema).digest))
  }
  func endSession() async {}
  func uploadChunk(after counter: Int64, bytesTarget: Int) async throws -> UploadChunk? { nil }
  func settle(sequence: SequenceID, results: UploadResults) async throws -> SettleReport { SettleReport() }
  func stage(_ chunk: StagedChunk) async throws {
    guard let db else { return }
    if n == 0 { try db.execute("BEGIN IMMEDIATE") }
    if getenv("NOINSERT") != nil { n = 1; return }
    let s = try db.cached(PlainDatabase.insertStatement(RecordData.table))
    try chunk.bytes.withUnsafeBufferPointer { b in
      var r = DownloadChunkReader(b)
      while let e = try r.next() {
        guard case .row = e else { continue }
        var c = 1
        while let i = try r.item() {
          switch i {
          case .null: try s.bindNull(c)
          case .integer(let x): try s.bind(c, x)
          case .real(let x): try s.bind(c, x)
          case .text(let x): try s.bindText(c, UnsafeRawBufferPointer(x), copying: true)
          case .blob(let x): try s.bindBlob(c, UnsafeRawBufferPointer(x), copying: true)
          }
          c += 1
        }
        try s.run()
        n += 1
      }
    }
  }
  func discardStaged() async throws {}
  func apply(_ end: DownloadEnd) async throws -> ApplyReport {
    if n > 0 { try db!.execute("COMMIT") }
    groups = end.groups
    var r = ApplyReport(); r.upserts = n; n = 0
    return r
  }
  func adopt(_ config: SyncConfig) async throws {}
  func remember(server: ServerID, incarnations: [Incarnation], principal: String) async throws {}
  func history() async throws -> ClientHistory { ClientHistory(olderSequences: [], incarnations: [], commits: [], tables: RecordData.schema.tables) }
  func setRecoveryRequired(_ reason: RecoveryReason?, message: String) async throws {}
  func status() async throws -> ClientStatus { throw SalvorError(.failed, "") }
  func requests(in states: Set<RequestState>, after: RequestID?, limit: Int) async throws -> [QueuedRequest] { [] }
  func rows(of table: String) async throws -> [Row] { [] }
  func write(_ writes: [ApplicationWrite]) async throws {}
}
func gz() -> GzipCompression { GzipCompression(level: Int(getenv("GZL").map { String(cString: $0) } ?? "6") ?? 6) }
struct RunningServer {
  let url: String
  let t: HTTPServerTransport
  static func start(database: String, schema: Schema) async throws -> RunningServer {
    let (e, _) = try await ServerEngine.start(ServerConfiguration(schema: schema, store: FakeServer(database), authentication: Auth(), compressions: [gz()]))
    var o = HTTPServerOptions(); o.port = 0
    let t = HTTPServerTransport(o)
    let url = try await t.start { await e.handle($0) }
    return RunningServer(url: url, t: t)
  }
  func stop() async { await t.stop(graceMilliseconds: 1000) }
}
struct RunningClient {
  let client: SalvorClient
  let transport: any ClientTransport
  let credentials: [String: String]
  static func make(database: String, schema: Schema, url: String) throws -> RunningClient {
    var l = Limits(); l.bodyBytesMax = 1 << 30
    let t = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)), limits: l)
    let c = SalvorClient.Configuration(schema: schema, principal: "a", store: FakeClient(database), transport: t, compressions: [gz()], uploadCompression: gz(), limits: l)
    return RunningClient(client: SalvorClient(c), transport: t, credentials: [:])
  }
}
func makeDeviceDatabase(_ path: String, schema: Schema) async throws { throw SalvorError(.failed, "x") }
extension String { func replacing(_ a: String, with b: String) -> String { hasPrefix(a) ? b + dropFirst(a.count) : self } }
