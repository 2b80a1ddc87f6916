import SalvorModel

/// Limits of the messages about blobs (docs/reference/protocol.md, *Blobs*).
public enum BlobLimits {
  /// Blobs that one question for missing ones names.
  public static let missingMax = 1000
}

extension BlobReference {
  /// Reads an entry of a question or an answer. Throws `malformed`.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let hash = BlobHash(try json.string("ref")) else {
      throw SalvorError(.malformed, "A blob's \"ref\" must be 64 hexadecimal digits.")
    }
    self.init(hash: hash, size: try json.integer("size"))
    guard size >= 0 else { throw SalvorError(.malformed, "A blob's \"size\" must not be negative.") }
  }

  /// The entry as a message has it: `{"ref":SHA256,"size":BYTES}`.
  public var json: JSONValue { ["ref": .string(hash.text), "size": .integer(size)] }
}
