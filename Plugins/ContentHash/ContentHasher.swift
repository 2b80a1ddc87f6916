import SalvorWire

#if canImport(CommonCrypto)
  import CommonCrypto
#else
  import CCrypto
#endif

/// SHA-256, piece by piece.
public final class ContentHasher {
  #if canImport(CommonCrypto)
    private var context = CC_SHA256_CTX()

    /// A hash of no bytes yet.
    public init() { CC_SHA256_Init(&context) }

    /// Adds bytes, of any count. Many calls give the same hash as one call with all bytes. Not after `digest` or
    /// `hash`.
    public func update(_ bytes: UnsafeRawBufferPointer) {
      var rest = bytes
      while !rest.isEmpty {
        let piece = UnsafeRawBufferPointer(rebasing: rest.prefix(1 << 30))
        CC_SHA256_Update(&context, piece.baseAddress, CC_LONG(piece.count))
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(piece.count))
      }
    }

    /// The 32 bytes. Nothing can be added afterwards.
    public func digest() -> [UInt8] {
      [UInt8](unsafeUninitializedCapacity: 32) { out, count in
        CC_SHA256_Final(out.baseAddress, &context)
        count = 32
      }
    }
  #else
    private let context: OpaquePointer

    /// A hash of no bytes yet.
    public init() {
      context = EVP_MD_CTX_new()
      EVP_DigestInit_ex(context, EVP_sha256(), nil)
    }

    deinit { EVP_MD_CTX_free(context) }

    /// Adds bytes, of any count. Many calls give the same hash as one call with all bytes. Not after `digest` or
    /// `hash`.
    public func update(_ bytes: UnsafeRawBufferPointer) { EVP_DigestUpdate(context, bytes.baseAddress, bytes.count) }

    /// The 32 bytes. Nothing can be added afterwards.
    public func digest() -> [UInt8] {
      [UInt8](unsafeUninitializedCapacity: 32) { out, count in
        EVP_DigestFinal_ex(context, out.baseAddress, nil)
        count = 32
      }
    }
  #endif

  /// The digest as the name of a blob. As with `digest`, nothing can be added afterwards.
  public func hash() -> BlobHash { BlobHash(digest: digest()) }
}

/// The 32 bytes of the SHA-256 of `bytes`.
public func sha256(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
  let hasher = ContentHasher()
  hasher.update(bytes)
  return hasher.digest()
}

extension BlobHash {
  /// Of a blob with this content.
  public init(of content: UnsafeRawBufferPointer) { self.init(digest: sha256(content)) }

  /// Of a blob with this content.
  public init(of content: [UInt8]) { self = content.withUnsafeBytes { BlobHash(of: $0) } }
}

extension BlobSink {
  /// Nothing but the hash is wanted of a blob.
  public init(bytesMin: Int) { self.init(bytesMin: bytesMin) { BlobHash(of: $0) } }
}
