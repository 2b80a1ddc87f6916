/// The text of a CHECK condition, as it stands in a schema: whether it is one condition and no more.
///
/// It becomes the inside of `CHECK (…)`. What would end that bracket or swallow it is no condition, whatever SQLite makes
/// of the statement that comes out.
enum ConditionText {
  /// What is wrong with it, as `it …`; nil: nothing.
  static func flaw(of text: String) -> String? {
    let bytes = Array(text.utf8)
    if bytes.contains(0) { return "has the character U+0000 in it" }
    var depth = 0
    var place = 0
    while place < bytes.count {
      let byte = bytes[place]
      let next = place + 1 < bytes.count ? bytes[place + 1] : 0
      switch byte {
      case UInt8(ascii: "'"), UInt8(ascii: "\""), UInt8(ascii: "`"), UInt8(ascii: "["):
        guard let end = endOfQuotation(bytes, from: place) else { return "has a quotation that is not closed" }
        place = end
        continue
      case UInt8(ascii: "-") where next == UInt8(ascii: "-"), UInt8(ascii: "/") where next == UInt8(ascii: "*"):
        return "has a comment in it; comments stand in the schema's file, as // or /* */"
      case UInt8(ascii: ";"): return "has a semicolon in it; a condition is one expression"
      case UInt8(ascii: "("): depth += 1
      case UInt8(ascii: ")"):
        depth -= 1
        if depth < 0 { return "closes a bracket that it does not open" }
      default: break
      }
      place += 1
    }
    return depth > 0 ? "has a bracket that is not closed" : nil
  }

  /// The place after a text or a quoted name; inside of it the closing mark stands twice, but for `]`.
  private static func endOfQuotation(_ bytes: [UInt8], from start: Int) -> Int? {
    let isBracket = bytes[start] == UInt8(ascii: "[")
    let close = isBracket ? UInt8(ascii: "]") : bytes[start]
    var place = start + 1
    while place < bytes.count {
      if bytes[place] == close {
        guard !isBracket, place + 1 < bytes.count, bytes[place + 1] == close else { return place + 1 }
        place += 1
      }
      place += 1
    }
    return nil
  }
}
