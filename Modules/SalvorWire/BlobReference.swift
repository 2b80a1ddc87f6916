import SalvorModel

/// The SHA-256 of a blob's bytes: its name between device and server (docs/architecture/blobs.md).
public struct BlobHash: Sendable, Hashable, CustomStringConvertible {
  /// 64 hexadecimal digits, small letters.
  public let text: String

  /// Nil unless `text` is 64 hexadecimal digits in small letters.
  public init?(_ text: String) {
    guard text.utf8.count == 64,
      text.utf8.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) })
    else { return nil }
    self.text = text
  }

  /// - Parameter digest: the 32 bytes.
  public init(digest: some Sequence<UInt8>) { text = hexadecimal(digest) }

  /// The 64 digits, as `text` has them.
  public var description: String { text }
}

/// A blob as a payload names it when its bytes travel outside.
public struct BlobReference: Sendable, Hashable {
  /// The SHA-256 of the blob's bytes.
  public var hash: BlobHash
  /// Bytes.
  public var size: Int64

  /// Takes both members as they are. The size is not checked.
  public init(hash: BlobHash, size: Int64) {
    self.hash = hash
    self.size = size
  }
}

/// A blob that an upload refers to, and the change of which it is an old or a new value.
public struct OutgoingBlob: Sendable, Hashable {
  /// The hash and the size of the blob.
  public var reference: BlobReference
  /// The counter of the change that has the blob as an old or a new value.
  public var counter: Int64

  /// Takes both members as they are.
  public init(reference: BlobReference, counter: Int64) {
    self.reference = reference
    self.counter = counter
  }
}

/// A column of a row that holds, or held, a blob.
public struct BlobPlace: Sendable, Hashable {
  /// The name of the table.
  public var table: String
  /// The values of the row's key columns. `placedBlobs` leaves out a key column that it does not know.
  public var key: Key
  /// The name of the column.
  public var column: String

  /// Takes the members as they are.
  public init(table: String, key: Key, column: String) {
    self.table = table
    self.key = key
    self.column = column
  }
}

/// Makes references of the blobs of a payload that are large.
public struct BlobSink: Sendable {
  /// A blob of at least so many bytes becomes a reference.
  public var bytesMin: Int
  /// SHA-256. A store may take note of the bytes; they are there for the call only.
  public var hash: @Sendable (UnsafeRawBufferPointer) -> BlobHash

  /// Takes both members as they are. `bytesMin` is the limit `blobReferenceBytesMin`, in bytes.
  public init(bytesMin: Int, hash: @escaping @Sendable (UnsafeRawBufferPointer) -> BlobHash) {
    self.bytesMin = bytesMin
    self.hash = hash
  }
}

/// Gives the bytes of what a payload refers to.
public protocol BlobResolver {
  /// Calls `body` once with the whole content, which is there for the call only. Throws `blob-missing` where it is not
  /// there.
  func withContent(
    of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(SalvorError)
}

/// Takes note of what a payload refers to; the values are empty blobs.
public final class BlobCollector: BlobResolver {
  /// Every reference that the payload's reader has met, in order. A reference that the payload has twice is here twice.
  public private(set) var references: [BlobReference] = []

  /// Makes a collector without references.
  public init() {}

  /// Appends the reference, and calls `body` with no bytes. Nothing is thrown.
  public func withContent(of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void) {
    references.append(reference)
    body(UnsafeRawBufferPointer(start: nil, count: 0))
  }
}

/// Blobs in memory.
public struct BlobContents: BlobResolver, Sendable {
  /// The bytes of each blob, by their hash. Nothing compares the bytes with the hash.
  public var contents: [BlobHash: [UInt8]] = [:]
  /// A larger one is empty: what it belongs to is refused anyway.
  public var sizeMax: Int64

  /// Makes an empty store. `sizeMax` is in bytes.
  public init(sizeMax: Int64 = .max) { self.sizeMax = sizeMax }

