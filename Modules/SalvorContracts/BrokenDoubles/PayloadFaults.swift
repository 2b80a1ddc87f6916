import SalvorModel
import SalvorStorage
import SalvorWire

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

extension LostVersion {
  fileprivate init(json: [JSONValue]) {
    self.init(
      incarnation: IncarnationID(unchecked: ""), number: json[1].integer ?? 0, parting: json[2].integer ?? 0)
  }

  init(_ version: LostVersion, number: Int64) {
    self.init(incarnation: version.incarnation, number: number, parting: version.parting)
  }
}

extension UploadChunk {
  /// Offers of other versions of the same incarnations.
  func mapOffers(_ change: (LostVersion) -> LostVersion) -> UploadChunk {
    mapOfferLines { of in
      let version = change(LostVersion(json: of))
      return [of[0], .integer(version.number), .integer(version.parting)]
    }
  }

  /// The incarnations of its offers lived in the opposite order.
  func withLostBackwards() -> UploadChunk {
    var count: Int64 = 0
    let chunk = with(
      bytes: bytes.mapLines { line in
        guard let json = try? JSONValue(parsing: Array(line.utf8)), let lost = json["lost"]?.array else { return line }
        count = Int64(lost.count)
        return JSONValue.object([.init("lost", .array(lost.reversed()))]).text
      })
    return chunk.mapOfferLines { of in [.integer(count - 1 - (of[0].integer ?? 0)), of[1], of[2]] }
  }

  /// Its offers are offers in every column.
  func withoutWritten() -> UploadChunk {
    with(
      bytes: bytes.mapLines { line in
        guard line.hasPrefix("{\"offer\":"), let members = (try? JSONValue(parsing: Array(line.utf8)))?.members else {
          return line
        }
        return JSONValue.object(members.filter { $0.key != "written" }).text
      })
  }

  private func mapOfferLines(_ change: ([JSONValue]) -> [JSONValue]) -> UploadChunk {
    with(
      bytes: bytes.mapLines { line in
        guard line.hasPrefix("{\"offer\":"), let json = try? JSONValue(parsing: Array(line.utf8)),
          let members = json.members, let of = json["of"]?.array, of.count == 3
        else { return line }
        return JSONValue.object(
          members.map { $0.key == "of" ? JSONValue.Member("of", .array(change(of))) : $0 }
        ).text
      })
  }
}
