import SalvorModel
import SalvorStorage
import SalvorWire

/// One open server store with a schema, and devices that speak to it as a client's store would, byte for byte.
struct ServerBench: Sendable {
  let database: StoreSubject<any ServerStore>.Database
  private let restorable: RestorableDatabase<any ServerStore>?
  private(set) var store: any ServerStore
  private(set) var schema: Schema
  private(set) var opening: ServerOpening
  private let holdsAnyText: Bool
  /// Values that a careless store bends, as far as this one says that it can hold them.
  var hardRows: [Row] {
    holdsAnyText ? ContractSchemas.hardRows : ContractSchemas.hardRows.map { $0.map(\.asPlainText) }
  }
  /// Whether a text of these bytes is to be accepted.
  func holds(_ row: Row) -> Bool { holdsAnyText || row.allSatisfy { $0 == $0.asPlainText } }

  init(_ subject: StoreSubject<any ServerStore>, _ schema: Schema) async throws {
    restorable = try await subject.makeRestorable?()
    if let restorable { database = restorable.open } else { database = try await subject.makeDatabase() }
    holdsAnyText = subject.holdsAnyText
    store = try await database()
    self.schema = schema
    opening = try await store.open(ContractPolicies.setup(schema))
  }

  /// Ends the store and starts another on the same database.
  mutating func restart(_ schema: Schema? = nil) async throws {
    await store.close()
    store = try await database()
    opening = try await store.open(ContractPolicies.setup(schema ?? self.schema))
  }

  /// The server starts with another version of its schema, which holds from here on.
  mutating func evolve(to schema: Schema) async throws {
    self.schema = schema
    try await restart()
  }

  /// The device with the tables of now: what it knew of its history stays, its replica begins empty.
  func following(_ device: Device) -> Device {
    var later = Device(self, principal: device.principal)
    later.remote = device.remote
    later.groups = device.groups
    later.sequence = device.sequence
    later.counter = device.counter
    return later
  }

  /// Copies the database to a slot.
  mutating func copy(to slot: Int) async throws {
    try await restarting { try await $0.copy(slot) }
  }

  /// The database goes back to the copy of a slot.
  mutating func putBack(from slot: Int) async throws {
    try await restarting { try await $0.putBack(slot) }
  }

  private mutating func restarting(_ body: (RestorableDatabase<any ServerStore>) async throws -> Void) async throws {
    let restorable = try expectSome(restorable, "a database that can be put back (StoreSubject.makeRestorable)")
    await store.close()
    try await body(restorable)
    store = try await database()
    opening = try await store.open(ContractPolicies.setup(schema))
  }

  func close() async { await store.close() }

  func write(_ writes: ApplicationWrite...) async throws { try await store.write(writes) }

  /// The server's rows, in key order, must be these.
  func expectRows(_ table: String, _ rows: [Row], file: String = #fileID, line: Int = #line) async throws {
    try expectEqual(try await store.rows(of: table), rows, "the server's rows of \(table)", file: file, line: line)
  }

  /// A registered device that has downloaded everything.
  func device(_ name: String = "anna", parameters: [String: [Value]] = [:], download: Bool = true) async throws
    -> Device
  {
    var device = Device(self, principal: Principal(name: name, parameters: parameters))
    try await store.register(device.remote, principal: name)
    if download { try await device.download() }
    return device
  }
}

/// What a device sends: one request each, or a group.
enum Sent: Sendable {
  case insert(String, KeyValuePairs<String, Value>)
  /// Column, old value, new value.
  case update(String, Key, [(String, Value, Value)])
  case delete(String, Key)
  indirect case group([Sent])
  /// Brings back what the server has lost.
  indirect case offer(LostVersion, Sent, written: [String] = [])
  indirect case offered(Offer, Sent)
  /// What it was before its device dropped a column.
  indirect case former(FormerContent, Sent)
}

/// A device without a database: it knows what it downloaded, and makes uploads by hand.
struct Device: Sendable {
  let store: any ServerStore
  let schema: Schema
  var remote = RemoteID(from: SystemRandom())
  var principal: Principal
  var stamp = RequestStamp(from: SystemRandom())
  var sequence: SequenceID?
  var counter: Int64 = 0
  /// The incarnations that its offers are of, in the order in which they lived.
  var lost: [IncarnationID] = []
  /// From this number on the commits of each are of another history than those of the next.
  var apartFrom: Int64?
  /// What it subscribes to; nil: to nothing, and it never did.
  var subscriptions: ResolvedSubscriptions?
  var groups: [GroupState]
  var replica: Replica
  /// Of rows that it has it takes the changed columns alone.
  var takesParts = false
  /// The pages of the last download.
  var pages: [DownloadedPage] = []

  init(_ bench: ServerBench, principal: Principal) {
    store = bench.store
    schema = bench.schema
    self.principal = principal
    groups = bench.schema.groups.map { GroupState(name: $0.name) }
    replica = Replica(bench.schema)
  }

  var items: [DownloadedPage.Item] { pages.flatMap(\.items) }

  /// Downloads everything that waits.
  mutating func download(
    bytesTarget: Int = 1 << 20, compared: ComparedTables? = nil, between: () async throws -> Void = {}
  ) async throws {
    pages = []
    var position: String?
    while true {
      let page = try await store.page(
        PageRequest(
          remote: remote, principal: principal, subscriptions: subscriptions, groups: groups, position: position,
          bytesTarget: bytesTarget, compared: compared, takesParts: takesParts))
      pages.append(try DownloadedPage(page.bytes, schema: schema))
      position = page.position
      try expect((page.groups == nil) == (position != nil), "the last page, and no other, must carry the groups")
      if let groups = page.groups {
        for state in groups {
          try expect(state.cursor != nil && state.scopeDigest != nil, "the last page must give cursor and scope")
        }
        self.groups = self.groups.map { known in groups.first { $0.name == known.name } ?? known }
        break
      }
      try expect(pages.count < 10_000, "a download must end")
      try await between()
    }
    try replica.apply(pages)
  }

