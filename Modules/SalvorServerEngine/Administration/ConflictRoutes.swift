import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What one page of `GET /admin/v1/conflicts` has where nothing is said, and at most.
private let pageDefault = 100
private let pageMax = 1000

extension ServerEngine {
  /// `/admin/v1/conflicts…`.
  ///
  /// - Parameters:
  ///   - parts: of the path after `conflicts`.
  ///   - who: asks.
  func conflicts(_ request: TransportRequest, _ parts: [String], _ who: Administrator) async throws
    -> TransportResponse
  {
    switch (request.method, parts.count) {
    case ("GET", 0): return try await listConflicts(request)
    case ("GET", 1):
      return json(try ConflictRow.json(try await configuration.store.conflict(try id(parts[0], request))))
    case ("POST", 2) where parts[1] == "resolve":
      let id = try id(parts[0], request)
      let message = try await line(request, of: ["keep"])
      guard let keep = ConflictSide(rawValue: try message.string("keep")) else {
        throw SalvorError(.malformed, "The message's \"keep\" must be client or server.")
      }
      return try await act("conflicts.resolve", "\(id)", who, request, message) {
        let resolved = try await resolveConflict(id, keep: keep, by: who.name)
        return json(["resolved": .array(resolved.map(\.json))])
      }
    default: throw notFound(request)
    }
  }

  /// Settles a conflict version and the others of its request (`ServerStore.resolveConflict`).
  public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
    let resolved = try await configuration.store.resolveConflict(id, keep: keep, by: by)
    configuration.log("Conflict version \(id) was resolved: the \(keep.rawValue)'s is kept.")
    return resolved
  }

  private func id(_ text: String, _ request: TransportRequest) throws -> Int64 {
    guard let id = Int64(text) else { throw notFound(request) }
    return id
  }

  private func listConflicts(_ request: TransportRequest) async throws -> TransportResponse {
    let query = try query(of: request, knowing: ["state", "after", "limit"])
    let state = query["state"].map { ($0, ConflictState(rawValue: $0)) }
    let limit = query["limit"].map { Int($0) } ?? pageDefault
    let after = query["after"].map { Int64($0) } ?? 0
    guard let after, let limit, limit > 0, state == nil || state?.1 != nil || state?.0 == "all" else {
      throw SalvorError(
        .malformed,
        "A list of conflicts is asked for with state=open, resolved, settled or all, after=ID and limit=NUMBER.")
    }
    // Those that wait for somebody, where nothing is said.
    let wanted = state.map(\.1) ?? .open
    let count = min(limit, pageMax)
    let found = try await configuration.store.conflicts(after: after, limit: count + 1, state: wanted)
    return json([
      "conflicts": .array(found.prefix(count).map(\.json)),
      "next": found.count > count ? .integer(found[count - 1].id) : .null,
    ])
  }
}

extension ConflictVersion {
  /// As `GET /admin/v1/conflicts` lists it, values of rows included: only for who may read them.
  public var json: JSONValue { .object(members) }

  fileprivate var members: [JSONValue.Member] {
    func optional(_ number: Int64?) -> JSONValue { number.map(JSONValue.integer) ?? .null }
    func optional(_ text: String?) -> JSONValue { text.map(JSONValue.string) ?? .null }
    let before = client.columns.compactMap { column in column.old.map { NamedValue(column.name, $0) } }
    let hasAfter = client.operation != .delete
    let lost: [JSONValue.Member] =
      client.offer.map { offer in
        [
          .init(
            "offer",
            [
              "incarnation": .string(offer.incarnation.text), "commit": .integer(offer.number),
              "parting": .integer(offer.parting),
            ])
        ]
      } ?? []
    return lost + [
      .init("id", .integer(id)), .init("first", .integer(first)), .init("state", .string(state.rawValue)),
      .init("table", .string(table)), .init("key", .array(key.map { JSONValue($0) })),
      .init("request", .string(request.description)),
      .init(
        "client",
        [
          "operation": .string(client.operation.rawValue), "principal": .string(client.principal),
          "remote": .string(client.remote.text), "time": .integer(client.time), "made": .integer(client.made),
          "before": before.isEmpty ? .null : before.json,
          "after": hasAfter ? client.columns.map { NamedValue($0.name, $0.new) }.json : .null,
        ]),
      .init(
        "server",
        [
          "commit": optional(server.commit), "principal": optional(server.principal),
          "remote": optional(server.remote?.text), "time": optional(server.time), "row": server.row?.json ?? .null,
        ]),
      .init(
        "resolution",
        resolution.map { ["keep": .string($0.keep.rawValue), "time": .integer($0.time), "by": .string($0.by)] } ?? .null
      ),
      .init("policy", optional(settlement?.policy)),
      .init("lost", settlement == nil ? .null : ["server": lostOfServer.json, "client": lostOfClient.json]),
    ]
  }
}

extension ConflictRow {
  /// A version with its row of now, and the others of its request. Throws `not-found` where there is none.
  public static func json(_ rows: [ConflictRow]) throws -> JSONValue {
    guard !rows.isEmpty else {
      throw SalvorError(.notFound, "There is no such conflict version. salvor conflicts lists them.")
    }
    return [
      "conflicts": .array(
        rows.map { .object($0.version.members + [.init("present", $0.present?.json ?? .null)]) })
    ]
  }
}

extension [NamedValue] {
  /// As the protocol writes a row's values, by column.
  fileprivate var json: JSONValue { .object(map { JSONValue.Member($0.name, JSONValue($0.value)) }) }
}
