import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// The answer to a begin or a processed upload: session, results, SyncConfig, then the download's pages, each followed
  /// by the position at which a cut download goes on, and the end with the new cursors. Where tables differ that the device
  /// has compared, what it has to compare stands in the place of the pages.
  ///
  /// The first page is made before the response begins, so that what fails there is still a problem response, and a
  /// small answer is one piece of known length.
  func answer(
    _ session: SessionTable.Session, results: UploadResults?, _ comparison: Comparison?, _ request: TransportRequest
  ) async throws -> TransportResponse {
    var head = PayloadWriter()
    // A file says how many rows it has: nobody counts them for each device.
    let offers = comparison == nil ? try await snapshotOffers(session) : []
    let count = offers.isEmpty ? try await firstRows(session) : nil
    sessionLine(
      session.principal, count.map { [.init("rows", .integer($0))] } ?? [], untold: session.begin.incarnations,
      heal: session.begin.heal
    ).write(to: &head)
    head.raw("\n")
    if let results {
      (["results": results.json] as JSONValue).write(to: &head)
      head.raw("\n")
    }
    if session.begin.sendsConfig {
      (["config": config.json] as JSONValue).write(to: &head)
      head.raw("\n")
    }
    if let comparison, comparison.isToBeAnswered {
      try await offer(comparison, session).json.write(to: &head)
      head.raw("\n")
      return try await respond(head.bytes, request)
    }
    if !offers.isEmpty {
      (["snapshots": .array(offers.map(\.json))] as JSONValue).write(to: &head)
      head.raw("\n")
      await sessions.close(session)
      return try await respond(head.bytes, request)
    }
    let (groups, held) = try await held(question(session))
    return try await answer(head.bytes, pages(session, comparison?.compared ?? held, groups), request)
  }

  /// The answer to a device that has nothing to send and gets nothing: no session is begun for it.
  func answer(
    _ begin: SessionBegin, nothing page: FeedPage, _ principal: Principal, _ request: TransportRequest
  ) async throws -> TransportResponse {
    let message = begin.message
    var head = PayloadWriter()
    sessionLine(principal, [], untold: begin.incarnations, heal: begin.heal).write(to: &head)
    head.raw("\n")
    if begin.sendsConfig {
      (["config": config.json] as JSONValue).write(to: &head)
      head.raw("\n")
    }
    let pages = PageSource(
      engine: self, remote: message.remote, principal: principal, subscriptions: message.subscriptions,
      groups: message.groups.map(\.state), position: nil, first: page, touch: {}, finished: {})
    return try await answer(head.bytes, pages, request)
  }

  /// How many rows groups have that come for the first time, for a progress bar: all of them also where the download goes on
  /// after a cut, since the device knows how many it has. Nil: there are no such groups.
  private func firstRows(_ session: SessionTable.Session) async throws -> Int64? {
    let message = session.begin.message
    let held = Set(message.snapshot?.held.map(\.group) ?? [])
    let new = message.groups.filter { $0.cursor == nil && !held.contains($0.name) }
    guard !new.isEmpty, let store = configuration.store as? any RecoveringServerStore else {
      return nil
    }
    var rows: Int64 = 0
    for group in new {
      let scope = ReadScope(session.principal, message.subscriptions ?? group.subscriptions)
      rows += try await store.rowCount(of: [group.name], for: scope)
    }
    return rows
  }

  /// - Parameter groups: in the place of the begin's.
  func pages(
    _ session: SessionTable.Session, _ compared: ComparedTables?, _ groups: [GroupState]? = nil
  ) -> PageSource {
    let message = session.begin.message
    return PageSource(
      engine: self, remote: session.remote, principal: session.principal, subscriptions: message.subscriptions,
      groups: groups ?? message.groups.map(\.state), position: message.position, compared: compared,
      takesParts: message.takesParts,
      touch: { [sessions] in await sessions.touch(session) },
      finished: { [sessions] in await sessions.close(session) })
  }

  /// `head`, and the pages after it.
  func answer(
    _ head: [UInt8], _ pages: PageSource, _ request: TransportRequest
  ) async throws -> TransportResponse {
    let first = try await pages.nextPage()
    metrics.downloads.add(1)
    if first.isLast {
      await pages.finished()
      return try await respond(head + first.bytes, request)
    }
    return try respond(streaming: pages.stream(after: head + first.bytes), request)
  }

  /// Who the server is, and whom it takes the device for.
  ///
  /// - Parameter untold: incarnations that the device does not know.
  func sessionLine(
    _ principal: Principal, _ more: [JSONValue.Member], untold: [Incarnation] = [], heal: HealTerms? = nil
  ) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("server", .string(identity.server.text)), .init("incarnation", .string(identity.incarnation.text)),
      .init("principal", .string(principal.name)),
    ]
    if !untold.isEmpty { members.append(.init("incarnations", .array(untold.map(\.json)))) }
    let holds = heal.map { $0.waiting > 0 || $0.settlings > 0 || $0.deletes ?? 0 > 0 } ?? false
    if let heal, holds || heal.floor != nil || !heal.withdrawn.isEmpty {
      var terms: [JSONValue.Member] = []
      if let floor = heal.floor { terms.append(.init("floor", .integer(floor))) }
      if heal.waiting > 0 { terms.append(.init("waiting", .integer(heal.waiting))) }
      if heal.settlings > 0 { terms.append(.init("settlings", .integer(heal.settlings))) }
      if let deletes = heal.deletes, deletes > 0 || heal.settlings > 0 {
        terms.append(.init("deletes", .integer(deletes)))
      }
      if !heal.withdrawn.isEmpty { terms.append(.init("withdrawn", .bool(true))) }
      members.append(.init("heal", .object(terms)))
    }
    return ["session": .object(members + more)]
  }

  /// A body of known length, compressed where that is worth it and the client takes it.
  func respond(_ bytes: [UInt8], _ request: TransportRequest) async throws -> TransportResponse {
    var headers = headersOfAnswer
    var bytes = bytes
    if bytes.count >= compressionBytesMin, let compression = acceptedCompression(request) {
      let stream = try ByteStream.bytes(bytes).compressed(by: compression)
      bytes = try await stream.collect(upTo: Int.max)
      headers["content-encoding"] = compression.token
    }
    return TransportResponse(status: 200, headers: headers, body: .bytes(bytes), contentLength: bytes.count)
  }

  func respond(streaming body: ByteStream, _ request: TransportRequest) throws -> TransportResponse {
    var headers = headersOfAnswer
    var stream = body
    if let compression = acceptedCompression(request) {
      stream = try stream.compressed(by: compression)
      headers["content-encoding"] = compression.token
    }
    // What is short is answered first, however many long downloads are under way.
    if let thread = configuration.downloads.min(by: { $0.workCount < $1.workCount }) {
      stream = stream.made(on: thread)
    }
    return TransportResponse(status: 200, headers: headers, body: stream)
  }

  /// What is taken is said with what is sent (RFC 7694): a device that has sent a begin sends what comes after in the best coding
  /// that both have.
  private var headersOfAnswer: [String: String] {
    var headers = ["content-type": "application/jsonl"]
    let tokens = configuration.compressions.map(\.token)
    if !tokens.isEmpty { headers["accept-encoding"] = tokens.joined(separator: ", ") }
    return headers
  }

  /// The best offered coding that the client names; nil: identity.
  private func acceptedCompression(_ request: TransportRequest) -> (any Compression)? {
    guard let accepted = request.headers["accept-encoding"] else { return nil }
    let tokens = accepted.split(separator: ",").compactMap { entry -> String? in
      let parts = entry.split(separator: ";").map { $0.filter { $0 != " " }.lowercased() }
      return parts.dropFirst().contains { $0 == "q=0" || $0 == "q=0.0" } ? nil : parts.first
    }
    return configuration.compressions.first { tokens.contains($0.token) || tokens.contains("*") }
  }
}

