import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `GET`, `POST /admin/v1/snapshots` and `DELETE /admin/v1/snapshots/ID`.
  func snapshots(
    _ request: TransportRequest, _ parts: [String], _ who: Administrator
  ) async throws -> TransportResponse {
    guard let shelf else {
      throw SalvorError(
        .notFound,
        "This server offers no snapshots. Its configuration has no server.snapshots, or its storage makes none.")
    }
    switch (request.method, parts.count) {
    case ("GET", 0):
      return json(["snapshots": .array(try await shelf.list().map(\.json))])
    case ("POST", 0):
      try who.require(.operator)
      let message = try await line(request, of: ["group"])
      let group = try message.string("group")
      return try await act("snapshot.make", group, who, request, message) {
        json(["made": try await makeSnapshot(of: group, on: shelf).json], status: 201)
      }
    case ("DELETE", 1):
      try who.require(.operator)
      return try await act("snapshot.delete", parts[0], who, request) {
        guard try await shelf.snapshot(parts[0]) != nil else {
          throw SalvorError(.notFound, "There is no snapshot of this ID. GET /admin/v1/snapshots lists them.")
        }
        try await shelf.remove(parts[0])
        return TransportResponse(status: 204, contentLength: 0)
      }
    default: throw notFound(request)
    }
  }

  /// Of what somebody without limits sees.
  private func makeSnapshot(of group: String, on shelf: SnapshotShelf) async throws -> Snapshot {
    try configuration.schema.checkSnapshots(of: group)
    let scope = ReadScope(Principal(name: ""))
    guard let store = configuration.store as? any RecoveringServerStore,
      let digest = try await store.scopes(of: [group], for: scope)[group]
    else { throw SalvorError(.notFound, "There is no synchronization group \(group).") }
    return try await shelf.make(SnapshotShelf.Place(group: group, scope: digest), scope)
  }
}

extension Schema {
  /// Somebody sees rows of the group by who he is.
  public func isPersonal(_ group: String) -> Bool {
    tables(inGroup: group).contains { table in
      scopeAlternatives(of: table).contains { $0.dimensions.contains(.principal) }
    }
  }

  /// Throws where an operator cannot have a snapshot of the group made: nobody sees all of it.
  public func checkSnapshots(of group: String) throws(SalvorError) {
    guard groups.contains(where: { $0.name == group }) else {
      throw SalvorError(
        .notFound,
        "There is no synchronization group \(group). The groups are: \(groups.map(\.name).joined(separator: ", ")).")
    }
    if isPersonal(group) {
      throw SalvorError(
        .usage,
        "In the group \(group) each principal sees rows of his own. Its snapshots are made when devices ask (server.snapshots.personal)."
      )
    }
  }
}
