/// The text of a CHECK condition, as it stands in a schema: whether it is one condition and no more.
///
/// It becomes the inside of `CHECK (…)`. What would end that bracket or swallow it is no condition, whatever SQLite makes
/// of the statement that comes out.
enum ConditionText {
  /// What is wrong with it, as `it …`; nil: nothing.
  static func flaw(of text: String) -> String? {
    if text.utf8.contains(0) { return "has the character U+0000 in it" }
    var depth = 0
    for piece in SQLScan(text) {
      switch piece {
      case .quotation(isClosed: false): return "has a quotation that is not closed"
      case .comment: return "has a comment in it; comments stand in the schema's file, as // or /* */"
      case .bare(UInt8(ascii: ";")): return "has a semicolon in it; a condition is one expression"
      case .bare(UInt8(ascii: "(")): depth += 1
      case .bare(UInt8(ascii: ")")):
        depth -= 1
        if depth < 0 { return "closes a bracket that it does not open" }
      default: break
      }
    }
    return depth > 0 ? "has a bracket that is not closed" : nil
  }
}