  /// The chunk of an upload, its counters drawn.
  mutating func chunk(_ sent: [Sent], made: Int64? = nil, isLast: Bool = true) -> UploadChunk {
    var writer = UploadChunkWriter(blobs: ContractBlobs.sink)
    if !lost.isEmpty {
      writer.lost(
        lost,
        order: apartFrom.map { number in
          zip(lost, lost.dropFirst()).map { LostNeighbours($0, before: $1, apartFrom: number) }
        })
    }
    for item in sent {
      if case .group(let members) = item {
        writer.request(first: counter + 1, last: counter + Int64(members.count), tag: "group")
        for member in members { write(member, made, &writer) }
      } else {
        write(item, made, &writer)
      }
    }
    let bytes = writer.finish()
    return UploadChunk(
      bytes: bytes, firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
      changeCount: writer.changeCount, isLast: isLast)
  }

  private mutating func write(_ sent: Sent, _ made: Int64?, _ writer: inout UploadChunkWriter) {
    if case .offer(let version, let sent, let written) = sent {
      return write(.offered(Offer(version, written: written), sent), made, &writer)
    }
    if case .former(let former, let sent) = sent {
      writer.former(first: counter + 1, [former])
      return write(sent, made, &writer)
    }
    if case .offered(let offer, let sent) = sent {
      writer.offer(first: counter + 1, last: counter + 1, offer)
      return write(sent, made, &writer)
    }
    counter += 1
    func begin(_ table: String, _ operation: SalvorModel.Operation, _ columns: [String]) {
      let group = schema.table(table)?.group
      let cursor = groups.first { $0.name == group }?.cursor?.number
      let place = writer.place(of: UploadShape(table: table, operation: operation, columns: columns))
      writer.beginChange(shape: place, stamp: stamp, counter: counter, made: made ?? cursor ?? 0)
    }
    switch sent {
    case .insert(let table, let values):
      begin(table, .insert, values.map(\.key))
      for (_, value) in values { writer.value(value) }
    case .update(let table, let key, let columns):
      begin(table, .update, columns.map(\.0))
      for value in key { writer.value(value) }
      for (_, old, new) in columns {
        writer.value(old)
        writer.value(new)
      }
    case .delete(let table, let key):
      begin(table, .delete, [])
      for value in key { writer.value(value) }
    case .group, .offer, .offered, .former: return
    }
    writer.endChange()
  }

  /// Uploads in one chunk and settles: a new sequence ID, and afterwards a new stamp.
  @discardableResult
  mutating func upload(_ sent: Sent..., made: Int64? = nil) async throws -> UploadResults {
    let chunk = chunk(sent, made: made)
    return try await process([chunk], as: SequenceID(from: SystemRandom()))
  }

  mutating func process(_ chunks: [UploadChunk]?, as sequence: SequenceID) async throws -> UploadResults {
    let results = try await store.process(
      ProcessRequest(
        remote: remote, sequence: sequence, previous: self.sequence, principal: principal, chunks: chunks,
        isNarrowed: subscriptions?.isEmpty == false))
    self.sequence = sequence
    stamp = RequestStamp(from: SystemRandom())
    return results
  }

  /// What the device has of a table after its downloads must be these rows.
  func expectReplica(_ table: String, _ rows: [Row], file: String = #fileID, line: Int = #line) throws {
    try expectEqual(replica.rows(of: table), Set(rows), "the downloaded rows of \(table)", file: file, line: line)
  }

  /// Nothing was downloaded last.
  func expectNothingFed(file: String = #fileID, line: Int = #line) throws {
    try expectEqual(items, [], "the last download", file: file, line: line)
    try expectEqual(pages.flatMap(\.full), [], "the tables downloaded whole", file: file, line: line)
  }
}

/// All `accepted`, none refused.
func expectAccepted(
  _ results: UploadResults, _ accepted: Int64, conflicts: Int64 = 0, file: String = #fileID, line: Int = #line
) throws {
  try expectEqual(results.refused.map(\.reason), [], "the refusals", file: file, line: line)
  try expectEqual(results.acceptedRequests, accepted, "the accepted requests", file: file, line: line)
  try expectEqual(results.conflicts, conflicts, "the conflicts", file: file, line: line)
}

/// Exactly these requests were refused, by place in the upload's counters.
func expectRefused(
  _ results: UploadResults, _ refused: [Int64: RefusalReason], accepted: Int64, file: String = #fileID,
  line: Int = #line
) throws {
  let found = Dictionary(results.refused.map { ($0.counter, $0.reason) }) { first, _ in first }
  try expectEqual(found, refused, "the refusals", file: file, line: line)
  try expectEqual(results.refused.count, refused.count, "the number of refusals", file: file, line: line)
  try expectEqual(results.acceptedRequests, accepted, "the accepted requests", file: file, line: line)
  for refusal in results.refused {
    try expect(!refusal.message.isEmpty, "a refusal must say what to do", file: file, line: line)
    try expectEqual(
      refusal.blockedBy != nil, refusal.reason == .blocked,
      "a refusal names the request it is blocked by exactly where it is blocked", file: file, line: line)
  }
}

extension Value {
  /// Without what is no UTF-8, and without U+0000.
  fileprivate var asPlainText: Value {
    guard case .text(let bytes) = self, bytes.contains(0) || String(validating: bytes, as: UTF8.self) == nil else {
      return self
    }
    return .text(Array(String(decoding: bytes, as: UTF8.self).utf8).filter { $0 != 0 })
  }
}
