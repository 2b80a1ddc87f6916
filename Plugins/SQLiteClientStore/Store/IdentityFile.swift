import SalvorModel
import SalvorWire

/// The small file beside the database that a restore of the database does not put back (semantics 5): it repeats the
/// remote ID and the last sequence IDs. Older than the database is normal; an ID in it that the database does not know
/// means that the database went back in time.
struct IdentityFile: Sendable, Hashable {
  var remote: RemoteID
  var previous: SequenceID?
  var current: SequenceID?
  /// The database file's own, drawn once.
  var stamp: String
  /// How many changes the server was not known to have when the file was written.
  var unsent: Int64?
  /// The database needs a key. A file without one is not taken for a damaged database then.
  var isEncrypted: Bool

  static func path(of database: String) -> String { database + ".salvor-identity" }

  var json: JSONValue {
    .object([
      .init("remote", .string(remote.text)),
      .init("previous", previous.map { .string($0.text) } ?? .null),
      .init("current", current.map { .string($0.text) } ?? .null),
      .init("stamp", .string(stamp)),
      .init("unsent", unsent.map(JSONValue.integer) ?? .null),
      .init("encrypted", .bool(isEncrypted)),
    ])
  }

  init(
    remote: RemoteID, previous: SequenceID?, current: SequenceID?, stamp: String, unsent: Int64? = nil,
    isEncrypted: Bool = false
  ) {
    self.isEncrypted = isEncrypted
    self.unsent = unsent
    self.remote = remote
    self.previous = previous
    self.current = current
    self.stamp = stamp
  }

  /// Nil where there is no file, or none that can be read: a lost identity file proves nothing.
  init?(path: String) {
    guard let bytes = DurableFile.read(path), let json = try? JSONValue(parsing: bytes) else { return nil }
    guard let remote = try? json.identifier("remote", as: RemoteID.self), let stamp = try? json.string("stamp") else {
      return nil
    }
    self.init(
      remote: remote, previous: (try? json.optionalIdentifier("previous")) ?? nil,
      current: (try? json.optionalIdentifier("current")) ?? nil, stamp: stamp, unsent: json["unsent"]?.integer,
      isEncrypted: json["encrypted"]?.bool ?? false)
  }

  func write(to path: String) throws { try DurableFile.write(json.bytes + [0x0A], to: path, "identity file") }
}