/// Below this size a body is sent as it is.
let compressionBytesMin = 512

/// Pulls the pages of one download from the store, one ahead of the reader: a page is made while the one before it is
/// compressed and sent. Holds two pages at most.
actor PageSource {
  struct Piece: Sendable {
    var bytes: [UInt8]
    var isLast: Bool
  }

  private let engine: ServerEngine
  private let remote: RemoteID
  private let principal: Principal
  /// A piece was sent.
  private let touch: @Sendable () async -> Void
  /// Nothing more will be sent.
  nonisolated let finished: @Sendable () async -> Void
  private let subscriptions: ResolvedSubscriptions?
  private let groups: [GroupState]
  private let compared: ComparedTables?
  private let takesParts: Bool
  private var position: String?
  /// Made already.
  private var first: FeedPage?
  private var ahead: Task<Piece, any Error>?
  private var isFinished = false
  private var leftOut: [RowPlace] = []

  init(
    engine: ServerEngine, remote: RemoteID, principal: Principal, subscriptions: ResolvedSubscriptions?,
    groups: [GroupState], position: String?, compared: ComparedTables? = nil, takesParts: Bool = false,
    first: FeedPage? = nil, touch: @escaping @Sendable () async -> Void, finished: @escaping @Sendable () async -> Void
  ) {
    self.compared = compared
    self.takesParts = takesParts
    self.first = first
    self.engine = engine
    self.remote = remote
    self.principal = principal
    self.touch = touch
    self.finished = finished
    self.subscriptions = subscriptions
    self.groups = groups
    self.position = position
  }

  nonisolated func stream(after head: [UInt8]) -> ByteStream {
    let start = Start(head)
    return ByteStream(
      next: {
        if let head = await start.take() {
          await self.prefetch()
          return head
        }
        return try await self.nextPiece()
      },
      close: { await self.close() })
  }

  private func prefetch() {
    if ahead == nil && !isFinished { ahead = Task { try await self.nextPage() } }
  }

  private func nextPiece() async throws -> [UInt8]? {
    guard !isFinished || ahead != nil else { return nil }
    prefetch()
    guard let task = ahead else { return nil }
    ahead = nil
    do {
      let piece = try await task.value
      await touch()
      if piece.isLast {
        await finished()
      } else {
        prefetch()
      }
      return piece.bytes
    } catch {
      // The response has begun: the problem is a line of it, and the download can go on from its last position.
      isFinished = true
      await finished()
      let problem: JSONValue = ["problem": Problem.json(asSalvorError(error))]
      return problem.bytes + [0x0A]
    }
  }

  private func close() async {
    ahead?.cancel()
    await finished()
  }

  /// Of so many rows a device is told.
  private static let leftOutMax = 100
  /// Of a key so many characters are told.
  private static let keyCharactersMax = 200

  private func note(_ rows: [RowPlace]) {
    guard !rows.isEmpty else { return }
    for row in rows where leftOut.count < Self.leftOutMax && !leftOut.contains(row) { leftOut.append(row) }
    engine.configuration.log.warning(
      "Rows, or blobs of theirs, are larger than devices take (rowBytesMax, blobBytesMax): no device has them.",
      ["tables": Set(rows.map(\.table)).sorted().joined(separator: ", "), "remote": remote.text])
  }

  private func notice(_ row: RowPlace) -> String {
    let key = row.key.map { "\($0)" }.joined(separator: ", ").prefix(Self.keyCharactersMax)
    let limits = engine.configuration.limits
    return
      "The row [\(key)] of \(row.table) was left out: it is larger than \(limits.sentRowBytesMax) bytes, or a blob of it is larger than \(limits.blobBytesMax). Another program wrote it. Make its values smaller at the server, or raise rowBytesMax or blobBytesMax there and on the devices."
  }

  /// The next page's text, with its position or end line.
  func nextPage() async throws -> Piece {
    let page: FeedPage
    if let first {
      page = first
      self.first = nil
    } else {
      page = try await engine.configuration.store.page(
        PageRequest(
          remote: remote, principal: principal, subscriptions: subscriptions, groups: groups, position: position,
          bytesTarget: engine.configuration.limits.chunkBytesTarget, compared: compared, takesParts: takesParts))
    }
    var bytes = page.bytes
    note(page.leftOut)
    let line: JSONValue
    if let next = page.position {
      position = next
      var members: [JSONValue.Member] = [
        .init("position", .string(next)), .init("rows", .integer(Int64(page.rows))),
      ]
      if let share = page.share { members.append(.init("permille", .integer(Int64(min(1, max(0, share)) * 1000)))) }
      line = .object(members)
    } else {
      isFinished = true
      engine.activity.noteDownload(of: remote, page.groups ?? [])
      var end: [JSONValue.Member] = [.init("groups", .array((page.groups ?? []).map(\.json)))]
      let notices =
        (subscriptions.map { principal.notices(on: $0, in: engine.configuration.schema) } ?? [])
        + page.unfit.map(\.notice) + leftOut.map(notice)
      if !notices.isEmpty { end.append(.init("notices", .array(notices.map(JSONValue.string)))) }
      line = ["end": .object(end)]
    }
    bytes += line.bytes
    bytes.append(0x0A)
    return Piece(bytes: bytes, isLast: page.position == nil)
  }
}

