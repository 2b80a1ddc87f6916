/// Every size and time that Salvor refuses to exceed, with its unit in its name. Set under `limits:` of the
/// configuration's `server` and `client`; docs/reference/configuration.md has the table.
public struct Limits: Sendable, Hashable {
  /// One request's body on the wire, as sent (compressed).
  public var bodyBytesMax = 64 << 20
  /// One upload chunk or one small sync's upload, after decompression, its last row aside.
  public var chunkBytesMax = 4 << 20
  /// One download in all, as sent and after decompression. It goes to staging piece by piece.
  public var downloadBytesMax = 1 << 40
  /// One upload in all, after decompression.
  public var uploadBytesMax = 4 << 30
  /// One row's payload text.
  public var rowBytesMax = 64 << 20
  /// From this size on a blob stands in the payload as a reference, and its bytes travel outside. Each side decides so for
  /// what it sends, and understands both.
  public var blobReferenceBytesMin = 32 << 10
  /// One blob that travels outside the payload. `rowBytesMax` and `uploadBytesMax` do not count it.
  public var blobBytesMax = 256 << 20
  /// The blobs that one principal has sent and no upload has used yet.
  public var blobStagingBytesMax = 16 << 30
  /// Where the payload of a chunk is cut; a longer single row makes a longer chunk.
  public var chunkBytesTarget = 256 << 10
  /// An upload up to this size goes with its begin, in one round trip.
  public var singleRoundTripBytesMax = 256 << 10
  /// Nesting of JSON.
  public var depthMax = 16
  /// The columns of one table that travels.
  public var columnsMax = 1000
  public var connectTimeoutMilliseconds: Int64 = 10_000
  /// No byte in either direction for this long ends an exchange.
  public var idleTimeoutMilliseconds: Int64 = 60_000
  /// A session that nobody continues is given up after this.
  public var sessionIdleMilliseconds: Int64 = 30_000
  /// Sessions of one principal at one time.
  public var principalSessionsMax = 2_000
  /// Remote databases of one principal; deleted ones do not count.
  public var principalRemotesMax = 10_000
  /// What the remotes of one principal have in staging together, blobs aside (`blobStagingBytesMax`).
  public var principalStagedBytesMax = 8 << 30
  /// Chunks of one upload.
  public var uploadChunksMax = 100_000
  public var connectionsMax = 4096
  public var attemptsMax = 4
  /// Remote databases that recover at one time; others are told to come back (`overloaded`).
  public var recoveriesMax = 32
  /// Devices that listen for changes at one time, and never more than half of `connectionsMax`: others poll.
  public var eventListenersMax = 2048
  /// A stream of events that says nothing says so this often. Shorter than every idle timeout on the way.
  public var eventKeepAliveMilliseconds: Int64 = 15_000
  /// While anybody listens, the tables are looked at this often for what other programs write.
  public var eventLookMilliseconds: Int64 = 250
  /// A stream of events ends after this; the device begins another, and shows its credentials again.
  public var eventStreamMilliseconds: Int64 = 3_600_000

  public init() {}
}
