import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

@testable import SQLiteClientStore

/// A store on a file of its own, with a second connection as the application has one.
struct StoreBench {
  let path = Scratch.path()
  let store: SQLiteClientStore
  let schema: Schema
  private var commit: Int64 = 0

  init(_ schema: Schema, sql: String = "", clock: any SalvorModel.Clock = SystemClock()) async throws {
    self.schema = schema
    if !sql.isEmpty { try SQLiteConnection(path).execute(sql) }
    store = SQLiteClientStore(path: path, clock: clock)
    _ = try await store.open(ClientSetup(schema: schema, principal: "anna"))
  }

  /// Runs `sql` as an application would, with foreign keys on.
  func write(_ sql: String) throws {
    // On a busy machine whoever has the lock may be long in giving it back.
    let connection = try SQLiteConnection(path, busyTimeoutMilliseconds: 120_000)
    try connection.execute("PRAGMA foreign_keys = ON; BEGIN; \(sql); COMMIT")
  }

  func read(_ sql: String) throws -> [[Value]] { try SQLiteConnection(path).rows(sql) }

  /// Downloads rows and keys as one commit.
  mutating func download(
    full: [String] = [], _ rows: [(String, Row)] = [], deleted: [(String, Key)] = [], versioned: Bool = true,
    parts: [(table: String, values: [(String, Value)])] = []
  ) async throws -> ApplyReport {
    commit += 1
    var writer = DownloadChunkWriter()
    if !full.isEmpty { writer.full(full) }
    for (name, row) in rows {
      writer.table(name, columns: schema.table(name)?.travelling.map(\.name) ?? [])
      writer.beginRow(version: versioned ? commit : nil)
      for value in row { writer.value(value) }
      writer.endRow()
    }
    for (name, values) in parts {
      writer.table(name, columns: values.map(\.0))
      writer.beginPart(version: commit)
      for (_, value) in values { writer.value(value) }
      writer.endRow()
    }
    for (name, key) in deleted {
      writer.table(name, columns: schema.table(name)?.travelling.map(\.name) ?? [])
      writer.beginKey(.deleted, version: commit)
      for value in key { writer.value(value) }
      writer.endRow()
    }
    try await store.stage(StagedChunk(download: "d\(commit)", bytes: writer.finish(), position: "p"))
    let id = CommitID(unchecked: String(repeating: "a", count: 32))
    return try await store.apply(
      DownloadEnd(groups: schema.groups.map { GroupState(name: $0.name, cursor: Commit(number: commit, id: id)) }))
  }

  /// The whole upload as text.
  func uploadText(bytesTarget: Int = 1 << 20) async throws -> (text: String, session: ClientSession) {
    let session = try await store.beginSession(groups: nil)
    var text = ""
    var counter: Int64 = 0
    while session.upload != nil, let chunk = try await store.uploadChunk(after: counter, bytesTarget: bytesTarget) {
      text += String(decoding: chunk.bytes, as: UTF8.self)
      counter = chunk.lastCounter
      if chunk.isLast { break }
    }
    return (text, session)
  }

  func accept(_ session: ClientSession, refusing: [Refusal] = []) async throws {
    guard let upload = session.upload else { return }
    let commit = Commit(number: 100, id: CommitID(unchecked: String(repeating: "b", count: 32)))
    _ = try await store.settle(
      sequence: upload.sequence, results: UploadResults(commit: commit, acceptedRequests: 0, refused: refusing))
    await store.endSession()
  }

  func isWhole() throws -> Bool {
    try read("PRAGMA foreign_key_check").isEmpty && read("PRAGMA integrity_check") == [["ok"]]
  }
}
