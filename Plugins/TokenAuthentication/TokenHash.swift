#if canImport(CommonCrypto)
  import CommonCrypto

  func sha256(_ bytes: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: Int(CC_SHA256_DIGEST_LENGTH)) { out, count in
      CC_SHA256(bytes, CC_LONG(bytes.count), out.baseAddress)
      count = Int(CC_SHA256_DIGEST_LENGTH)
    }
  }
#else
  import CCrypto

  func sha256(_ bytes: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: Int(SHA256_DIGEST_LENGTH)) { out, count in
      SHA256(bytes, bytes.count, out.baseAddress)
      count = Int(SHA256_DIGEST_LENGTH)
    }
  }
#endif

/// Takes the same time wherever the two differ.
func areEqual(_ a: [UInt8], _ b: [UInt8]) -> Bool {
  guard a.count == b.count else { return false }
  var difference: UInt8 = 0
  for index in a.indices { difference |= a[index] ^ b[index] }
  return difference == 0
}
