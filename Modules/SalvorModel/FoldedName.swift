extension String {
  /// The name as SQLite compares it: A to Z count as a to z, and no other letters do. Two names of one database are the same
  /// where they are equal folded.
  public var folded: String {
    guard utf8.contains(where: { (0x41...0x5A).contains($0) }) else { return self }
    return String(decoding: utf8.map { (0x41...0x5A).contains($0) ? $0 | 0x20 : $0 }, as: UTF8.self)
  }
}
