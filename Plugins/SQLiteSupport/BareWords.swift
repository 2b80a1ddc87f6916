/// The words of an SQL text in upper case, without what stands in quotes, brackets and comments.
func bareWords(of sql: String) -> [String] {
  let bytes = Array(sql.utf8)
  var words: [String] = []
  var word: [UInt8] = []
  var place = 0
  func skip(to mark: UInt8) {
    place += 1
    while place < bytes.count, bytes[place] != mark { place += 1 }
  }
  func end() {
    if !word.isEmpty { words.append(String(decoding: word, as: UTF8.self).uppercased()) }
    word = []
  }
  while place < bytes.count {
    let byte = bytes[place]
    let next = place + 1 < bytes.count ? bytes[place + 1] : 0
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), 0x80...:
      word.append(byte)
      place += 1
      continue
    // A doubled quote reads as two quoted pieces side by side, which ends at the same place.
    case UInt8(ascii: "\""), UInt8(ascii: "'"), UInt8(ascii: "`"): skip(to: byte)
    case UInt8(ascii: "["): skip(to: UInt8(ascii: "]"))
    case UInt8(ascii: "-") where next == UInt8(ascii: "-"): skip(to: 0x0A)
    case UInt8(ascii: "/") where next == UInt8(ascii: "*"):
      place += 2
      while place + 1 < bytes.count, bytes[place] != UInt8(ascii: "*") || bytes[place + 1] != UInt8(ascii: "/") {
        place += 1
      }
      place += 1
    default: break
    }
    end()
    place += 1
  }
  end()
  return words
}

/// What the constraints of a `CREATE TABLE` do besides failing: `REPLACE`, `IGNORE`, `FAIL` or `ROLLBACK`.
func conflictClauses(of sql: String) -> [String] {
  let words = bareWords(of: sql)
  return words.indices.dropLast(min(2, words.count)).compactMap { place in
    words[place] == "ON" && words[place + 1] == "CONFLICT" && words[place + 2] != "ABORT" ? words[place + 2] : nil
  }
}
