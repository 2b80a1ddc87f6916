import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// A checked copy of the server's database that stands in the folder of copies.
public struct ServerBackup: Sendable, Hashable {
  /// The file's name in the folder.
  public var name: String
  /// Milliseconds since 1970.
  public var time: Int64
  public var bytes: Int64
  public init(name: String, time: Int64, bytes: Int64) {
    self.name = name
    self.time = time
    self.bytes = bytes
  }

  public var json: JSONValue { ["name": .string(name), "time": .integer(time), "bytes": .integer(bytes)] }
}

/// The folder of copies that the host keeps (`server.backups`).
public protocol ServerBackups: Sendable {
  /// How many are kept.
  var keep: Int { get }
  /// Newest first.
  func list() throws -> [ServerBackup]
  /// Makes one while the server runs, and removes what is beyond `keep`.
  func make() async throws -> (made: ServerBackup, removed: [String])
}

extension ServerEngine {
  /// `GET /admin/v1/backups` and `POST /admin/v1/backups`.
  func backups(_ request: TransportRequest, _ who: Administrator) async throws -> TransportResponse {
    guard let backups = configuration.backups else {
      throw SalvorError(
        .notFound,
        "This server keeps no copies: its configuration names no folder (server.backups.directory). Others than its own, as of a timer, it does not know."
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
