import SalvorModel
import SalvorStorage

/// Where a sync is cut, as a lost network or a killed program would.
enum SyncCut: Sendable, Hashable {
  case none
  /// The session has begun; nothing was sent.
  case beforeUpload
  /// Some chunks are staged, the last is not.
  case duringUpload
  /// The server has processed the upload, the answer was lost.
  case acknowledgementLost
  case afterSettle
  /// So many pages are staged, or all where there are fewer; nothing is applied.
  case afterPages(Int)
  /// Everything is staged, nothing is applied.
  case beforeApply
}

/// What one sync did.
struct SyncOutcome: Sendable {
  var results: UploadResults?
  var isResend = false
  /// What was sent, without IDs.
  var sent: [String] = []
  /// The parents that went with it.
  var pages: [DownloadedPage] = []
  var applied: ApplyReport?
  var items: [DownloadedPage.Item] { pages.flatMap(\.items) }
}

/// Drives sessions between a client's store and a server's as the engines do, without a transport: beginSession,
/// uploadChunk, stage or process, settle, page, stage, apply.
struct PairDriver: Sendable {
  var schema: Schema
  var uploadBytesTarget = 1 << 20
  var downloadBytesTarget = 1 << 20
  /// Through the server's staging, or with the begin.
  var stagesUpload = false
  /// A validator refuses every request whose content says so, about one of this many; 0: none.
  var refusedOneOf = 0
  /// Devices that take parts of rows ask for them.
  var takesParts = true

  func sync(
    _ client: any ClientStore, _ server: any ServerStore, principal: Principal, groups: Set<String>? = nil,
    cut: SyncCut = .none
  ) async throws -> SyncOutcome {
    let session = try await client.beginSession(groups: groups)
    do {
      let outcome = try await run(session, client, server, principal, groups, cut)
      await client.endSession()
      return outcome
    } catch {
      await client.endSession()
      throw error
    }
  }

  private func run(
    _ session: ClientSession, _ client: any ClientStore, _ server: any ServerStore, _ principal: Principal,
    _ groups: Set<String>?, _ cut: SyncCut
  ) async throws -> SyncOutcome {
    var outcome = SyncOutcome()
    let remote = session.state.remoteID
    try await server.register(remote, principal: principal.name)
    if cut == .beforeUpload { return outcome }
    if let upload = session.upload {
      outcome.isResend = upload.isResend
      let chunks = try await ReadUpload.chunks(client)
      outcome.sent = try ReadUpload.changes(in: chunks).map { "\($0.summary) made \($0.made)" }
      let results = try await send(upload, client, server, remote, principal, cut)
      outcome.results = results
      guard let results, cut != .acknowledgementLost else { return outcome }
      _ = try await client.settle(sequence: upload.sequence, results: results)
    }
    if cut == .afterSettle { return outcome }
    let takesParts = takesParts && session.takesParts
    try await download(client, server, remote, principal, groups, cut, takesParts, &outcome)
    return outcome
  }

  private func send(
    _ upload: PendingUpload, _ client: any ClientStore, _ server: any ServerStore, _ remote: RemoteID,
    _ principal: Principal, _ cut: SyncCut
  ) async throws -> UploadResults? {
    let chunks = try await ReadUpload.chunks(client, bytesTarget: uploadBytesTarget)
    let isStaged = stagesUpload || cut == .duringUpload
    if isStaged {
      let held = try await server.staged(remote, sequence: upload.sequence).chunks
      for (index, chunk) in chunks.enumerated() where index >= held {
        if cut == .duringUpload && index == chunks.count - 1 { return nil }
        try await server.stage(chunk, index: index, remote: remote, sequence: upload.sequence)
      }
    }
    return try await server.process(
      ProcessRequest(
        remote: remote, sequence: upload.sequence, principal: principal, chunks: isStaged ? nil : chunks,
        refused: try validated(chunks), isNarrowed: try await !subscriptions(client).isEmpty))
  }

  /// By what the requests change, not by their IDs: every pair refuses the same.
  private func validated(_ chunks: [UploadChunk]) throws -> [Refusal] {
    guard refusedOneOf > 0 else { return [] }
    var reader = UploadRequestReader(schema: schema)
    var requests = try chunks.flatMap { try reader.read($0.bytes) }
    if let last = reader.finish() { requests.append(last) }
    return requests.compactMap { request in
      // In which order a request's changes come is a store's own business.
      let text = request.changes.map { "\($0.table) \($0.operation) \($0.key) \($0.columns)" }.sorted()
        .joined(separator: "; ")
      let number = digest(Array(text.utf8)).utf8.reduce(0) { ($0 &* 31 &+ Int($1)) & 0xFFFF }
      guard number % refusedOneOf == 0 else { return nil }
      return Refusal(
        counter: request.id.counter, stamp: request.stamp, reason: .validator, message: "The test refuses it.",
        status: 418)
    }
  }

