import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

private let pageDefault = 100
private let pageMax = 1000

extension ServerEngine {
  /// `/admin/v1/remotes…`.
  ///
  /// - Parameter parts: of the path after `remotes`.
  func remotes(_ request: TransportRequest, _ parts: [String], _ who: Administrator) async throws -> TransportResponse {
    switch (request.method, parts.count) {
    case ("GET", 0): return try await listRemotes(request)
    case ("GET", 1):
      guard let id = RemoteID(parts[0]), let remote = try await configuration.store.remote(id) else {
        throw noRemote(parts[0])
      }
      return json(try await whole(remote))
    case ("DELETE", 1):
      try who.require(.administrator)
      let word = try query(of: request, knowing: ["block"])["block"] ?? "false"
      guard let block = Bool(word) else {
        throw SalvorError(.malformed, "A remote ID is deleted with block=true or block=false, or without block.")
      }
      return try await act(block ? "remotes.block" : "remotes.delete", parts[0], who, request) {
        guard let id = RemoteID(parts[0]), try await delete(remote: id, block: block) else { throw noRemote(parts[0]) }
        return TransportResponse(status: 204, contentLength: 0)
      }
    case ("POST", 1) where parts[0] == "reset":
      try who.require(.operator)
      let principal = try chosenRemotes(request)
      return try await act("remotes.reset", principal.map { "principal \($0)" } ?? "all", who, request) {
        json(["resetsDemanded": .integer(try await demandResets(of: principal))])
      }
    case ("POST", 2) where parts[1] == "reset":
      try who.require(.operator)
      return try await act("remotes.reset", parts[0], who, request) {
        guard let id = RemoteID(parts[0]), try await demandReset(of: id) else { throw noRemote(parts[0]) }
        return TransportResponse(status: 204, contentLength: 0)
      }
    default: throw notFound(request)
    }
  }

  func noRemote(_ id: String) -> SalvorError {
    SalvorError(
      .notFound, "There is no remote ID \(visibleID(id)). GET /admin/v1/remotes lists them.")
  }

  /// An ID that somebody sent, as far as it may be one.
  private func visibleID(_ text: String) -> String { RemoteID(text)?.text ?? "of this form (32 hexadecimal digits)" }

  // MARK: Lists

  /// What a remote can be asked for by; those of the store, and those that only a running server knows.
  private enum Filter: String, CaseIterable {
    case known, blocked, deleted
    case resetDemanded = "reset-demanded"
    case syncing, recovering, waiting
    case inStep = "in-step"
    case recoveryRequired = "recovery-required"
    case absent
  }

  private static let absentDaysDefault: Int64 = 30

  private func listRemotes(_ request: TransportRequest) async throws -> TransportResponse {
    let query = try query(of: request, knowing: ["state", "principal", "after", "limit", "days"])
    let limit = query["limit"].map { Int($0) } ?? pageDefault
    let after = query["after"].map { RemoteID($0) }
    let filter = query["state"].map { Filter(rawValue: $0) }
    let days = query["days"].map { Int64($0) } ?? Self.absentDaysDefault
    guard let limit, limit > 0, after != .some(nil), filter != .some(nil), let days, (0...100_000).contains(days) else {
      throw SalvorError(
        .malformed,
        "A list of remotes is asked for with state=\(Filter.allCases.map(\.rawValue).joined(separator: "|")), principal=NAME, after=ID, limit=NUMBER, and with state=absent days=NUMBER."
      )
    }
    var asked = RemoteQuery(
      after: after ?? nil, limit: min(limit, pageMax) + 1, principal: query["principal"])
    var found: [RemoteRecord]
    switch filter ?? nil {
    case .syncing?: found = try await these(try await sessions.remotes, asked)
    case .recovering?: found = try await these(try await recoveries.remotes, asked)
    case .waiting?: found = try await these(try await recoveries.waiting, asked)
    case .inStep?:
      asked.state = .known
      found = try await these(activity.inStep(with: configuration.store.stats().head.number), asked)
    case .recoveryRequired?: found = try await these(activity.recoveryRequired, asked)
    case .absent?:
      asked.state = .known
      asked.unseenSince = configuration.clock.now() - days * 86_400_000
      found = try await configuration.store.remotes(asked)
    case let filter:
      asked.state = filter.flatMap { RemoteQuery.State(rawValue: $0.rawValue) }
      found = try await configuration.store.remotes(asked)
    }
    let hasMore = found.count > min(limit, pageMax)
    if hasMore { found.removeLast() }
    let now = try await underWay()
    return json([
      "remotes": .array(found.map { .object(($0.json.members ?? []) + [.init("state", .string(state(of: $0, now)))]) }),
      "next": hasMore ? found.last.map { .string($0.id.text) } ?? .null : .null,
    ])
  }

  /// Those of a list that the query is about, in order.
  private func these(_ ids: [RemoteID], _ query: RemoteQuery) async throws -> [RemoteRecord] {
    var found: [RemoteRecord] = []
    for id in Set(ids).sorted(by: { $0.text < $1.text }) where found.count < query.limit {
      if let remote = try await configuration.store.remote(id), query.matches(remote) { found.append(remote) }
    }
    return found
  }

  /// Who is at something with the server.
  private struct UnderWay {
    var recovering: Set<RemoteID>
    var waiting: Set<RemoteID>
    var syncing: Set<RemoteID>
  }

  private func underWay() async throws -> UnderWay {
    UnderWay(
      recovering: Set(try await recoveries.remotes), waiting: Set(try await recoveries.waiting),
      syncing: Set(try await sessions.remotes))
  }

  /// One word for how a remote is.
  private func state(of remote: RemoteRecord, _ now: UnderWay) -> String {
    if remote.isBlocked { return "blocked" }
    if remote.isDeleted { return "deleted" }
    if now.recovering.contains(remote.id) { return "recovering" }
    if now.waiting.contains(remote.id) { return "waiting" }
    if now.syncing.contains(remote.id) { return "syncing" }
    if activity[remote.id]?.lastError?.reason != nil { return "recovery-required" }
    return remote.isResetDemanded ? "reset-demanded" : "known"
  }

  /// One remote with what this start of the server has seen of it.
  private func whole(_ remote: RemoteRecord) async throws -> JSONValue {
    let head = try await configuration.store.stats().head.number
    let seen = activity[remote.id].map { JSONValue.object($0.json(head: head)) } ?? .null
    let now = try await underWay()
    return .object(
      (remote.json.members ?? []) + [
        .init("state", .string(state(of: remote, now))), .init("head", .integer(head)), .init("seen", seen),
      ])
  }
}
