import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `/v1/recovery…` (docs/reference/protocol.md, *Recovery*).
  ///
  /// - Parameter parts: of the path after `recovery`.
  func recovery(_ request: TransportRequest, _ parts: [String]) async throws -> TransportResponse {
    guard let store = configuration.store as? any RecoveringServerStore else {
      throw SalvorError(
        .notFound, "This server's storage module cannot help a device to recover. Use the storage \"sqlite\".")
    }
    let principal = try await configuration.authentication.authenticate(request)
    if request.method == "POST" && parts.isEmpty { return try await beginRecovery(request, principal, store) }
    guard (1...2).contains(parts.count) else { throw noRecoveryRoute }
    let recovery = try recoveries.find(parts[0], principal: principal)
    if request.method == "DELETE" && parts.count == 1 {
      recoveries.close(recovery.token)
      return TransportResponse(status: 204, contentLength: 0)
    }
    guard parts.count == 2 else { throw noRecoveryRoute }
    switch (request.method, parts[1]) {
    case ("POST", "rows"): return try await answerRows(request, recovery, principal, store)
    case ("POST", "ranges"): return try await answerRanges(request, recovery, principal, store)
    case ("POST", "download"): return try await answerDownload(request, recovery, principal)
    case ("DELETE", "remote"): return try await forget(recovery, principal)
    case ("POST", "end"): return try await end(request, recovery, store)
    default: throw noRecoveryRoute
    }
  }

  private var noRecoveryRoute: SalvorError {
    SalvorError(
      .notFound,
      "Under /v1/recovery there are POST /v1/recovery, POST TOKEN/rows, TOKEN/ranges, TOKEN/download, TOKEN/end, DELETE TOKEN and DELETE TOKEN/remote."
    )
  }

  /// The lines of a request's body.
  private func lines(_ request: TransportRequest, max count: Int) async throws -> [JSONValue] {
    let body = try await decodedBody(request, limit: configuration.limits.chunkBytesMax)
    let lines = body.split(separator: 0x0A, maxSplits: count + 1)
    guard lines.count <= count else {
      throw SalvorError(.tooLarge, "The body has more than \(count) line\(count == 1 ? "" : "s").")
    }
    let depth = configuration.limits.depthMax
    return try lines.map { try JSONValue(parsing: Array($0), depthMax: depth) }
  }

  /// A body of one line.
  func line(_ request: TransportRequest) async throws -> JSONValue {
    guard let line = try await lines(request, max: 1).first else {
      throw SalvorError(.malformed, "The body must be one line of JSON.")
    }
    return line
  }

  // MARK: Begin

  /// `POST /v1/recovery`: facts instead of a sync, whatever the checks of a begin say.
  private func beginRecovery(
    _ request: TransportRequest, _ principal: Principal, _ store: any RecoveringServerStore
  ) async throws -> TransportResponse {
    let message = try BeginMessage(try await line(request))
    guard message.history != nil, message.upload == .none else {
      throw SalvorError(.malformed, "A recovery's begin has a \"history\", and its \"upload\" is none.")
    }
    try sessions.giveWay(to: message)
    let recovery = try open(message, principal)
    do {
      let admission = try await admission(of: message, principal: principal)
      let finding = try await finding(message, admission)
      let facts = try await facts(finding, admission, recovery, principal, store)
      let label = finding.label
      metrics.countRecovery(label)
      configuration.log(
        "Remote ID '\(message.remote)' recovers (\(label)); shared commit: \(facts.shared.map { "\($0.number)" } ?? "none"), newest: \(facts.head.number)."
      )
      var answer = facts.json.bytes + [0x0A]
      if message.schemaDigest != config.digest {
        answer += (["config": config.json] as JSONValue).bytes + [0x0A]
      }
      return try await respond(answer, request)
    } catch {
      recoveries.close(recovery.token)
      throw error
    }
  }

  private func open(_ message: BeginMessage, _ principal: Principal) throws -> RecoveryTable.Recovery {
    let remote = message.remote
    switch recoveries.open(remote, principal: principal.name, subscriptions: message.subscriptionsByGroup) {
    case .open(let recovery, _): return recovery
    case .comeBack(let delay, let isFirst):
      if isFirst {
        configuration.log(
          "\(configuration.limits.recoveriesMax) devices recover at once (recoveriesMax); others are told to come back."
        )
      }
      throw SalvorError(
        .overloaded, "Many devices recover at this moment. Try again after the time named; nothing is lost.",
        context: ["remote": remote.text], retryAfterMilliseconds: delay)
    }
  }

  /// What a begin would be refused with now.
  private struct Finding {
    var reason: RecoveryReason?
    var shared: Commit?
    var differences: [String]
    /// As metrics and log name it.
    var label: String
  }

  private func finding(_ message: BeginMessage, _ admission: Admission) async throws -> Finding {
    var finding = Finding(
      shared: admission.lastShared, differences: try schemaDifferences(message), label: "")
    var isParted = false
    if case .reset(let replaced) = checkServer(known: message.server, own: identity.server) {
      finding.reason = replaced
      finding.shared = nil
    } else {
      switch try await verdict(on: message, admission) {
      case .accepted, .historyNeeded: break
      case .reset(let found): finding.reason = found
      case .parted:
        finding.reason = .serverRestored
        isParted = true
      }
    }
    if finding.reason == nil && !finding.differences.isEmpty { finding.reason = .schemaIncompatible }
    finding.label = isParted ? ErrorCode.historyParted.rawValue : finding.reason?.rawValue ?? "none"
    return finding
  }

  private func facts(
    _ finding: Finding, _ admission: Admission, _ recovery: RecoveryTable.Recovery, _ principal: Principal,
    _ store: any RecoveringServerStore
  ) async throws -> RecoveryFacts {
    let groups = configuration.schema.groups.map(\.name)
    let trimmed = try await store.trimmed()
    var scopes: [String: String] = [:]
    var rows: Int64 = 0
    for group in groups {
      let scope = recovery.scope(ofGroup: group, for: principal)
      scopes.merge(try await store.scopes(of: [group], for: scope)) { first, _ in first }
      rows += try await store.rowCount(of: [group], for: scope)
    }
    return RecoveryFacts(
      token: recovery.token, server: identity.server, incarnation: identity.incarnation, principal: principal.name,
      reason: finding.reason, shared: finding.shared, trimmed: trimmed, head: admission.head, stored: admission.stored,
      scopes: scopes, rows: rows, clientRecoveryEnabled: configuration.clientRecoveryEnabled,
      selfServiceRemoteDeletion: configuration.selfServiceRemoteDeletion, differences: finding.differences,
      demand: admission.remote?.resetDemand)
  }

  // MARK: Questions

  /// `POST /v1/recovery/TOKEN/rows`: the answer to each query goes out while the next one is asked.
  private func answerRows(
    _ request: TransportRequest, _ recovery: RecoveryTable.Recovery, _ principal: Principal,
    _ store: any RecoveringServerStore
  ) async throws -> TransportResponse {
    var queries: [RowQuery] = []
    var keys = 0
    for line in try await lines(request, max: RecoveryLimits.queriesMax) {
      let query = try RowQuery(line)
      keys += query.keys.count
      guard keys <= RecoveryLimits.keysMax else {
        throw SalvorError(.tooLarge, "A request for rows names at most \(RecoveryLimits.keysMax) keys. Ask in parts.")
      }
      queries += query.parts
    }
    let answers = RowAnswers(queries, store) { [configuration] query in
      recovery.scope(ofTable: query.table, in: configuration.schema, for: principal)
    } touch: { [recoveries] in
      recoveries.touch(recovery.token)
    }
    // What fails in the first one is a problem response; what fails later cuts the answer.
    let first = try await answers.next() ?? []
    guard let second = try await answers.next() else { return try await respond(first, request) }
    let head = OneByOne([first, second])
    return try respond(
      streaming: ByteStream(next: { if let piece = await head.take() { piece } else { try await answers.next() } }),
      request)
  }

  /// `POST /v1/recovery/TOKEN/ranges`
  private func answerRanges(
    _ request: TransportRequest, _ recovery: RecoveryTable.Recovery, _ principal: Principal,
    _ store: any RecoveringServerStore
  ) async throws -> TransportResponse {
    let line = try await line(request)
    let key = try line.optionalArray("after").map { items in
      try items.map { item in
        guard let value = item.rowValue else {
          throw SalvorError(.malformed, "A key must be an array of values.")
        }
        return value
      }
    }
    let table = try line.string("table")
    let page = try await store.ranges(
      of: table, after: key, rowsPerRange: RecoveryLimits.rowsPerRange,
      limit: RecoveryLimits.rangesMax, for: recovery.scope(ofTable: table, in: configuration.schema, for: principal))
    return try await respond(page.json.bytes + [0x0A], request)
  }

  /// `POST /v1/recovery/TOKEN/download`: the feed, with what this device itself sent.
  private func answerDownload(
    _ request: TransportRequest, _ recovery: RecoveryTable.Recovery, _ principal: Principal
  ) async throws -> TransportResponse {
    let line = try await line(request)
    let list = try line.array("groups")
    guard list.count <= 1000 else { throw SalvorError(.tooLarge, "A download names at most 1000 groups.") }
    let groups = try list.map { try BeginMessage.Group($0) }
    let subscriptions = try line["subscriptions"].map { try ResolvedSubscriptions($0) }
    let pages = PageSource(
      engine: self, remote: RemoteID(from: configuration.random), principal: principal,
      subscriptions: subscriptions, groups: groups.map(\.state), position: try line.optionalString("position"),
      touch: { [recoveries] in recoveries.touch(recovery.token) },
      finished: {})
    return try await answer(sessionLine(principal, []).bytes + [0x0A], pages, request)
  }

  // MARK: Ends

  /// `DELETE /v1/recovery/TOKEN/remote`
  private func forget(
    _ recovery: RecoveryTable.Recovery, _ principal: Principal
  ) async throws -> TransportResponse {
    guard configuration.selfServiceRemoteDeletion else {
      throw SalvorError(
        .forbidden,
        "Devices may not delete their remote ID here (server.recovery.selfServiceRemoteDeletion). Ask the server's operator: salvor remotes delete ID.",
        context: ["remote": recovery.remote.text])
    }
    let remotes = AdmissionQuery(remote: recovery.remote, previous: nil, current: nil, cursors: [])
    if let known = try await configuration.store.admit(remotes).remote, !known.isDeleted {
      guard !known.isBlocked, known.principal == principal.name else {
        throw SalvorError(.remoteBlocked, "An administrator has blocked this remote ID. Ask the server's operator.")
      }
      _ = try await configuration.store.deleteRemote(recovery.remote, block: false)
      configuration.log("Remote ID '\(recovery.remote)' was deleted by its device, which recovers.")
    }
    return TransportResponse(status: 204, contentLength: 0)
  }

  /// `POST /v1/recovery/TOKEN/end`
  private func end(
    _ request: TransportRequest, _ recovery: RecoveryTable.Recovery, _ store: any RecoveringServerStore
  ) async throws -> TransportResponse {
    // One that the operator has made since stands: the device has not met it.
    if let demand = try await lines(request, max: 1).first?["demand"]?.integer {
      _ = try await store.settleReset(recovery.remote, demand: demand)
    }
    recoveries.close(recovery.token)
    configuration.log("Remote ID '\(recovery.remote)' has recovered.")
    return TransportResponse(status: 204, contentLength: 0)
  }
}