  private func subscriptions(_ client: any ClientStore) async throws -> ResolvedSubscriptions {
    try await client.deviceSettings().resolved(schema.parameters).subscriptions
  }

  private func download(
    _ client: any ClientStore, _ server: any ServerStore, _ remote: RemoteID, _ principal: Principal,
    _ groups: Set<String>?, _ cut: SyncCut, _ takesParts: Bool, _ outcome: inout SyncOutcome
  ) async throws {
    let state = try await client.status().state
    let subscriptions = try await subscriptions(client)
    let wanted = groups.map {
      schema.groups(synchronizedWith: $0, states: state.groups, subscriptions: subscriptions)
    }
    let states = state.groups.filter { group in
      !schema.tables(inGroup: group.name).isEmpty && (wanted?.contains(group.name) ?? true)
    }
    // The name says for which cursors, groups and subscriptions the download is: one for others is not gone on with.
    let name =
      states.map { "\($0.name) \($0.cursor.map { "\($0.number)" } ?? "whole")" }.joined(separator: ", ")
      + (subscriptions.isEmpty ? "" : ", " + subscriptions.json.text)
    var position = state.stagedDownload == name && state.stagedPosition != "" ? state.stagedPosition : nil
    if position == nil { try await client.discardStaged() }
    while true {
      let page: FeedPage
      do {
        page = try await server.page(
          PageRequest(
            remote: remote, principal: principal, subscriptions: subscriptions, groups: states, position: position,
            bytesTarget: downloadBytesTarget, takesParts: takesParts))
      } catch let error as SalvorError where error.code == .inconsistentDownload && position != nil {
        try await client.discardStaged()
        position = nil
        outcome.pages = []
        continue
      }
      outcome.pages.append(try DownloadedPage(page.bytes, schema: schema))
      if !page.bytes.isEmpty {
        // The last page has no position after it: a download cut here asks for it again.
        try await client.stage(
          StagedChunk(download: name, bytes: page.bytes, position: page.position ?? position ?? ""))
      }
      position = page.position
      if let ended = page.groups {
        switch cut {
        case .beforeApply, .afterPages: return
        default: break
        }
        do {
          let applied = try await client.apply(DownloadEnd(groups: ended))
          outcome.applied = applied
          // Nothing here is too large.
          try expectEqual(applied.leftOut, 0, "rows whose parents did not come")
        } catch let error as SalvorError where error.code == .inconsistentDownload && takesParts {
          // A part of a row that the device has left out by itself: the rows come whole.
          try await client.discardStaged()
          outcome.pages = []
          try await download(client, server, remote, principal, groups, cut, false, &outcome)
        } catch let needed as GroupsNeeded {
          let asked = try expectSome(groups, "groups that were asked for")
          try expect(!needed.groups.isSubset(of: asked), "what is needed was not asked for")
          outcome.pages = []
          try await download(
            client, server, remote, principal, asked.union(needed.groups), cut, takesParts, &outcome)
        }
        return
      }
      if case .afterPages(let count) = cut, outcome.pages.count >= count { return }
      try expect(outcome.pages.count < 10_000, "a download must end")
    }
  }
}

/// One server and some clients, open, with one schema.
struct PairBench: Sendable {
  struct Client: Sendable {
    let database: StoreSubject<any ClientStore>.Database
    var store: any ClientStore
    var principal: Principal
    /// It had subscriptions once: what they dropped may still stay for the sake of a change.
    var hasChosen = false
  }

  let schema: Schema
  var server: ServerBench
  var clients: [Client]
  var driver: PairDriver

  init(_ subject: StorePairSubject, _ schema: Schema, principals: [Principal]) async throws {
    self.schema = schema
    driver = PairDriver(schema: schema)
    server = try await ServerBench(subject.server, schema)
    clients = []
    for principal in principals {
      let database = try await subject.client.makeDatabase()
      let store = try await database()
      _ = try await store.open(ClientSetup(schema: schema, principal: principal.name))
      clients.append(Client(database: database, store: store, principal: principal))
    }
  }

