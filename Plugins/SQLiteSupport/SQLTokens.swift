/// One token of an SQL text, as it was written.
struct SQLToken: Hashable {
  var text: String
  /// In upper case; nil: it is quoted, or no word.
  var word: String?
  /// Blanks or a comment stand before it.
  var isApart: Bool
}

/// The tokens of an SQL text, without comments. A quoted name with a doubled quote inside is one token.
func tokens(of sql: String) -> [SQLToken] {
  func isPart(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "$"), 0x80...:
      true
    default: false
    }
  }
  enum Last { case word, quotation, other }
  var tokens: [(bytes: [UInt8], isWord: Bool, isApart: Bool)] = []
  var last = Last.other
  var isApart = false
  var scan = SQLScan(sql)
  while let piece = scan.next() {
    let bytes = Array(scan.bytes[scan.start..<scan.end])
    switch piece {
    case .comment: isApart = true
    case .bare(let byte) where byte == 0x20 || (0x09...0x0D).contains(byte): isApart = true
    case .bare(let byte) where isPart(byte):
      if last == .word, !isApart {
        tokens[tokens.count - 1].bytes += bytes
      } else {
        tokens.append((bytes, true, isApart))
      }
      (last, isApart) = (.word, false)
    case .quotation:
      if last == .quotation, !isApart {
        tokens[tokens.count - 1].bytes += bytes
      } else {
        tokens.append((bytes, false, isApart))
      }
      (last, isApart) = (.quotation, false)
    case .bare:
      tokens.append((bytes, false, isApart))
      (last, isApart) = (.other, false)
    }
  }
  return tokens.map { bytes, isWord, isApart in
    let text = String(decoding: bytes, as: UTF8.self)
    return SQLToken(text: text, word: isWord ? text.uppercased() : nil, isApart: isApart)
  }
}

/// The text that tokens were.
func text(of tokens: some Sequence<SQLToken>) -> String {
  tokens.reduce(into: "") { $0 += ($1.isApart && !$0.isEmpty ? " " : "") + $1.text }
}

/// The statement that makes a table under another name, without its references to other tables; nil where it is no plain table
/// (`CREATE VIRTUAL TABLE`), or SQLite keeps more of it than its own pages (`AUTOINCREMENT`).
func createTable(_ sql: String, as name: String) -> String? {
  let all = tokens(of: sql)
  guard all.count > 4, all[0].word == "CREATE", all[1].word == "TABLE", all[3].text == "(",
    !all.contains(where: { $0.word == "AUTOINCREMENT" })
  else { return nil }
  var parts: [[SQLToken]] = [[]]
  var depth = 1
  var place = 4
  while place < all.count, depth > 0 {
    let token = all[place]
    switch token.text {
    case "(": depth += 1
    case ")": depth -= 1
    default: break
    }
    if depth == 0 { break }
    if depth == 1, token.word == "FOREIGN", all[place + 1].word == "KEY" {
      place = behindParentheses(all, place + 2)
      continue
    }
    if depth == 1, token.word == "REFERENCES" {
      place = behindReference(all, place)
      continue
    }
    if depth == 1, token.text == "," { parts.append([]) } else { parts[parts.count - 1].append(token) }
    place += 1
  }
  guard depth == 0 else { return nil }
  let columns = parts.filter { !$0.isEmpty }.map { text(of: $0) }
  let rest = text(of: all[(place + 1)...])
  return "CREATE TABLE \(name)(\(columns.joined(separator: ", ")))\(rest.isEmpty ? "" : " " + rest)"
}

/// The statement that makes an index under another name, on another table; nil where it is understood otherwise.
func createIndex(_ sql: String, as name: String, on table: String) -> String? {
  var all = tokens(of: sql)
  let place = all.count > 1 && all[1].word == "UNIQUE" ? 2 : 1
  guard all.count > place + 4, all[0].word == "CREATE", all[place].word == "INDEX", all[place + 2].word == "ON",
    all[place + 4].text == "("
  else { return nil }
  all[place + 1].text = name
  all[place + 3].text = table
  return text(of: all)
}

private func behindParentheses(_ all: [SQLToken], _ start: Int) -> Int {
  guard start < all.count, all[start].text == "(" else { return start }
  var depth = 0
  for place in start..<all.count {
    if all[place].text == "(" { depth += 1 }
    if all[place].text == ")" { depth -= 1 }
    if depth == 0 { return place + 1 }
  }
  return all.count
}

/// `REFERENCES name [(columns)] [ON …] [MATCH …] [[NOT] DEFERRABLE [INITIALLY …]]`.
private func behindReference(_ all: [SQLToken], _ start: Int) -> Int {
  func word(_ place: Int) -> String? { place < all.count ? all[place].word : nil }
  var place = behindParentheses(all, start + 2)
  while true {
    switch word(place) {
    case "ON": place += word(place + 2) == "SET" || word(place + 2) == "NO" ? 4 : 3
    case "MATCH": place += 2
    case "NOT" where word(place + 1) == "DEFERRABLE": place += 1
    case "DEFERRABLE": place += word(place + 1) == "INITIALLY" ? 3 : 1
    default: return place
    }
  }
}
