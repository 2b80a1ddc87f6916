import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `GET /admin/v1/backups` and `POST /admin/v1/backups`.
  func backups(_ request: TransportRequest, _ who: Administrator) async throws -> TransportResponse {
    guard let backups = configuration.backups else {
      // What it makes itself is all that it keeps; what others made of its database it lists.
      if request.method == "GET", let store = configuration.store as? any BackupListingServerStore {
        return json(.object([.init("backups", .array([]))] + RecordedBackup.members(try await store.recordedBackups())))
      }
      throw SalvorError(
        .notFound,
        "This server keeps no copies: its configuration names no folder (server.backups.directory)."
      )
    }
    switch request.method {
    case "GET":
      let recorded = try await (configuration.store as? any BackupListingServerStore)?.recordedBackups()
      return json(
        .object(
          [
            .init("keep", .integer(Int64(backups.keep))), .init("backups", .array(try backups.list().map(\.json))),
          ] + (recorded.map(RecordedBackup.members) ?? [])))
    case "POST":
      try who.require(.operator)
      return try await act("server.backup", "", who, request) {
        guard isCopying.compareExchange(expected: false, desired: true, ordering: .acquiring).exchanged else {
          throw SalvorError(
            .overloaded, "A copy is being made. Ask again when it is done.", retryAfterMilliseconds: 5000)
        }
        defer { isCopying.store(false, ordering: .releasing) }
        let (made, removed) = try await backups.make()
        configuration.log.notice("A copy of the database was made.", ["file": made.name, "bytes": "\(made.bytes)"])
        return json(["made": made.json, "removed": .array(removed.map(JSONValue.string))], status: 201)
      }
    default: throw notFound(request)
    }
  }
}
