/// Changes bytes as a broken or hostile other side would.
struct Mutation {
  var draws: Draws
  /// What stands in other messages: pieces of them come from there.
  var corpus: [[UInt8]]

  private static let words: [[UInt8]] = [
    "null", "-1", "0", "1e999", "-0.0", "9223372036854775807", "9223372036854775808", "18446744073709551616", "\"\"",
    "{}",
    "[]", "[[[[[[[[[[[[[[[[[[[[", "\u{0}", "\r\n", "\n", "\"\\ud800\"", "true", "{\"ref\":\"\",\"size\":-1}",
    "{\"blob\":\"////\"}", "../", "%00", ",", ":", "'; DROP TABLE site; --", "{\"integer\":\"99999999999999999999\"}",
  ].map { Array($0.utf8) }

  mutating func number(_ count: Int) -> Int { count > 0 ? Int(draws.next() % UInt64(count)) : 0 }

  /// One to four changes.
  mutating func mutate(_ bytes: [UInt8]) -> [UInt8] {
    var bytes = bytes
    for _ in 0...number(4) { bytes = change(bytes) }
    return bytes
  }

  private mutating func change(_ bytes: [UInt8]) -> [UInt8] {
    var bytes = bytes
    let place = number(bytes.count)
    let end = min(bytes.count, place + 1 + number(40))
    switch number(9) {
    case 0 where !bytes.isEmpty: bytes[place] ^= UInt8(1 << number(8))
    case 1: bytes.removeSubrange(place..<end)
    case 2: bytes.insert(contentsOf: bytes[place..<end], at: place)
    case 3: bytes.insert(contentsOf: Self.words[number(Self.words.count)], at: place)
    case 4: bytes.replaceSubrange(place..<end, with: Self.words[number(Self.words.count)])
    case 5: bytes = Array(bytes.prefix(place))
    case 6: bytes.insert(contentsOf: (0..<(1 + number(8))).map { _ in UInt8(number(256)) }, at: place)
    case 7:
      // A number becomes another one.
      if let digit = bytes[place...].firstIndex(where: { (0x30...0x39).contains($0) }) {
        bytes.replaceSubrange(digit...digit, with: Self.words[1 + number(7)])
      }
    default:
      let other = corpus.isEmpty ? [] : corpus[number(corpus.count)]
      let from = number(other.count)
      bytes.insert(contentsOf: other[from..<min(other.count, from + number(200))], at: place)
    }
    return bytes
  }
}