extension Principal {
  /// What of these subscriptions brings nothing, because the principal may not see it or nobody knows the target; for the
  /// person on the device.
  fileprivate func notices(on subscriptions: ResolvedSubscriptions, in schema: Schema) -> [String] {
    var notices: [String] = []
    for (target, alternatives) in subscriptions.targets.sorted(by: { $0.key < $1.key }) {
      guard schema.groups.contains(where: { $0.name == target }) || schema.table(target) != nil else {
        notices.append("The server knows no table or group \(target): what is subscribed to there brings nothing.")
        continue
      }
      var refused: Set<String> = []
      for values in alternatives {
        for (name, value) in values where parameters[name].map({ !$0.contains(value) }) ?? false {
          refused.insert("\(name) = \(JSONValue(value).text)")
        }
      }
      notices += refused.sorted().map {
        "Your credential does not allow \($0): the subscription of \(target) to it brings nothing."
      }
    }
    return notices
  }
}

extension UnfitValue {
  /// For the person on the device.
  fileprivate var notice: String {
    "\(table).\(column) is \(type) in the server's database, which has no value written \(JSONValue(value).text): "
      + (isSubscribed ? "the subscription to it brings nothing." : "what your credential allows by it brings nothing.")
  }
}

private actor Start {
  private var head: [UInt8]?
  init(_ head: [UInt8]) { self.head = head }
  func take() -> [UInt8]? {
    defer { head = nil }
    return head
  }
}
