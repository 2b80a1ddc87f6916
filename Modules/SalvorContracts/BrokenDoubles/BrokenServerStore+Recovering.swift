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

  /// `forgetsTrimming`: always 0, as if every tombstone were there.
  public func trimmed() async throws -> Int64 { fault == .forgetsTrimming ? 0 : try await recovering.trimmed() }

  /// `answersOutOfScope`: the digests of a principal without parameters.
  public func scopes(of groups: [String], for scope: ReadScope) async throws -> [String: String] {
    try await recovering.scopes(of: groups, for: falsified(scope))
  }

  /// `answersOutOfScope`: counts what a principal without parameters may read.
  public func rowCount(of groups: [String], for scope: ReadScope) async throws -> Int64 {
    try await recovering.rowCount(of: groups, for: falsified(scope))
  }

  /// Four faults change it: rows out of scope, rows that are equal, rows that nobody named, and lost keys left out.
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
    try await recovering.rows(matching: query, for: scope).lines {
      !$0.contains("\"lost\":[[") && !$0.contains("\"left\":[[")
    }
  }

  /// `answersOutOfScope`: the digest of what a principal without parameters may read.
  public func digest(of table: String, for scope: ReadScope) async throws -> TableDigest {
    try await recovering.digest(of: table, for: falsified(scope))
  }

  /// `endsRangesEarly`: the first page says that it is the last. `digestsCounts`: a range's digest is its row count.
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

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func settleReset(_ remote: RemoteID, demand: Int64) async throws -> Bool {
    try await recovering.settleReset(remote, demand: demand)
  }

  /// `demandsOfEverybody`: every remote's reset is demanded, whoever was named.
  public func demandResets(of principal: String?) async throws -> Int64 {
    try await recovering.demandResets(of: fault == .demandsOfEverybody ? nil : principal)
  }

  /// `forgetsDemands`: true, and nothing is demanded.
  public func demandReset(_ remote: RemoteID) async throws -> Bool {
    fault == .forgetsDemands ? true : try await recovering.demandReset(remote)
  }

  /// No fault changes it. Throws `usage` where the base does not recover.
  public func backup(to path: String) async throws { try await recovering.backup(to: path) }
}

extension BrokenServerStore: HealingServerStore {
  private func healing() throws -> any HealingServerStore {
    guard let healing = try recovering as? any HealingServerStore else {
      throw SalvorError(.failed, "The store inside takes no offers.")
    }
    return healing
  }

  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer] {
    try await healing().waitingOffers(query, after: after, limit: limit)
  }

  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func waitingOffers() async throws -> [WaitingCount] { try await healing().waitingOffers() }
  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func acceptOffers(_ query: WaitingQuery) async throws -> Int64 { try await healing().acceptOffers(query) }
  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func rejectOffers(_ query: WaitingQuery) async throws -> Int64 { try await healing().rejectOffers(query) }
  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func withdrawOffers(_ ids: [RequestID], of remote: RemoteID) async throws -> Int64 {
    try await healing().withdrawOffers(ids, of: remote)
  }
  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func settleWaitingOffers() async throws { try await healing().settleWaitingOffers() }
  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func healPace() async throws -> HealPace { try await healing().healPace() }
  /// No fault changes it. Throws `failed` where the base takes no offers.
  public func setHealPace(_ pace: HealPace) async throws { try await healing().setHealPace(pace) }
}

extension BrokenServerStore: ReopeningServerStore {
  /// `hidesReopenings`: nil, so that everybody takes it for what it was when it was opened.
  public nonisolated var opening: ServerOpening? {
    fault == .hidesReopenings ? nil : (base as? any ReopeningServerStore)?.opening
  }
}
