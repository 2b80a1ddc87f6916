import SalvorModel
import SalvorStorage
import SalvorWire

/// Columns of a row that the device has, its key among them.
struct Part: Sendable {
  let table: String
  let values: [(String, Value)]
  init(_ table: String, _ values: (String, Value)...) {
    self.table = table
    self.values = values
  }
}

/// One open client store with a schema, and a server that answers by hand.
struct ClientBench: Sendable {
  let subject: StoreSubject<any ClientStore>
  let database: StoreSubject<any ClientStore>.Database
  private(set) var store: any ClientStore
  private(set) var schema: Schema
  private(set) var opening: ClientOpening
  /// The server's newest commit; the number of each one it has made so far.
  private(set) var commit: Int64 = 0
  private(set) var commits: [Int64: Commit] = [:]
  private var downloads = 0

  init(_ subject: StoreSubject<any ClientStore>, _ schema: Schema) async throws {
    self.subject = subject
    database = try await subject.makeDatabase()
    store = try await database()
    self.schema = schema
    opening = try await store.open(ClientSetup(schema: schema, principal: "anna"))
  }

  /// Ends the store and starts another on the same database.
  mutating func restart(_ schema: Schema? = nil) async throws {
    await store.close()
    store = try await database()
    if let schema { self.schema = schema }
    opening = try await store.open(ClientSetup(schema: self.schema, principal: "anna"))
  }

  func close() async { await store.close() }

  /// A store on another database that nobody has used.
  func fresh() async throws -> any ClientStore { try await subject.makeDatabase()() }

  func write(_ writes: ApplicationWrite...) async throws { try await store.write(writes) }

  /// What the application reads, in key order, must be these rows.
  func expectRows(_ table: String, _ rows: [Row], file: String = #fileID, line: Int = #line) async throws {
    try expectEqual(try await store.rows(of: table), rows, "the client's rows of \(table)", file: file, line: line)
  }

  /// The queue's changes, in order, without numbers.
  func queued(_ states: Set<RequestState> = [.queued, .sent, .unknownOutcome]) async throws -> [QueuedRequest] {
    try await store.requests(in: states, after: nil, limit: 10_000)
  }

  func archived() async throws -> [QueuedRequest] {
    try await queued([.refused, .blocked, .displaced, .kept])
  }

  /// The changes that wait, as they would be sent: table, operation, columns and values. Begins a session that goes on.
  func begin(
    groups: Set<String>? = nil, room: UploadRoom = UploadRoom()
  ) async throws -> (session: ClientSession, changes: [ReadChange]) {
    await store.endSession()
    let session = try await store.beginSession(groups: groups, room: room)
    let chunks = try await ReadUpload.chunks(store)
    try expectEqual(session.upload == nil, chunks.isEmpty, "an upload has chunks")
    if let upload = session.upload {
      try expectEqual(upload.lastCounter, chunks.last?.lastCounter, "the last counter of the upload")
    }
    return (session, try ReadUpload.changes(in: chunks))
  }

  /// Settles the upload under way: all accepted but the requests that `refuse` names a reason for.
  @discardableResult
  func settle(
    _ begun: (session: ClientSession, changes: [ReadChange]), commit: Commit? = nil,
    waiting: [ClosedRange<Int64>] = [], kept: [Int64] = [], refuse: (ReadChange) -> RefusalReason? = { _ in nil }
  ) async throws -> SettleReport {
    let upload = try expectSome(begun.session.upload, "an upload")
    var refused: [Refusal] = []
    var requests: Set<Int64> = []
    for change in begun.changes {
      requests.insert(change.request)
      guard let reason = refuse(change), !refused.contains(where: { $0.counter == change.request }) else { continue }
      refused.append(
        Refusal(
          counter: change.request, stamp: change.stamp, reason: reason, message: "Refused by the case.",
          blockedBy: reason == .blocked ? refused.first?.id : nil))
    }
    let report = try await store.settle(
      sequence: upload.sequence,
      results: UploadResults(
        commit: commit, acceptedRequests: Int64(requests.count - refused.count), refused: refused, waiting: waiting,
        kept: kept))
    await store.endSession()
    return report
  }

