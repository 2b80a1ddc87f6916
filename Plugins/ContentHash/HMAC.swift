#if canImport(CommonCrypto)
  import CommonCrypto

  /// The 32 bytes of the HMAC-SHA-256 (RFC 2104) of `bytes` under `key`.
  public func hmacSHA256(_ bytes: [UInt8], key: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: Int(CC_SHA256_DIGEST_LENGTH)) { out, count in
      CCHmac(CCHmacAlgorithm(kCCHmacAlgSHA256), key, key.count, bytes, bytes.count, out.baseAddress)
      count = Int(CC_SHA256_DIGEST_LENGTH)
    }
  }
#else
  import CCrypto

  /// The 32 bytes of the HMAC-SHA-256 (RFC 2104) of `bytes` under `key`.
  public func hmacSHA256(_ bytes: [UInt8], key: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: Int(SHA256_DIGEST_LENGTH)) { out, count in
      HMAC(EVP_sha256(), key, Int32(key.count), bytes, bytes.count, out.baseAddress, nil)
      count = Int(SHA256_DIGEST_LENGTH)
    }
  }
#endif
