import SalvorModel
import SalvorWire

/// A copy of the consolidated database that `backup(to:)` has made.
public struct RecordedBackup: Sendable, Hashable {
  /// Names it, in eight hexadecimal digits.
  public var id: String
  /// The newest commit in it.
  public var commit: Commit
  /// Milliseconds since 1970.
  public var time: Int64
  /// Where it was written.
  public var path: String
  /// The SHA-256 of the file, in hexadecimal digits.
  public var digest: String
  /// The operator has said that it will not be put back.
  public var isForgotten: Bool

  /// A copy that may still be put back, unless `isForgotten` says otherwise.
  public init(id: String, commit: Commit, time: Int64, path: String, digest: String, isForgotten: Bool = false) {
    self.id = id
    self.commit = commit
    self.time = time
    self.path = path
    self.digest = digest
    self.isForgotten = isForgotten
  }

  /// As commands, the administration's answers and the file beside the database have it.
  public var json: JSONValue {
    [
      "id": .string(id), "commit": commit.json, "time": .integer(time), "path": .string(path),
      "digest": .string(digest), "forgotten": .bool(isForgotten),
    ]
  }

  /// As commands and the administration's answers list them, with the floor.
  public static func members(_ backups: [RecordedBackup]) -> [JSONValue.Member] {
    [
      .init("recorded", .array(backups.map(\.json))),
      .init("floor", floor(of: backups).map(JSONValue.integer) ?? .null),
    ]
  }

  /// The number of the commit of the oldest copy that is not forgotten; nil: there is none. A restore goes back no further.
  public static func floor(of backups: [RecordedBackup]) -> Int64? {
    backups.filter { !$0.isForgotten }.map(\.commit.number).min()
  }

  /// Nil: it is none.
  public init?(_ json: JSONValue) {
    guard let id = json["id"]?.string, let commit = json["commit"], let time = json["time"]?.integer,
      let path = json["path"]?.string, let digest = json["digest"]?.string, let made = try? Commit(commit)
    else { return nil }
    self.init(id: id, commit: made, time: time, path: path, digest: digest)
  }
}

/// A server's store that writes down which copies of it were made.
public protocol BackupListingServerStore: RecoveringServerStore {
  /// Newest first, with those that a restored database does not know of. Works without `open`.
  func recordedBackups() async throws -> [RecordedBackup]

  /// The copy will not be put back any more: the floor need not count it. False: there is no such copy, or it is forgotten.
  func forgetBackup(_ id: String) async throws -> Bool
}
