/// `server.snapshots` without the coding: which groups are offered as files, how many are kept, and how fast they go out. The
/// defaults stand here alone.
public struct SnapshotRules: Sendable, Hashable {
  /// The folder; nil: beside the database.
  public var path: String?
  /// Groups with fewer rows go by rows.
  public var minRows: Int64 = 20_000
  /// So many files are kept, newest first.
  public var keep = 16
  /// All files together, as they are sent, in bytes.
  public var bytesMax: Int64 = 8 << 30
  /// The server replaces a file that is older, in milliseconds.
  public var maxAgeMilliseconds: Int64 = 7 * 86_400_000
  /// The server replaces a file when this share of its rows has changed since, in hundredths.
  public var maxBehindPercent: Int64 = 10
  /// Groups whose rows are one principal's, too.
  public var personal = false
  /// How long a link is valid, in milliseconds: longer than the slowest device needs.
  public var linkMilliseconds: Int64 = 2 * 86_400_000
  /// What the address of each file begins with beside the server's own link, without a `/` at its end: a cache or an object
  /// store. Nil: there is none.
  public var url: String?
  /// Of one download, in bytes a second; 0: no limit.
  public var bytesPerSecond: Int64 = 0
  /// Of all downloads together, in bytes a second; 0: no limit.
  public var bytesPerSecondTotal: Int64 = 0

  /// The defaults, as docs/reference/configuration.md lists them.
  public init() {}
}