  /// Uploads everything that waits and settles it.
  @discardableResult
  func upload(refuse: (ReadChange) -> RefusalReason? = { _ in nil }) async throws -> [ReadChange] {
    let begun = try await begin()
    if begun.session.upload != nil { try await settle(begun, refuse: refuse) }
    return begun.changes
  }

  /// Uploads everything that waits; what the server accepts is its next commit.
  @discardableResult
  mutating func commitUpload(refuse: (ReadChange) -> RefusalReason? = { _ in nil }) async throws -> [ReadChange] {
    let begun = try await begin()
    try await settle(begun, commit: nextCommit(), refuse: refuse)
    return begun.changes
  }

  /// The server makes a commit: by default the one after its newest.
  @discardableResult
  mutating func nextCommit(_ number: Int64? = nil) -> Commit {
    commit = number ?? commit + 1
    let made = Commit(number: commit, id: CommitID(from: SystemRandom()))
    commits[commit] = made
    return made
  }

  /// What the server synchronizes from here on.
  mutating func adopt(_ schema: Schema) { self.schema = schema }

  /// The server has lost this commit.
  mutating func forget(_ number: Int64) { commits[number] = nil }

  /// Stages one chunk and applies it; the cursors of all groups move to the next commit.
  @discardableResult
  mutating func download(
    full: [String] = [], rows: [(String, Row)] = [], departed: [(String, Departure, Key)] = [], parts: [Part] = []
  ) async throws -> ApplyReport {
    try await stage(full: full, rows: rows, departed: departed, parts: parts)
    return try await apply()
  }

  mutating func stage(
    full: [String] = [], rows: [(String, Row)] = [], departed: [(String, Departure, Key)] = [], parts: [Part] = [],
    download: String? = nil, counted: Int64? = nil
  ) async throws {
    downloads += 1
    let bytes = try payload(
      full: full, rows: rows, departed: departed, parts: parts, version: full.isEmpty ? commit + 1 : nil)
    try await store.stage(
      StagedChunk(
        download: download ?? "download \(downloads)", bytes: bytes, position: "p\(downloads)", rows: counted))
  }

  /// One chunk of a download. What is lost has no version.
  func payload(
    full: [String] = [], rows: [(String, Row)] = [], departed: [(String, Departure, Key)] = [], parts: [Part] = [],
    version: Int64?
  ) throws -> [UInt8] {
    var writer = DownloadChunkWriter(blobs: ContractBlobs.sink)
    if !full.isEmpty { writer.full(full) }
    for (name, row) in rows {
      let table = try expectSome(schema.table(name), "the table \(name)")
      writer.table(name, columns: table.travelling.map(\.name))
      writer.beginRow(version: version)
      for column in table.travelling { writer.value(row[try expectSome(table.columnIndex(column.name), "a column")]) }
      writer.endRow()
    }
    for part in parts {
      writer.table(part.table, columns: part.values.map(\.0))
      writer.beginPart(version: version ?? commit + 1)
      for (_, value) in part.values { writer.value(value) }
      writer.endRow()
    }
    for (name, departure, key) in departed {
      let table = try expectSome(schema.table(name), "the table \(name)")
      writer.table(name, columns: table.travelling.map(\.name))
      writer.beginKey(departure, version: departure == .lost ? nil : version)
      for value in key { writer.value(value) }
      writer.endRow()
    }
    return writer.finish()
  }

  mutating func apply() async throws -> ApplyReport {
    let cursor = nextCommit()
    return try await store.apply(
      DownloadEnd(groups: schema.groups.map { GroupState(name: $0.name, cursor: cursor, scopeDigest: "all") }))
  }
}

/// The changes must be these, in order.
func expectChanges(_ changes: [ReadChange], _ summaries: [String], file: String = #fileID, line: Int = #line) throws {
  try expectEqual(changes.map(\.summary), summaries, "the changes sent", file: file, line: line)
}