extension BeginMessage {
  /// What each group is compared and counted with in a recovery: what its cursor was made with, or for one that was never
  /// synchronized what it is to be.
  fileprivate var subscriptionsByGroup: [String: ResolvedSubscriptions] {
    Dictionary(groups.map { ($0.name, $0.cursor == nil ? subscriptions ?? $0.subscriptions : $0.subscriptions) }) {
      first, _ in first
    }
  }
}

extension RecoveryTable.Recovery {
  fileprivate func scope(ofGroup group: String, for principal: Principal) -> ReadScope {
    ReadScope(principal, subscriptions[group] ?? ResolvedSubscriptions())
  }

  fileprivate func scope(ofTable table: String, in schema: Schema, for principal: Principal) -> ReadScope {
    scope(ofGroup: schema.table(table)?.group ?? "", for: principal)
  }
}

extension RowQuery {
  /// The same in parts whose answers are small. One with a range is small by its limit.
  var parts: [RowQuery] {
    let size = 256
    guard range == nil, keys.count > size else { return [self] }
    return stride(from: 0, to: keys.count, by: size).map { start in
      let end = min(start + size, keys.count)
      return RowQuery(
        table: table, keys: Array(keys[start..<end]), digests: digests.isEmpty ? [] : Array(digests[start..<end]))
    }
  }
}

/// Answers queries for rows one after the other, and skips the empty answers.
private actor RowAnswers {
  private var queries: ArraySlice<RowQuery>
  private let scope: @Sendable (RowQuery) -> ReadScope
  private let store: any RecoveringServerStore
  private let touch: @Sendable () -> Void

  init(
    _ queries: [RowQuery], _ store: any RecoveringServerStore, scope: @escaping @Sendable (RowQuery) -> ReadScope,
    touch: @escaping @Sendable () -> Void
  ) {
    self.queries = queries[...]
    self.scope = scope
    self.store = store
    self.touch = touch
  }

  /// At least a piece of this size, where there is so much.
  private static let pieceBytes = 64 << 10

  func next() async throws -> [UInt8]? {
    var piece: [UInt8] = []
    while piece.count < Self.pieceBytes, let query = queries.popFirst() {
      piece += try await store.rows(matching: query, for: scope(query))
    }
    touch()
    return piece.isEmpty ? nil : piece
  }
}

private actor OneByOne {
  private var pieces: ArraySlice<[UInt8]>
  init(_ pieces: [[UInt8]]) { self.pieces = pieces[...] }
  func take() -> [UInt8]? { pieces.popFirst() }
}
