import SalvorModel
import SalvorStorage

/// How the doubles falsify payloads: line by line, as text.
extension [UInt8] {
  func lines(where isKept: (String) -> Bool) -> [UInt8] {
    split(separator: 0x0A).filter { isKept(String(decoding: $0, as: UTF8.self)) }.flatMap { $0 + [0x0A] }
  }

  func mapLines(_ change: (String) -> String) -> [UInt8] {
    split(separator: 0x0A).flatMap { Array(change(String(decoding: $0, as: UTF8.self)).utf8) + [0x0A] }
  }

  /// The lines of each table stay together; the tables come the other way round.
  func tablesReversed() -> [UInt8] {
    var head: [[UInt8]] = []
    var tables: [[[UInt8]]] = []
    for line in split(separator: 0x0A).map(Array.init) {
      if line.starts(with: Array("{\"table\":".utf8)) { tables.append([]) }
      if tables.isEmpty { head.append(line) } else { tables[tables.count - 1].append(line) }
    }
    return (head + tables.reversed().flatMap { $0 }).flatMap { $0 + [0x0A] }
  }
}

extension String {
  /// The first whole number that follows `mark` becomes another.
  func replacingNumber(after mark: String, with number: Int64) -> String {
    guard let range = self.firstRange(of: mark) else { return self }
    let rest = self[range.upperBound...]
    return self[..<range.upperBound] + "\(number)" + rest.drop { $0.isNumber }
  }

  /// Integers beyond 2^53 lose what a double does not hold.
  func roundingBigIntegers() -> String {
    let mark = "{\"integer\":\""
    var text = ""
    var rest = self[...]
    while let range = rest.firstRange(of: mark), let end = rest[range.upperBound...].firstIndex(of: "\"") {
      let number = Double(rest[range.upperBound..<end]) ?? 0
      text += rest[..<range.lowerBound] + mark + "\(Int64(exactly: number) ?? Int64.max - 1)"
      rest = rest[end...]
    }
    return text + rest
  }
}

extension UploadChunk {
  func with(bytes: [UInt8]) -> UploadChunk {
    var chunk = self
    chunk.bytes = bytes
    return chunk
  }

  /// The same changes under request IDs never seen.
  func restamped() -> UploadChunk {
    let stamp = RequestStamp(from: SystemRandom())
    return with(
      bytes: bytes.mapLines { line in line.hasPrefix("{\"stamp\":") ? "{\"stamp\":\"\(stamp)\"}" : line })
  }
}