  /// Calls `body` with the content, or with no bytes where the reference's size is above `sizeMax`. Throws
  /// `blob-missing` where the hash is not in `contents`, or its content has another size than the reference says.
  public func withContent(
    of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(SalvorError) {
    if reference.size > sizeMax { return body(UnsafeRawBufferPointer(start: nil, count: 0)) }
    guard let content = contents[reference.hash], Int64(content.count) == reference.size else {
      throw .blobMissing(reference)
    }
    content.withUnsafeBytes { body($0) }
  }
}

extension SalvorError {
  /// The error `blob-missing`; `context["blob"]` is the hash.
  public static func blobMissing(_ reference: BlobReference) -> SalvorError {
    SalvorError(
      .blobMissing,
      "The bytes of a blob (\(reference.size) of them) that a row refers to are not here. Send them, then try again.",
      context: ["blob": reference.hash.text])
  }

  /// The error `blob-mismatch`: the bytes that came are not those of the hash, which `context["blob"]` names.
  public static func blobMismatch(_ reference: BlobReference) -> SalvorError {
    SalvorError(
      .blobMismatch,
      "What came of a blob (\(reference.size) bytes) is not what its hash names. It was thrown away: send it again.",
      context: ["blob": reference.hash.text])
  }
}

/// Whether a payload may refer to blobs: nothing else in one is written as `{"ref":`.
public func mentionsBlobs(_ payload: some Sequence<UInt8>) -> Bool {
  let found = payload.withContiguousStorageIfAvailable { bytes in
    var place = 0
    while place + 7 <= bytes.count {
      if bytes[place] == 0x7B, bytes[place + 1] == 0x22, bytes[place + 2] == 0x72, bytes[place + 3] == 0x65,
        bytes[place + 4] == 0x66, bytes[place + 5] == 0x22, bytes[place + 6] == 0x3A
      {
        return true
      }
      place += 1
    }
    return false
  }
  return found ?? mentionsBlobs(Array(payload))
}

/// Calls `body` with each blob that an upload's chunk refers to, and with the request that does.
public func eachReferredBlob(
  inUpload chunk: [UInt8], _ body: (BlobReference, RequestID) throws -> Void
) throws {
  guard mentionsBlobs(chunk) else { return }
  try chunk.withUnsafeBufferPointer { buffer in
    var reader = UploadChunkReader(buffer, blobs: BlobCollector())
    var range: (first: Int64, last: Int64)?
    while let event = try reader.next() {
      if case .request(let first, let last, _) = event { range = (first, last) }
      guard case .change(_, let stamp, let counter, _) = event else { continue }
      let first = range.flatMap { $0.first <= counter && counter <= $0.last ? $0.first : nil } ?? counter
      while try reader.item() != nil {
        guard let reference = reader.lastReference else { continue }
        try body(reference, RequestID(stamp: stamp, counter: first))
      }
    }
  }
}

/// What a download payload refers to, each with the row and column that it is for.
///
/// - Parameter primaryKey: the key columns of a table; nil where it is unknown.
public func placedBlobs(
  inDownload payload: [UInt8], primaryKey: (String) -> [String]?
) throws -> [(reference: BlobReference, place: BlobPlace)] {
  guard mentionsBlobs(payload) else { return [] }
  var found: [(reference: BlobReference, place: BlobPlace)] = []
  try payload.withUnsafeBufferPointer { buffer in
    var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
    var (table, columns, keyPlaces) = ("", [String](), [Int]())
    while let event = try reader.next() {
      switch event {
      case .full, .key: continue
      case .table(let name, let names):
        (table, columns) = (name, names)
        keyPlaces = (primaryKey(name) ?? []).compactMap { key in
          names.firstIndex { $0.lowercased() == key.lowercased() }
        }
      case .row, .part:
        var place = 0
        var key: [Int: Value] = [:]
        var references: [(BlobReference, String)] = []
        while let item = try reader.item() {
          if let reference = reader.lastReference, place < columns.count {
            references.append((reference, columns[place]))
          } else if keyPlaces.contains(place) {
            key[place] = item.value
          }
          place += 1
        }
        for (reference, column) in references {
          found.append((reference, BlobPlace(table: table, key: keyPlaces.compactMap { key[$0] }, column: column)))
        }
      }
    }
  }
  return found
}
