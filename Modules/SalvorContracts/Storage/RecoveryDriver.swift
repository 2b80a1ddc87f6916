import SalvorModel
import SalvorStorage
import SalvorWire

/// How a device is to recover.
struct RecoveryWish: Sendable, Hashable, CustomStringConvertible {
  var requests = RecoveryOrder.Requests.keep
  var rebuild = RecoveryOrder.Rebuild.nothing
  var takesNewRemoteID = false
  var heal = HealMode.off

  var description: String {
    "\(requests.rawValue), rebuild \(rebuild.rawValue)\(takesNewRemoteID ? ", new remote ID" : "")"
      + (heal == .off ? "" : ", heal \(heal.rawValue)")
  }
}

/// Drives a recovery between a client's store and a server's as the engine does, without a transport
/// (docs/architecture/recovery.md, *What is fetched*). Small pages, so that there are many.
struct RecoveryDriver: Sendable {
  let schema: Schema
  let server: any RecoveringServerStore
  let serverID: ServerID
  let principal: Principal
  private let client: any RecoveringClientStore
  /// What the server answered to questions for rows, the feed aside.
  private(set) var answered: [DownloadedPage.Item] = []
  private let download = "recovery \(CommitID(from: SystemRandom()))"

  init(_ bench: PairBench, _ index: Int) throws {
    schema = bench.schema
    serverID = bench.server.opening.serverID
    principal = bench.clients[index].principal
    client = try expectSome(
      bench.clients[index].store as? any RecoveringClientStore, "the client's store as a RecoveringClientStore")
    server = try expectSome(
      bench.server.store as? any RecoveringServerStore, "the server's store as a RecoveringServerStore")
  }

  private func admission(_ state: ClientState) async throws -> Admission {
    let history = try await client.history()
    return try await server.admit(
      AdmissionQuery(
        remote: state.remoteID, previous: state.previous, current: state.current,
        cursors: state.groups.compactMap(\.cursor), olderSequences: history.olderSequences, commits: history.commits))
  }

  /// What the checks of a begin find (semantics 5 and 6): nil where an ordinary sync goes on.
  func reason() async throws -> RecoveryReason? {
    let state = try await client.status().state
    return Self.reason(try await admission(state), state)
  }

  private static func reason(_ admission: Admission, _ state: ClientState) -> RecoveryReason? {
    // A server that knows no S is asked, too, whether it has what it acknowledged last: no cursor says so.
    let stored = admission.remote?.sequence
    if stored != state.previous && (stored == nil || stored != state.current) { return .serverRestored }
    if admission.cursors.contains(.unknown) { return .serverRestored }
    return admission.cursors.contains(.trimmed) ? .historyTrimmed : nil
  }

  mutating func recover(_ wish: RecoveryWish = RecoveryWish()) async throws -> RecoveryReport {
    let state = try await client.status().state
    try await server.register(state.remoteID, principal: principal.name)
    let admission = try await admission(state)
    let reason = Self.reason(admission, state) ?? .operatorRequested
    if wish.heal != .off {
      // An incarnation that no server has: of every lost commit.
      let lost = IncarnationID(unchecked: String(repeating: "7", count: 32))
      try await client.remember(
        server: serverID, incarnations: [Incarnation(id: lost, firstCommit: 1)], principal: principal.name)
    }
    var starts = try await client.recoveryStarts(shared: admission.lastShared, trimmed: try await server.trimmed())
    try await client.discardStaged()
    if wish.rebuild == .nothing {
      try await fetchChanged(starts)
      for start in starts where start.commit == nil { try await compare(start.name) }
    } else {
      starts = starts.map { GroupStart(name: $0.name, commit: nil) }
    }
    let groups = try await feed(starts, from: wish.rebuild == .nothing ? admission.head : nil)
    return try await client.recover(
      RecoveryOrder(
        id: download, reason: reason, strategy: "driven", requests: wish.requests, rebuild: wish.rebuild,
        absence: reason == .serverRestored ? .lost : .deleted, starts: starts, groups: groups,
        previous: wish.takesNewRemoteID ? nil : admission.remote?.sequence, shared: admission.lastShared?.number,
        remoteID: wish.takesNewRemoteID ? RemoteID(from: SystemRandom()) : nil, server: serverID,
        removedShareMax: nil, keepsBeforeImages: wish.rebuild == .nothing, heal: wish.heal))
  }

  /// The rows that the device changed after the shared commit, as the server has them.
  private mutating func fetchChanged(_ starts: [GroupStart]) async throws {
    var place: Int64 = 0
    while let page = try await client.changedKeys(after: starts, place: place, limit: 2) {
      for query in page.queries { try await ask(query) }
      place = page.place
    }
  }

  /// Tables of a group of which nothing is shared: only ranges that differ move.
  private mutating func compare(_ group: String) async throws {
    for table in schema.tables(inGroup: group) {
      var after: Key?
      var isLast = false
      while !isLast {
        let page = try await server.ranges(
          RangeQuestion(table: table.name, range: RowQuery.Range(after: after, last: nil), rowsPerRange: 2), limit: 2,
          for: ReadScope(principal))
        for query in try await client.differences(from: page, after: after, of: table.name) { try await ask(query) }
        after = page.ranges.last?.last
        isLast = page.isLast
      }
    }
  }

  private mutating func ask(_ query: RowQuery) async throws {
    let bytes = try await server.rows(matching: query, for: ReadScope(principal))
    answered += try DownloadedPage(bytes, schema: schema).items
    try await stage(bytes)
  }

  private func stage(_ bytes: [UInt8]) async throws {
    if !bytes.isEmpty { try await client.stage(StagedChunk(download: download, bytes: bytes, position: "p")) }
  }

  /// The ordinary feed, read last. No echo is left out: the request's remote is no one's.
  ///
  /// - Parameter head: where compared groups start; nil: every group comes whole.
  private func feed(_ starts: [GroupStart], from head: Commit?) async throws -> [GroupState] {
    let scopes = try await server.scopes(of: starts.map(\.name), for: ReadScope(principal))
    let groups = starts.map { start in
      GroupState(name: start.name, cursor: head.map { start.commit ?? $0 }, scopeDigest: scopes[start.name])
    }
    var position: String?
    while true {
      let page = try await server.page(
        PageRequest(
          remote: RemoteID(from: SystemRandom()), principal: principal, groups: groups, position: position,
          bytesTarget: 100))
      try await stage(page.bytes)
      position = page.position
      if let ended = page.groups { return ended }
    }
  }
}