  func close() async {
    for client in clients { await client.store.close() }
    await server.close()
  }

  mutating func restartServer() async throws { try await server.restart() }

  mutating func restart(_ index: Int) async throws {
    await clients[index].store.close()
    clients[index].store = try await clients[index].database()
    _ = try await clients[index].store.open(ClientSetup(schema: schema, principal: clients[index].principal.name))
  }

  func write(_ index: Int, _ writes: ApplicationWrite...) async throws { try await clients[index].store.write(writes) }

  @discardableResult
  func sync(_ index: Int, groups: Set<String>? = nil, cut: SyncCut = .none) async throws -> SyncOutcome {
    try await driver.sync(
      clients[index].store, server.store, principal: clients[index].principal, groups: groups, cut: cut)
  }

  /// Never 4: after a quiet sync every row in scope is equal on both sides. Rows that show a request in error aside.
  /// - Parameter trace: gets each sync's outcome.
  func expectConverged(
    _ index: Int, file: String = #fileID, line: Int = #line, trace: (SyncOutcome) -> Void = { _ in }
  ) async throws {
    // A session that resends an upload leaves what was queued since to the next one; a request that was displaced may have
    // come back, and one that was held back behind it may go.
    trace(try await sync(index))
    var quiet = try await sync(index)
    for _ in 0..<4 where quiet.results != nil {
      trace(quiet)
      quiet = try await sync(index)
    }
    try expect(quiet.results == nil, "a quiet sync uploads nothing", file: file, line: line)
    try expectEqual(quiet.items, [], "what a quiet sync is fed", file: file, line: line)
    let client = clients[index]
    let subscriptions = try await client.store.deviceSettings().resolved(schema.parameters).subscriptions
    let archive = try await client.store.requests(in: [.refused, .blocked], after: nil, limit: 100_000)
    let kept =
      subscriptions.isEmpty && !client.hasChosen ? [:] : try await ancestors(of: archive, on: client.store)
    for table in schema.synchronized {
      // Flag columns are never compared.
      func travelling(_ row: Row) -> Row { table.travelling.compactMap { table.columnIndex($0.name) }.map { row[$0] } }
      var found: [Key: Row] = [:]
      for row in try await client.store.rows(of: table.name) {
        found[table.key(of: row)] = travelling(row)
      }
      var wanted: [Key: Row] = [:]
      for row in try await scoped(table, client.principal, subscriptions) {
        wanted[table.key(of: row)] = travelling(row)
      }
      for entry in archive where entry.table == table.name {
        found[entry.key] = nil
        wanted[entry.key] = nil
      }
      for key in kept[table.name] ?? [] where wanted[key] == nil { found[key] = nil }
      try expectEqual(found, wanted, "\(table.name) on client \(index), after a quiet sync", file: file, line: line)
    }
  }

  /// The keys of the rows that those of the archive reference, upwards: they stay with them though nothing covers them.
  private func ancestors(of archive: [QueuedRequest], on store: any ClientStore) async throws -> [String: Set<Key>] {
    var tables: [String: [Row]] = [:]
    for table in schema.synchronized { tables[table.name] = try await store.rows(of: table.name) }
    var found: [String: Set<Key>] = [:]
    var open: [(table: String, key: Key, values: [NamedValue])] = archive.map {
      ($0.table, $0.key, ($0.serverRow ?? []) + $0.before)
    }
    while let (name, key, before) = open.popLast() {
      guard let table = schema.table(name) else { continue }
      let row = tables[name]?.first { table.key(of: $0) == key }
      for reference in table.references {
        // Of a row that is deleted here what the server has, which may have changed since.
        let value =
          row.map { $0[table.columnIndex(reference.column) ?? 0] }
          ?? before.first { $0.name == reference.column }?.value
        guard let value else { continue }
        let parent: Key = [value]
        if found[reference.table, default: []].insert(parent).inserted { open.append((reference.table, parent, [])) }
      }
    }
    return found
  }

  /// The server's rows of a table that a principal may read and subscriptions cover.
  func scoped(
    _ table: Table, _ principal: Principal, _ subscriptions: ResolvedSubscriptions = ResolvedSubscriptions()
  ) async throws -> [Row] {
    var tables: [String: [Row]] = [:]
    for table in schema.synchronized { tables[table.name] = try await server.store.rows(of: table.name) }
    return ScopeOracle(schema: schema, principal: principal, subscriptions: subscriptions, tables: tables).rows(
      of: table)
  }
}
