import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `/admin/v1/restores…`: the list, one of them, what waits of it, the operator's consent, and the pace of healing.
  func restores(_ request: TransportRequest, _ parts: [String], _ who: Administrator) async throws -> TransportResponse
  {
    switch (request.method, parts.count) {
    case ("GET", 0...1) where parts.first != "pace": return try await listRestores(parts)
    case ("GET", 1): return json(try await healing().healPace().json)
    case ("PUT", 1) where parts[0] == "pace":
      try who.require(.operator)
      let message = try await line(request, of: ["paused", "rowsPerSecond"])
      return try await act("restores.pace", "healing", who, request, message) {
        json(try await setHealPace(message).json)
      }
    case ("GET", 2) where parts[1] == "waiting":
      // They hold values of rows.
      try who.require(.operator)
      return try await waitingOffers(request, try restore(parts[0]))
    case ("POST", 2) where parts[1] == "accept" || parts[1] == "reject":
      try who.require(.operator)
      let message = try await line(request, of: ["table", "remote"])
      let query = try WaitingQuery(restore: try restore(parts[0]), message)
      let accepts = parts[1] == "accept"
      return try await act(accepts ? "restores.accept" : "restores.reject", parts[0], who, request, message) {
        accepts
          ? json(try await accept(query).json) : json(["rejected": .integer(try await rejectOffers(query))])
      }
    default: throw notFound(request)
    }
  }

  /// Settles offers that wait for the operator's consent (`HealingServerStore.acceptOffers`).
  public func acceptOffers(_ query: WaitingQuery) async throws -> Int64 { try await accept(query).accepted }

  private func accept(_ query: WaitingQuery) async throws -> AcceptedOffers {
    try await healing().require(query, in: configuration.schema)
    let done = try await healing().accept(query)
    configuration.log("\(done.accepted) offers of lost rows were accepted.")
    events.notice()
    return done
  }

  /// Refuses offers that wait (`HealingServerStore.rejectOffers`).
  public func rejectOffers(_ query: WaitingQuery) async throws -> Int64 {
    try await healing().require(query, in: configuration.schema)
    let count = try await healing().rejectOffers(query)
    configuration.log("\(count) offers of lost rows were rejected.")
    return count
  }

  private func healing() throws -> any HealingServerStore {
    guard let store = configuration.store as? any HealingServerStore else {
      throw SalvorError(
        .notFound, "This server's storage module takes no offers of lost rows. Use the storage \"sqlite\".")
    }
    return store
  }

  private func restore(_ text: String) throws -> Int64 {
    guard let id = Int64(text) else { throw RestoreRecord.notFound(text) }
    return id
  }

  /// `{"paused": …}` or `{"rowsPerSecond": …}` (null: not bounded); what is not named stays.
  private func setHealPace(_ message: JSONValue) async throws -> HealPace {
    var pace = try await healing().healPace()
    if let paused = message["paused"] {
      guard let value = paused.bool else { throw SalvorError(.malformed, "\"paused\" is true or false.") }
      pace.isPaused = value
    }
    if let rate = message["rowsPerSecond"] {
      guard rate.isNull || (1...HealPace.rateMax).contains(rate.integer ?? 0) else { throw HealPace.badRate }
      pace.rowsPerSecond = rate.integer
    }
    try await healing().setHealPace(pace)
    configuration.log(
      "Healing is \(pace.isPaused ? "paused" : "on")\(pace.rowsPerSecond.map { ", \($0) rows a second at most" } ?? "")."
    )
    return pace
  }

  /// `?table=T&remote=R&after=PLACE&limit=N`.
  private func waitingOffers(_ request: TransportRequest, _ restore: Int64) async throws -> TransportResponse {
    let words = try query(of: request, knowing: ["table", "remote", "after", "limit"])
    let limit = words["limit"].map { Int($0) } ?? 100
    guard let limit, limit > 0, let after = words["after"].map({ Int64($0) }) ?? 0 else {
      throw SalvorError(.malformed, "What waits is asked for with table=T, remote=ID, after=PLACE and limit=NUMBER.")
    }
    let query = WaitingQuery(
      restore: restore, table: words["table"], remote: try words["remote"].map { try WaitingQuery.remote($0) })
    let count = min(limit, 1000)
    try await healing().require(query, in: configuration.schema)
    let found = try await healing().waitingOffers(query, after: after, limit: count + 1)
    return json([
      "waiting": .array(found.prefix(count).map(\.json)),
      "next": found.count > count ? .integer(found[count - 1].place) : .null,
    ])
  }

  /// Settles offers that wait and may go on. What fails is logged and tried again later.
  public func settleWaitingOffers() async {
    do {
      try await (configuration.store as? any HealingServerStore)?.settleWaitingOffers()
    } catch { configuration.log("Settling offers that wait failed: \(asSalvorError(error))") }
  }

  private func listRestores(_ parts: [String]) async throws -> TransportResponse {
    let records =
      try await (configuration.store as? any RestoreReportingServerStore)?.restores(limit: RestoreRecord.listedMax)
      ?? []
    guard let id = parts.first else {
      let unnamed = try await (configuration.store as? any RestoreReportingServerStore)?.unnamedWaiting() ?? 0
      return json(["restores": .array(records.map(\.json)), "unnamedWaiting": .integer(unnamed)])
    }
    guard let record = records.first(where: { "\($0.id)" == id }) else { throw RestoreRecord.notFound(id) }
    return json(record.json)
  }

  /// What the newest restore has brought back, and lacks.
  func observeRestores(_ out: inout MetricsText) async {
    guard let restore = try? await (configuration.store as? any RestoreReportingServerStore)?.restores(limit: 1).first
    else { return }
    out.labelled(
      "salvor_restore_offers", "gauge", "Offers since the newest restore, by what became of them",
      Dictionary(
        uniqueKeysWithValues: [
          ("healed", restore.healed), ("superseded", restore.superseded), ("conflict", restore.conflicts),
          ("refused", restore.refused), ("purged", restore.purged), ("waiting", restore.waitingOffers),
        ].map { (MetricsText.label("outcome", $0.0), $0.1) }))
    out.gauge(
      "salvor_restore_lost_commits", "Commits that the newest restore is known to have lost", restore.lostCommits)
    out.gauge(
      "salvor_restore_commits_missing", "Of these, the ones that nobody has offered anything of",
      restore.commitsNotOffered.reduce(0) { $0 + Int64($1.count) })
    out.gauge(
      "salvor_restore_remotes_missing", "Remotes that may hold lost rows and have not come since the newest restore",
      Int64(restore.absent.count { $0.isMissed }))
  }
}

