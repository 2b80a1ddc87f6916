import SalvorStorage
import SalvorTransport

/// `server.snapshots`: which groups are offered as files, and how many are kept.
public struct SnapshotSettings: Sendable {
  /// The folder; nil: beside the database.
  public var path: String?
  /// Groups with fewer rows go by rows.
  public var minRows: Int64
  /// So many files are kept, newest first.
  public var keep: Int
  /// All files together, as they are sent.
  public var bytesMax: Int64
  /// The server replaces a file that is older, in milliseconds.
  public var maxAgeMilliseconds: Int64
  /// The server replaces a file when this share of its rows has changed since: 0.1 is a tenth.
  public var maxBehind: Double
  /// Groups whose rows are one principal's, too.
  public var personal: Bool
  /// How long a link is valid, in milliseconds: longer than the slowest device needs.
  public var linkMilliseconds: Int64
  /// Of the files.
  public var compression: any Compression

  public static let minRowsDefault: Int64 = 20_000
  public static let keepDefault = 16
  public static let bytesMaxDefault: Int64 = 8 << 30
  public static let maxAgeDefault: Int64 = 7 * 86_400_000
  public static let maxBehindDefault = 0.1
  public static let linkDefault: Int64 = 2 * 86_400_000

  public init(
    path: String? = nil, minRows: Int64 = minRowsDefault, keep: Int = keepDefault, bytesMax: Int64 = bytesMaxDefault,
    maxAgeMilliseconds: Int64 = maxAgeDefault, maxBehind: Double = maxBehindDefault, personal: Bool = false,
    linkMilliseconds: Int64 = linkDefault, compression: any Compression
  ) {
    self.path = path
    self.minRows = minRows
    self.keep = keep
    self.bytesMax = bytesMax
    self.maxAgeMilliseconds = maxAgeMilliseconds
    self.maxBehind = maxBehind
    self.personal = personal
    self.linkMilliseconds = linkMilliseconds
    self.compression = compression
  }

  /// As whoever makes a file needs it.
  public var coding: SnapshotCoding {
    let compression = compression
    return SnapshotCoding(token: compression.token) { pieces in
      try ByteStream(next: pieces).compressed(by: compression).next
    }
  }
}
