import SalvorModel
import SalvorTransport

/// What every content coding keeps (Exchange.swift, `Compression` and `StreamCoder`).
public enum CompressionContract {
  /// What passing does not prove: that nothing leaks in places that the samples do not reach, that other programs read what it
  /// writes (but for gzip and zstd, whose marks are looked at), how well it compresses.
  public static let unproven = [
    "leaks in ways that the samples do not go", "that other programs read it, beyond the marks of gzip and zstd",
    "how small it makes real data",
  ]

  /// One rule each, for any coding: what comes back, how pieces are cut, broken input, and what a stream costs.
  public static let cases: [ContractCase<any Compression>] = exchangeCases + resourceCases

  static let exchangeCases: [ContractCase<any Compression>] = [
    ContractCase("what goes in comes out, at every size", rule: "Exchange.swift, StreamCoder") { subject in
      for input in samples() {
        let coded = try code(input, with: subject.makeCompressor())
        let found = try code(coded, with: subject.makeDecompressor())
        try expect(found == input, "\(input.count) bytes came back as \(found.count) others")
      }
    },
    ContractCase("a stream whose length is told comes back, too", rule: "Exchange.swift, makeCompressor(bytes:)") {
      subject in
      for input in samples() {
        let coded = try code(input, with: subject.makeCompressor(bytes: Int64(input.count)))
        let found = try code(coded, with: subject.makeDecompressor())
        try expect(found == input, "\(input.count) bytes came back as \(found.count) others")
      }
    },
    ContractCase("pieces are neither empty nor longer than 64 KiB", rule: "Exchange.swift, pieceBytesMax") { subject in
      for input in samples() {
        let coded = try pieces(input, with: subject.makeCompressor())
        let found = try pieces(coded.flatMap { $0 }, with: subject.makeDecompressor())
        for piece in coded + found {
          try expect((1...pieceBytesMax).contains(piece.count), "a piece has \(piece.count) bytes")
        }
      }
    },
    ContractCase("where the input is cut does not matter", rule: "Exchange.swift, StreamCoder") { subject in
      let input = rows(6_000)
      let coded = try code(input, with: subject.makeCompressor())
      for size in [1, 7, 4096, 65_537] {
        let again = try code(input, with: subject.makeCompressor(), slices: size)
        try expect(try code(again, with: subject.makeDecompressor()) == input, "coded in slices of \(size)")
        try expect(try code(coded, with: subject.makeDecompressor(), slices: size) == input, "decoded in \(size)s")
      }
    },
    ContractCase("streams do not know of each other", rule: "Exchange.swift, StreamCoder: not shared") { subject in
      let (one, other) = (try subject.makeCompressor(), try subject.makeCompressor())
      var codedOne: [UInt8] = []
      var codedOther: [UInt8] = []
      for part in 0..<10 {
        try one.code(rows(50 + part)) { codedOne += $0 }
        try other.code(noise(500 + part)) { codedOther += $0 }
      }
      try one.finish { codedOne += $0 }
      try other.finish { codedOther += $0 }
      let found = (
        try code(codedOne, with: subject.makeDecompressor()), try code(codedOther, with: subject.makeDecompressor())
      )
      try expect(found.0 == (0..<10).flatMap { rows(50 + $0) }, "the first of two streams is not its own")
      try expect(found.1 == (0..<10).flatMap { noise(500 + $0) }, "the second of two streams is not its own")
    },
    ContractCase("after a flush the other end can read everything", rule: "Exchange.swift, flush") { subject in
      let (coder, decoder) = (try subject.makeCompressor(), try subject.makeDecompressor())
      var found: [UInt8] = []
      var given: [UInt8] = []
      for part in 1...5 {
        var coded: [UInt8] = []
        try coder.code(rows(part)) { coded += $0 }
        try coder.flush { coded += $0 }
        try decoder.code(coded) { found += $0 }
        given += rows(part)
        try expect(found == given, "after flush \(part), \(found.count) of \(given.count) bytes are readable")
      }
      var rest: [UInt8] = []
      try coder.finish { rest += $0 }
      try decoder.code(rest) { found += $0 }
      try decoder.finish { found += $0 }
      try expect(found == given, "the flushed stream ends with other bytes")
    },
    ContractCase("output that throws ends it, long before a bomb is through", rule: "Exchange.swift, code") { subject in
      let zeros = [UInt8](repeating: 0, count: 8 << 20)
      let coded = try code(zeros, with: subject.makeCompressor())
      let decoder = try subject.makeDecompressor()
      var total = 0
      try await expectError(.tooLarge, "decoding over a limit of 1 MiB") {
        try decoder.code(coded) { piece in
          total += piece.count
          if total > 1 << 20 { throw SalvorError(.tooLarge, "limit") }
        }
      }
      try expect(total <= (1 << 20) + pieceBytesMax, "output went on to \(total) bytes after it had thrown")
    },
    ContractCase("truncated bytes are malformed", rule: "Exchange.swift, finish") { subject in
      guard subject.token != "identity" else { return }
      let coded = try code(rows(300), with: subject.makeCompressor())
      for length in Set([0, 1, 5, coded.count / 2, coded.count - 1]) {
        try await expectError(.malformed, "\(length) of \(coded.count) bytes") {
          _ = try code(Array(coded.prefix(length)), with: subject.makeDecompressor())
        }
      }
    },
    ContractCase("corrupt bytes never become other bytes", rule: "Exchange.swift, code") { subject in
      guard subject.token != "identity" else { return }
      let input = rows(20)
      let coded = try code(input, with: subject.makeCompressor())
      for index in coded.indices {
        var corrupt = coded
        corrupt[index] ^= 0x41
        do {
          let found = try code(corrupt, with: subject.makeDecompressor())
          try expect(found == input, "byte \(index) changed: other bytes came out, and no error")
        } catch let error as SalvorError {
          try expectEqual(error.code, .malformed, "byte \(index) changed")
        }
      }
    },
    ContractCase("bytes behind the end are malformed", rule: "Exchange.swift, code") { subject in
      guard subject.token != "identity" else { return }
      let coded = try code(rows(20), with: subject.makeCompressor())
      for garbage in [[0], [0x1f], Array("garbage".utf8)] as [[UInt8]] {
        try await expectError(.malformed, "\(garbage.count) bytes behind the end") {
          _ = try code(coded + garbage, with: subject.makeDecompressor())
        }
      }
    },
  ]

