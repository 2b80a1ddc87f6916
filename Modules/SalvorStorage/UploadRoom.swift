/// What one upload may have, as far as the server has said so; nothing is bounded of itself.
public struct UploadRoom: Sendable, Hashable {
  /// What the blobs that it refers to, old values and new ones, may have together; nil: any number of bytes.
  public var blobBytes: Int64?
  /// It ends with the last request that has no change after this counter; nil: with the last one that waits. Where the first one has, it goes
  /// alone, with what it needs.
  public var lastCounter: Int64?
  /// What its payload may have; nil: not known. The sender measures the upload by this, and a store takes no notice of it.
  public var payloadBytes: Int64?

  /// Takes them as they are.
  public init(blobBytes: Int64? = nil, lastCounter: Int64? = nil, payloadBytes: Int64? = nil) {
    self.blobBytes = blobBytes
    self.lastCounter = lastCounter
    self.payloadBytes = payloadBytes
  }
}
