import SalvorModel
import SalvorWire

/// What a device's database does for blobs that travel outside the payload (docs/architecture/blobs.md). The application
/// reads and writes ordinary columns; so does everything behind the payload.
public protocol ClientBlobs: Sendable {
  /// Up to `count` bytes of a blob that the upload under way refers to, from `offset` on. The same bytes until `settle`,
  /// whatever the application has written since. Throws `not-found` where the upload has no such blob.
  func outgoingBlob(_ blob: OutgoingBlob, from offset: Int64, count: Int) async throws -> [UInt8]

  /// Blobs that what is staged refers to and that this database does not hold, at most `limit` of them; none: everything
  /// staged can be applied. A blob that it holds already, in the row itself or in another, is taken from there.
  func missingBlobs(limit: Int) async throws -> [MissingBlob]

  /// Puts a part of a missing blob into staging; it goes on where the part before it ended. Kept until something is
  /// applied, over restarts and new downloads too. With its last byte the whole is compared with the hash: throws
  /// `blob-mismatch` where it is another, and nothing of it is kept.
  ///
  /// - Returns: how many bytes of it are staged now.
  @discardableResult
  func stageBlob(_ part: [UInt8], of reference: BlobReference, at offset: Int64) async throws -> Int64
}

/// What the consolidated database does for blobs that travel outside the payload.
public protocol ServerBlobs: Sendable {
  /// Those of `references` that the principal must send, in their order, with how much of each is staged. Held is what the
  /// principal has sent before, and what stands in a row that it may read; a blob above `blobBytesMax` is never asked for.
  func missingBlobs(of references: [BlobReference], for principal: Principal) async throws -> [BlobNeed]

  /// Puts a part of a blob into the principal's staging; it goes on where the part before it ended (else
  /// `chunk-missing`), and one that is there already changes nothing. With its last byte the whole is compared with the
  /// hash: throws `blob-mismatch` where it is another, and nothing of it is kept. Throws `too-large` above
  /// `blobBytesMax`.
  ///
  /// All that is staged of a principal's is at most `blobStagingBytesMax`: where the blob would be above it, those are
  /// emptied, the least recently staged first, that nobody works with (`BlobsAtWork`), and what does not fit even so is
  /// refused (`SalvorError.noRoomForBlob`). What no upload has used is emptied a day after its last part.
  ///
  /// - Returns: how many bytes of it are staged now.
  @discardableResult
  func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) async throws -> Int64

  /// The bytes: from this place where it holds them, else from what the principal has staged, else from another row.
  /// Only rows that the principal may read count. Nil: there are none.
  func blobContent(of reference: BlobReference, at place: BlobPlace?, for principal: Principal) async throws -> [UInt8]?
}

/// How long a server keeps what no upload has used.
public let blobStagingMilliseconds: Int64 = 86_400_000

/// A blob that a download refers to, for the device to fetch.
public struct MissingBlob: Sendable, Hashable {
  /// Its hash, and its size in bytes.
  public var reference: BlobReference
  /// Where the server has it.
  public var place: BlobPlace
  /// Bytes that are staged of it.
  public var received: Int64

  /// All parts given.
  public init(reference: BlobReference, place: BlobPlace, received: Int64) {
    self.reference = reference
    self.place = place
    self.received = received
  }
}

/// A blob that an upload refers to, for the device to send.
public struct BlobNeed: Sendable, Hashable {
  /// Its hash, and its size in bytes.
  public var reference: BlobReference
  /// Bytes that are staged of it.
  public var received: Int64

  /// All parts given.
  public init(reference: BlobReference, received: Int64) {
    self.reference = reference
    self.received = received
  }
}

extension BlobPlace {
  /// The key as a line of JSON.
  public var keyText: String { JSONValue.array(key.map { JSONValue($0) }).text }

  /// `{"table":NAME,"key":[…],"column":NAME}`.
  public var json: JSONValue {
    ["table": .string(table), "key": .array(key.map { JSONValue($0) }), "column": .string(column)]
  }

  /// Nil where it names no place.
  public init?(_ json: JSONValue) {
    guard let table = json["table"]?.string, let items = json["key"]?.array, let column = json["column"]?.string else {
      return nil
    }
    let key = items.compactMap(\.rowValue)
    guard key.count == items.count, !key.isEmpty else { return nil }
    self.init(table: table, key: key, column: column)
  }

  /// Nil where `keyText` is no key.
  public init?(table: String, keyText: String, column: String) {
    guard let key = try? JSONValue(parsing: Array(keyText.utf8)) else { return nil }
    self.init(["table": .string(table), "key": key, "column": .string(column)])
  }
}
