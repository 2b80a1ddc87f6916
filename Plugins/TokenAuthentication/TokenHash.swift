import ContentHash

func sha256(_ bytes: [UInt8]) -> [UInt8] { bytes.withUnsafeBytes { ContentHash.sha256($0) } }

/// Takes the same time wherever the two differ.
func areEqual(_ a: [UInt8], _ b: [UInt8]) -> Bool {
  guard a.count == b.count else { return false }
  var difference: UInt8 = 0
  for index in a.indices { difference |= a[index] ^ b[index] }
  return difference == 0
}
