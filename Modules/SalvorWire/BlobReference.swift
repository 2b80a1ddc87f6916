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

  /// A larger blob is not read: its reference names no content.
  func hashing(upTo bytesMax: Int) -> BlobSink {
    if bytesMax == .max { return self }
    let none = hash(UnsafeRawBufferPointer(start: nil, count: 0))
    return BlobSink(bytesMin: bytesMin) { [hash] bytes in bytes.count > bytesMax ? none : hash(bytes) }
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