  private static func samples() -> [[UInt8]] {
    [
      [], [7], rows(3), noise(pieceBytesMax - 1), noise(pieceBytesMax), noise(pieceBytesMax + 1), rows(6_000),
      noise(150_000),
    ]
  }

  static func pieces(_ input: [UInt8], with coder: any StreamCoder, slices: Int = 1 << 20) throws -> [[UInt8]] {
    var out: [[UInt8]] = []
    for start in stride(from: 0, to: input.count, by: slices) {
      try coder.code(Array(input[start..<min(start + slices, input.count)])) { out.append($0) }
    }
    try coder.finish { out.append($0) }
    return out
  }

  static func code(_ input: [UInt8], with coder: any StreamCoder, slices: Int = 1 << 20) throws -> [UInt8] {
    var out: [UInt8] = []
    for piece in try pieces(input, with: coder, slices: slices) { out += piece }
    return out
  }

  /// Like what travels: rows as JSON arrays.
  static func rows(_ count: Int) -> [UInt8] {
    var out: [UInt8] = []
    for row in 0..<count { out += "[\(row),\"establishment \(row % 97)\",null]\n".utf8 }
    return out
  }

  /// What cannot be compressed; the same at every call.
  static func noise(_ count: Int) -> [UInt8] {
    var state: UInt64 = 0x9E37_79B9_7F4A_7C15
    return (0..<count).map { _ in
      state ^= state << 13
      state ^= state >> 7
      state ^= state << 17
      return UInt8(truncatingIfNeeded: state >> 32)
    }
  }
}
