import SalvorModel
import SalvorStorage
import SalvorTransport

/// `server.snapshots`: which groups are offered as files, and how many are kept.
@dynamicMemberLookup
public struct SnapshotSettings: Sendable {
  /// What the configuration says, the coding aside.
  public var rules: SnapshotRules
  /// Of the files.
  public var compression: any Compression

  /// With the default rules where none are given.
  public init(_ rules: SnapshotRules = SnapshotRules(), compression: any Compression) {
    self.rules = rules
    self.compression = compression
  }

  /// A rule by its name: `settings.keep` is `settings.rules.keep`.
  public subscript<T>(dynamicMember path: KeyPath<SnapshotRules, T>) -> T { rules[keyPath: path] }

  /// As whoever makes a file needs it.
  public var coding: SnapshotCoding {
    let compression = compression
    return SnapshotCoding(token: compression.token) { pieces, bytes in
      try ByteStream(next: pieces).compressed(by: compression, bytes: bytes).next
    }
  }
}
