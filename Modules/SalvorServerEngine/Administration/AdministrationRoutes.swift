import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `/admin/v1/…`, with a credential of its own: the configured administration token, or an administrator's.
  func administrate(_ request: TransportRequest, _ parts: [String]) async throws -> TransportResponse {
    let who = try await administrator(request)
    guard parts.first == "v1" else { throw notFound(request) }
    switch (request.method, parts.dropFirst().first, parts.count) {
    case (_, "remotes", 2...): return try await remotes(request, Array(parts.dropFirst(2)), who)
    case (_, "conflicts", 2...):
      // They hold values of rows.
      try who.require(.operator)
      return try await conflicts(request, Array(parts.dropFirst(2)), who)
    case ("GET", "explain", 3): return try await explain(request, parts[2])
    case (_, "restores", 2...): return try await restores(request, Array(parts.dropFirst(2)), who)
    case (_, "backups", 2): return try await backups(request, who)
    case (_, "snapshots", 2...): return try await snapshots(request, Array(parts.dropFirst(2)), who)
    case (_, "purge", 2): return try await purge(request, who)
    case (_, "log", 2): return try await logLevel(request, who)
    case ("GET", let name?, 2):
      if let answer = try await overview(request, name) { return answer }
      throw notFound(request)
    default: throw notFound(request)
    }
  }

  /// The query of an administrator's request, its values decoded.
  ///
  /// Errors: `malformed` where it says something that nobody reads: a misspelt condition would pass for none.
  func query(of request: TransportRequest, knowing names: [String]) throws -> [String: String] {
    let query = queryParameters(request.path)
    let words = request.path.split(separator: "?", maxSplits: 1).dropFirst().first?.split(separator: "&") ?? []
    guard words.count == query.count, query.keys.allSatisfy(names.contains) else {
      throw SalvorError(
        .malformed,
        "The query has a word that is not known here, or one twice. Known are \(names.joined(separator: ", ")), each as NAME=VALUE."
      )
    }
    return query.mapValues { percentDecoded($0) }
  }

  /// `?principal=P`, or `?all=true` for everybody's (nil).
  func chosenRemotes(_ request: TransportRequest) throws -> String? {
    let query = try query(of: request, knowing: ["principal", "all"])
    if let principal = query["principal"], !principal.isEmpty, query["all"] == nil { return principal }
    guard query["all"] == "true", query["principal"] == nil else {
      throw SalvorError(
        .usage,
        "Say whose remotes are to recover: POST /admin/v1/remotes/reset?principal=P, or ?all=true for every one. One remote alone: POST /admin/v1/remotes/ID/reset."
      )
    }
    return nil
  }

  /// Throws where monitoring wants a credential and the request has none.
  func checkMonitor(_ request: TransportRequest) async throws {
    if Self.isMonitoring { return }
    if configuration.monitoringIsApart {
      throw SalvorError(.notFound, "This is answered at the server's address for monitoring alone.")
    }
    if configuration.monitoringNeedsCredential { _ = try await administrator(request) }
  }

  /// Who administrates.
  private func administrator(_ request: TransportRequest) async throws -> Administrator {
    let from = request.peer ?? (request.peerIsLocal ? "local" : "unknown")
    if let token = configuration.administrationToken, !token.isEmpty {
      let given = Array((request.headers["authorization"] ?? "").utf8)
      if isEqualInConstantTime(given, Array("Bearer \(token)".utf8)) {
        return Administrator(name: "administrator", role: .administrator, from: from)
      }
    }
    let principal = try await identify(request)
    guard let role = principal.role else {
      throw SalvorError(
        .forbidden,
        "This credential may not administrate. Use server.administration.token, or a token made with salvor token --role viewer, operator or administrator."
      )
    }
    return Administrator(name: principal.name, role: role, from: from)
  }

  /// Forgets a remote ID (semantics 5). False: there is none.
  public func delete(remote: RemoteID, block: Bool = false) async throws -> Bool {
    guard try await configuration.store.deleteRemote(remote, block: block) else { return false }
    configuration.log("An administrator deleted remote ID '\(remote)'\(block ? " and blocked it" : "").")
    return true
  }

  /// The remote's next begin is answered with `operator-requested`, until it has recovered. False: there is none.
  public func demandReset(of remote: RemoteID) async throws -> Bool {
    guard try await resettingStore().demandReset(remote) else { return false }
    configuration.log("An administrator demands a reset of remote ID '\(remote)'.")
    return true
  }

  /// The next begin of every remote, or of every remote of a principal, is answered with `operator-requested` until it has
  /// recovered. A device that stopped for a person goes on by it, too.
  ///
  /// - Returns: of how many remotes.
  public func demandResets(of principal: String?) async throws -> Int64 {
    let count = try await resettingStore().demandResets(of: principal)
    configuration.log(
      "An administrator demands a reset of \(count) remote IDs\(principal == nil ? "" : " of one principal").")
    return count
  }

  private func resettingStore() throws -> any RecoveringServerStore {
    guard let store = configuration.store as? any RecoveringServerStore else {
      throw SalvorError(.notFound, "This server's storage module knows no resets. Use the storage \"sqlite\".")
    }
    return store
  }

  /// Removes tombstones, log entries and settled conflicts that are older than the retention. What fails is logged and tried again later.
  public func trim(retentionMilliseconds: Int64) async {
    do {
      let now = configuration.clock.now()
      try await configuration.store.trim(before: now - retentionMilliseconds)
      try await configuration.store.trimSettledConflicts(before: now - configuration.conflictRetentionMilliseconds)
    } catch {
      configuration.log("Trimming the change log failed: \(asSalvorError(error))")
    }
  }

  /// Ends what was begun and left: sessions that nobody continues, and uploads that nobody has continued to stage for so
  /// long. What fails is logged and tried again later.
  public func tidy(stagingMilliseconds: Int64) async {
    await settleWaitingOffers()
    do {
      try await sessions.tidy()
      try await configuration.store.forgetStaged(before: configuration.clock.now() - stagingMilliseconds)
    } catch {
      configuration.log("Emptying what was staged and left failed: \(asSalvorError(error))")
    }
  }

  func notFound(_ request: TransportRequest) -> SalvorError {
    SalvorError(
      .notFound,
      "There is no such thing under /admin/v1. GET /admin/v1/remotes lists the remote IDs, GET /admin/v1/conflicts the conflict versions."
    )
  }
}

/// Takes as long for a wrong text as for a right one of the same length.
func isEqualInConstantTime(_ a: [UInt8], _ b: [UInt8]) -> Bool {
  guard a.count == b.count else { return false }
  return zip(a, b).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
}

extension RemoteRecord {
  /// As `GET /admin/v1/remotes` shows a remote; times in milliseconds since 1970.
  public var json: JSONValue {
    [
      "id": .string(id.text), "principal": .string(principal), "blocked": .bool(isBlocked),
      "deleted": .bool(isDeleted), "sequence": sequence.map { .string($0.text) } ?? .null,
      "registered": .integer(registered), "lastUpload": lastUpload.map(JSONValue.integer) ?? .null,
      "resetDemanded": .bool(isResetDemanded),
    ]
  }
}

extension ServerStats {
  /// As `GET /admin/v1/stats` shows them.
  public var json: JSONValue {
    [
      "server": .string(serverID.text), "head": head.json, "remotes": .integer(remotes),
      "logEntries": .integer(logEntries), "stagedBytes": .integer(stagedBytes),
      "openConflicts": .integer(openConflicts),
    ]
  }
}
