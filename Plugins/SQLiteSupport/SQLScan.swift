/// An SQL text in pieces: bytes that mean something by themselves, and what stands in quotes, brackets and comments.
///
/// A doubled quote reads as two quotations side by side, which end at the same place.
struct SQLScan: Sequence, IteratorProtocol {
  enum Piece: Hashable {
    case bare(UInt8)
    case quotation(isClosed: Bool)
    case comment
  }

  let bytes: [UInt8]
  /// Where the piece that was given last begins, and where the next one does.
  private(set) var start = 0
  private(set) var end = 0

  init(_ sql: String) { bytes = Array(sql.utf8) }

  mutating func next() -> Piece? {
    start = end
    guard start < bytes.count else { return nil }
    let byte = bytes[start]
    let following = start + 1 < bytes.count ? bytes[start + 1] : 0
    switch byte {
    case UInt8(ascii: "\""), UInt8(ascii: "'"), UInt8(ascii: "`"): return .quotation(isClosed: skip(past: byte))
    case UInt8(ascii: "["): return .quotation(isClosed: skip(past: UInt8(ascii: "]")))
    case UInt8(ascii: "-") where following == UInt8(ascii: "-"):
      skip(past: UInt8(ascii: "\n"))
      return .comment
    case UInt8(ascii: "/") where following == UInt8(ascii: "*"):
      end = start + 2
      while end < bytes.count, bytes[end] != UInt8(ascii: "/") || end < start + 3 || bytes[end - 1] != UInt8(ascii: "*")
      {
        end += 1
      }
      end = Swift.min(end + 1, bytes.count)
      return .comment
    default:
      end = start + 1
      return .bare(byte)
    }
  }

  /// False: the text ends before.
  @discardableResult
  private mutating func skip(past mark: UInt8) -> Bool {
    end = start + 1
    while end < bytes.count, bytes[end] != mark { end += 1 }
    guard end < bytes.count else { return false }
    end += 1
    return true
  }
}

/// The words of an SQL text in upper case, without what stands in quotes, brackets and comments.
func bareWords(of sql: String) -> [String] {
  func isPart(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "_"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), 0x80...:
      true
    default: false
    }
  }
  var words: [[UInt8]] = [[]]
  for piece in SQLScan(sql) {
    if case .bare(let byte) = piece, isPart(byte) { words[words.count - 1].append(byte) } else { words.append([]) }
  }
  return words.filter { !$0.isEmpty }.map { String(decoding: $0, as: UTF8.self).uppercased() }
}

/// What the constraints of a `CREATE TABLE` do besides failing: `REPLACE`, `IGNORE`, `FAIL` or `ROLLBACK`.
func conflictClauses(of sql: String) -> [String] {
  let words = bareWords(of: sql)
  return words.indices.dropLast(min(2, words.count)).compactMap { place in
    words[place] == "ON" && words[place + 1] == "CONFLICT" && words[place + 2] != "ABORT" ? words[place + 2] : nil
  }
}

/// The WHERE expression of a `CREATE INDEX`: what follows the word WHERE after the column list.
func indexCondition(of sql: String) -> String? {
  var scan = SQLScan(sql)
  var depth = 0
  var sawColumns = false
  while let piece = scan.next() {
    switch piece {
    case .bare(UInt8(ascii: "(")): depth += 1
    case .bare(UInt8(ascii: ")")):
      depth -= 1
      if depth == 0 { sawColumns = true }
    case .bare(UInt8(ascii: "W")) where sawColumns && depth == 0,
      .bare(UInt8(ascii: "w")) where sawColumns && depth == 0:
      let rest = scan.bytes[scan.start...]
      if String(decoding: rest.prefix(5), as: UTF8.self).uppercased() == "WHERE" {
        return String(decoding: rest.dropFirst(5), as: UTF8.self)
      }
    default: break
    }
  }
  return nil
}
