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
  /// Size of the file.
  public var bytes: Int64
  /// All parts given.
  public init(name: String, time: Int64, bytes: Int64) {
    self.name = name
    self.time = time
    self.bytes = bytes
  }

  /// As `GET /admin/v1/backups` lists it.
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