extension WaitingQuery {
  /// As a message says it: `table` and `remote`, each may be left out.
  public init(restore: Int64, _ message: JSONValue) throws(SalvorError) {
    self.init(
      restore: restore, table: try message.optionalString("table"),
      remote: try message.optionalString("remote").map { text throws(SalvorError) in try Self.remote(text) })
  }

  /// Reads a remote ID. Throws `malformed`, for a person, where `text` is none.
  public static func remote(_ text: String) throws(SalvorError) -> RemoteID {
    guard let remote = RemoteID(text) else { throw noRemote(text, .malformed) }
    return remote
  }

  /// For a person: there is no such remote ID.
  public static func noRemote(_ text: String, _ code: ErrorCode) -> SalvorError {
    SalvorError(code, "There is no remote ID \"\(text.prefix(40))\". salvor remotes lists them.")
  }
}

extension HealingServerStore {
  /// Throws `not-found`, for a person, where there is no such restore, no such remote, or the schema has no such table.
  public func require(_ query: WaitingQuery, in schema: Schema) async throws {
    if let table = query.table, !schema.tables.contains(where: { $0.name == table }) {
      throw SalvorError(
        .notFound, "The schema has no table \(table). It has \(schema.tables.map(\.name).joined(separator: ", ")).",
        context: ["table": table])
    }
    if let remote = query.remote, try await self.remote(remote) == nil {
      // One that was deleted may have left offers.
      let left = try await waitingOffers(WaitingQuery(remote: remote), after: 0, limit: 1)
      if left.isEmpty { throw WaitingQuery.noRemote(remote.text, .notFound) }
    }
    guard let restore = query.restore else { return }
    let records = try await (self as? any RestoreReportingServerStore)?.restores(limit: RestoreRecord.listedMax) ?? []
    guard !records.contains(where: { $0.id == restore }) else { return }
    // Where nobody wrote a restore down, offers wait under 0.
    guard try await waitingOffers().contains(where: { $0.restore == restore }) else {
      throw RestoreRecord.notFound("\(restore)")
    }
  }
}

extension HealPace {
  /// Rows a second.
  public static let rateMax: Int64 = 1_000_000

  /// `usage`: a rate is not from 1 to `rateMax`.
  public static let badRate = SalvorError(
    .usage, "A rate is 1 to \(rateMax) rows a second, or null (\"off\") for none.")
}

extension RestoreRecord {
  /// So many are listed.
  public static let listedMax = 100

  /// `not-found`, for a person, with the ID in the context.
  public static func notFound(_ id: String) -> SalvorError {
    SalvorError(.notFound, "There is no restore \(id). salvor server restores lists them.", context: ["id": id])
  }
}
