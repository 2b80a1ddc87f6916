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
  public var rowBytesMax = 8 << 20
  /// A row of another program's that is larger as payload text goes to no device: a line of a download may have `rowBytesMax` and `chunkBytesMax`
  /// together, and other rows stand before it.
  public var sentRowBytesMax: Int { rowBytesMax + chunkBytesMax / 2 }
  /// The first line of a sync, less a history and the tables that the server asks for.
  public var beginBytesMax = 1 << 20
  /// The bodies of all requests in memory at one time; requests with larger ones wait. At least `chunkBytesMax` and
  /// `rowBytesMax` together are wanted.
  public var bodiesBytesMax = 64 << 20
  /// The values of one message that is read whole.
  public var valuesMax = 250_000
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
  /// A name in a message: of a member, a group, a table, and a digest.
  public static let nameBytesMax = 1024
  /// Nesting of JSON.
  public var depthMax = 16
  /// The columns of one table that travels.
  public var columnsMax = 1000
  /// How long making a connection may take, in milliseconds; `timeout` ends it.
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
  /// Connections that the server has at one time. It takes fewer where the limit of open files does not allow as
  /// many.
  public var connectionsMax = 4096
  /// Connections of one address at one time, and never more than half of all; an IPv6 network of 64 bits is one address.
  public var connectionsPerAddressMax = 1024
  /// From a connection's first byte, or its beginning, until the head of its request is there.
  public var headTimeoutMilliseconds: Int64 = 5000
  /// A body that moves slower, in either direction, ends its exchange. 0: any pace will do.
  public var bodyBytesPerSecondMin = 128
  /// Tries of one exchange, the first one included.
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

  /// The defaults, as docs/reference/configuration.md lists them.
  public init() {}
}
