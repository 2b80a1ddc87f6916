import SalvorModel
import SalvorStorage
import SalvorWire

/// The faults of what a server answers to devices that recover. The store without one must recover.
extension BrokenServerStore: RecoveringServerStore {
  private var recovering: any RecoveringServerStore {
    get throws {
      guard let store = base as? any RecoveringServerStore else {
        throw SalvorError(.usage, "The store that is to be broken does not recover. Give one that does.")
      }
      return store
    }
  }

  private func falsified(_ scope: ReadScope) -> ReadScope {
    var scope = scope
    if fault == .answersOutOfScope { scope.principal.parameters = [:] }
    return scope
  }

  public func trimmed() async throws -> Int64 { fault == .forgetsTrimming ? 0 : try await recovering.trimmed() }

  public func scopes(of groups: [String], for scope: ReadScope) async throws -> [String: String] {
    try await recovering.scopes(of: groups, for: falsified(scope))
  }

  public func rowCount(of groups: [String], for scope: ReadScope) async throws -> Int64 {
    try await recovering.rowCount(of: groups, for: falsified(scope))
  }

  public func rows(matching query: RowQuery, for scope: ReadScope) async throws -> [UInt8] {
    var query = query
    switch fault {
    case .answersEveryRow: query.digests = []
    case .answersNamedRowsOnly: query.range = nil
    case .comparesDigestsAcrossScopes where !query.digests.isEmpty:
      // What differs is answered as the principal sees it; what is equal is not answered, whoever may see it.
      let all = try await recovering.rows(
        matching: RowQuery(table: query.table, keys: query.keys, digests: query.digests),
        for: ReadScope(Principal(name: "")))
      if all.isEmpty { return try await rangeOnly(query, for: scope) }
    default: break
    }
    let answer = try await recovering.rows(matching: query, for: falsified(scope))
    return fault == .forgetsLostKeys ? answer.lines { !$0.contains("\"lost\":[[") } : answer
  }

  /// The rows of the range, the named ones left out.
  private func rangeOnly(_ query: RowQuery, for scope: ReadScope) async throws -> [UInt8] {
    try await recovering.rows(matching: query, for: scope).lines { !$0.contains("\"lost\":[[") }
  }

  public func digest(of table: String, for scope: ReadScope) async throws -> TableDigest {
    try await recovering.digest(of: table, for: falsified(scope))
  }

  public func ranges(_ question: RangeQuestion, limit: Int, for scope: ReadScope) async throws -> RangePage {
    var page = try await recovering.ranges(question, limit: limit, for: falsified(scope))
    switch fault {
    case .endsRangesEarly: page.isLast = true
    case .digestsCounts:
      page.ranges = page.ranges.map { range in
        RangeDigest(last: range.last, count: range.count, digest: RowDigest.text(UInt64(range.count)))
      }
    default: break
    }
    return page
  }

  public func settleReset(_ remote: RemoteID, demand: Int64) async throws -> Bool {
    try await recovering.settleReset(remote, demand: demand)
  }

  public func demandResets(of principal: String?) async throws -> Int64 {
    try await recovering.demandResets(of: fault == .demandsOfEverybody ? nil : principal)
  }

  public func demandReset(_ remote: RemoteID) async throws -> Bool {
    fault == .forgetsDemands ? true : try await recovering.demandReset(remote)
  }

  public func backup(to path: String) async throws { try await recovering.backup(to: path) }
}

extension BrokenServerStore: HealingServerStore {
  private func healing() throws -> any HealingServerStore {
    guard let healing = try recovering as? any HealingServerStore else {
      throw SalvorError(.failed, "The store inside takes no offers.")
    }
    return healing
  }

  public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer] {
    try await healing().waitingOffers(query, after: after, limit: limit)
  }

  public func waitingOffers() async throws -> [WaitingCount] { try await healing().waitingOffers() }
  public func acceptOffers(_ query: WaitingQuery) async throws -> Int64 { try await healing().acceptOffers(query) }
  public func rejectOffers(_ query: WaitingQuery) async throws -> Int64 { try await healing().rejectOffers(query) }
  public func settleWaitingOffers() async throws { try await healing().settleWaitingOffers() }
  public func healPace() async throws -> HealPace { try await healing().healPace() }
  public func setHealPace(_ pace: HealPace) async throws { try await healing().setHealPace(pace) }
}
