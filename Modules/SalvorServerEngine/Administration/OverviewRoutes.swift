import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// What is read whole under `/admin/v1`; nil: none of these.
  func overview(_ request: TransportRequest, _ name: String) async throws -> TransportResponse? {
    switch name {
    case "stats": return json(try await configuration.store.stats().json)
    case "overview": return json(try await overview())
    case "refusals": return json(refusals())
    case "recoveries": return json(try await recoveryList())
    case "schema": return json(config.json)
    case "configuration": return json(try hostFacts().configuration)
    case "modules": return json(try hostFacts().modules)
    case "audit": return json(try auditList(request))
    case "events":
      return TransportResponse(
        status: 200, headers: ["content-type": ServerEvent.contentType, "cache-control": "no-store"],
        body: try operatorEvents.listen())
    default: return nil
    }
  }

  private func hostFacts() throws -> HostFacts {
    guard let facts = configuration.hostFacts else {
      throw SalvorError(.notFound, "The program that runs this server does not say this of itself.")
    }
    return facts
  }

  private func overview() async throws -> JSONValue {
    let stats = try await configuration.store.stats()
    let recovering = try await recoveries.counts
    return [
      "version": .string(salvorVersion), "protocol": .integer(protocolVersion),
      "server": .string(identity.server.text), "incarnation": .string(identity.incarnation.text),
      "started": .integer(started), "restored": .bool(identity.isRestored), "storage": stats.json,
      "sessions": .integer(Int64(try await sessions.count)), "listeners": .integer(Int64(events.count)),
      "recoveries": [
        "underWay": .integer(Int64(recovering.underWay)), "waiting": .integer(Int64(recovering.waiting)),
        "required": .integer(Int64(activity.recoveryRequired.count)),
      ],
      "releases": .object(
        activity.releases.sorted { $0.key < $1.key }.map { JSONValue.Member($0.key, .integer($0.value)) }),
      "writersWaiting": .integer(Int64(turns.count)),
      "uploads": .integer(metrics.uploads.value), "accepted": .integer(metrics.accepted.value),
      "refused": .integer(metrics.refused.value), "loginsRefused": .integer(metrics.loginsRefused.value),
    ]
  }

  /// Since the start of the server.
  private func refusals() -> JSONValue {
    func counts(_ counter: ServerMetrics.LabelledCounter) -> JSONValue {
      .object(
        counter.values.sorted { $0.key < $1.key }.map { label, count in
          // `name="value"`, and values are words of fixed lists.
          JSONValue.Member(String(label.split(separator: "\"").dropFirst().first ?? ""), .integer(count))
        })
    }
    return [
      "since": .integer(started), "requests": counts(metrics.refusedByReason), "resets": counts(metrics.resetsByReason),
      "problems": counts(metrics.problemsByCode),
    ]
  }

  private func recoveryList() async throws -> JSONValue {
    [
      "since": .integer(started), "underWay": .array(try await recoveries.remotes.map { .string($0.text) }),
      "required": .array(activity.recoveryRequired.prefix(1000).map { .string($0.text) }),
      "begun": .object(metrics.recoveries.sorted { $0.key < $1.key }.map { .init($0.key, .integer($0.value)) }),
      "ended": .integer(metrics.recoveriesEnded.value), "rewinds": .integer(metrics.rewinds.value),
    ]
  }

  private func auditList(_ request: TransportRequest) throws -> JSONValue {
    guard let audit = configuration.audit else {
      throw SalvorError(
        .notFound,
        "This server keeps no list of acts: its storage has no place for one (of PostgreSQL: stateDirectory). The log has those that came over HTTP."
      )
    }
    let query = try query(of: request, knowing: ["limit", "before"])
    let limit = query["limit"].map { Int($0) } ?? 100
    let before = query["before"].map { Int64($0) }
    guard let limit, limit > 0, before != .some(nil) else {
      throw SalvorError(
        .malformed, "The acts are asked for with limit=NUMBER and before=TIME (milliseconds since 1970).")
    }
    return ["acts": .array(try audit.newest(limit: min(limit, 1000), before: before ?? nil).map(\.json))]
  }

  /// `GET` and `PUT /admin/v1/log`: the level of the log, without a restart.
  func logLevel(_ request: TransportRequest, _ who: Administrator) async throws -> TransportResponse {
    guard let level = configuration.hostFacts?.level, let setLevel = configuration.hostFacts?.setLevel else {
      throw SalvorError(.notFound, "The program that runs this server has a log of its own; set its level there.")
    }
    if request.method == "GET" { return json(["level": .string(level().rawValue)]) }
    guard request.method == "PUT" else { throw notFound(request) }
    try who.require(.operator)
    let message = try await line(request, of: ["level"])
    let text = try message.string("level")
    guard let new = LogLevel(rawValue: text) else {
      throw SalvorError(
        .malformed, "A level is one of \(LogLevel.allCases.map(\.rawValue).joined(separator: ", ")).")
    }
    return try await act("log.level", new.rawValue, who, request, message) {
      setLevel(new)
      return json(["level": .string(new.rawValue)])
    }
  }
}
