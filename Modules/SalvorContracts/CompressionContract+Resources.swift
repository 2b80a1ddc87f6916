import SalvorModel
import SalvorTransport

/// A coding with the levels that its options have.
public struct CompressionLevels: Sendable {
  /// The fastest level is the lower bound, the level that makes the fewest bytes the upper one.
  public var levels: ClosedRange<Int>
  /// Makes the coding with a level of `levels`. Decoders of every level must read what any level writes.
  public var make: @Sendable (Int) throws -> any Compression

  /// `make` is asked for the lowest and the highest level alone.
  public init(_ levels: ClosedRange<Int>, make: @escaping @Sendable (Int) throws -> any Compression) {
    self.levels = levels
    self.make = make
  }
}

extension CompressionContract {
  /// For codings that have levels: the best one must make less than the fastest one does.
  public static let levels: [ContractCase<CompressionLevels>] = [
    ContractCase("a higher level makes fewer bytes", rule: "CompressionLevels") { subject in
      let input = rows(6_000)
      let fast = try code(input, with: subject.make(subject.levels.lowerBound).makeCompressor())
      let small = try code(input, with: subject.make(subject.levels.upperBound).makeCompressor())
      try expect(
        small.count < fast.count,
        "level \(subject.levels.upperBound) makes \(small.count) bytes, level \(subject.levels.lowerBound) \(fast.count): the level is ignored"
      )
      let decoder = try subject.make(subject.levels.lowerBound).makeDecompressor()
      try expect(try code(small, with: decoder) == input, "a decoder of another level reads other bytes")
    }
  ]

  static let resourceCases: [ContractCase<any Compression>] = [
    ContractCase("the token is a coding's name, and the bytes are what it says", rule: "RFC 9110, 8.4.1") { subject in
      let token = subject.token
      try expect(
        !token.isEmpty && token.utf8.allSatisfy { (97...122).contains($0) || (48...57).contains($0) || $0 == 45 },
        "\"\(token)\" is no token of a coding: lower-case letters, digits and hyphens")
      let input = rows(300)
      let coded = try code(input, with: subject.makeCompressor())
      switch token {
      case "identity": try expect(coded == input, "identity changes bytes")
      case "gzip": try expect(coded.starts(with: [0x1F, 0x8B, 0x08]), "the bytes do not begin as RFC 1952 says")
      case "zstd": try expect(coded.starts(with: [0x28, 0xB5, 0x2F, 0xFD]), "the bytes do not begin as RFC 8878 says")
      default:
        let isGzip = coded.starts(with: [0x1F, 0x8B, 0x08])
        let isZstd = coded.starts(with: [0x28, 0xB5, 0x2F, 0xFD])
        try expect(!isGzip && !isZstd && coded != input, "the bytes are those of another coding than \"\(token)\"")
      }
    },
    ContractCase(
      "streams that have ended, or were dropped, give their memory back", rule: "Exchange.swift, StreamCoder"
    ) {
      subject in
      guard ContractMemory.now() != nil else { return }
      let input = rows(200)
      let coded = try code(input, with: subject.makeCompressor())
      // What another test of the process takes, it does not take in every round.
      var least = Int.max
      for _ in 0..<5 {
        let before = ContractMemory.now()?.residentBytes ?? 0
        for _ in 0..<50 {
          _ = try code(input, with: subject.makeCompressor())
          _ = try code(coded, with: subject.makeDecompressor())
          // Dropped in the middle.
          try subject.makeCompressor().code(input) { _ in }
          try subject.makeDecompressor().code(Array(coded.prefix(coded.count / 2))) { _ in }
        }
        least = min(least, (ContractMemory.now()?.residentBytes ?? 0) - before)
      }
      try expect(least < 8 << 20, "200 streams leave \(least >> 20) MiB behind, each time")
    },
    ContractCase(
      "a stream takes memory by its window, not by what its bytes claim", rule: "Exchange.swift, StreamCoder"
    ) {
      subject in
      guard ContractMemory.now() != nil else { return }
      let coded = try code(rows(20), with: subject.makeCompressor())
      var least = Int.max
      for _ in 0..<3 {
        let before = ContractMemory.now()?.addressBytes ?? 0
        let (coder, decoder) = (try subject.makeCompressor(), try subject.makeDecompressor())
        try coder.code(rows(20)) { _ in }
        try decoder.code(coded) { _ in }
        least = min(least, (ContractMemory.now()?.addressBytes ?? 0) - before)
        try? coder.finish { _ in }
        try? decoder.finish { _ in }
      }
      try expect(least < 256 << 20, "one stream each way takes \(least >> 20) MiB of addresses")
    },
    ContractCase("twice the bytes take twice the work", rule: "Exchange.swift, StreamCoder") { subject in
      func work(_ count: Int) throws -> Int64? {
        let input = rows(count)
        let coded = try code(input, with: subject.makeCompressor(), slices: 512)
        guard let start = ContractMemory.processorTime() else { return nil }
        _ = try code(input, with: subject.makeCompressor(), slices: 512)
        _ = try code(coded, with: subject.makeDecompressor(), slices: 512)
        return (ContractMemory.processorTime() ?? start) - start
      }
      // Of the processor's time, not the clock's; the best of some: a cache that another took does not count.
      var ratio = Double.infinity
      for _ in 0..<3 where ratio > 40 {
        guard let small = try work(250), let large = try work(4_000) else { return }
        ratio = min(ratio, Double(large) / Double(max(small, 1)))
      }
      try expect(ratio <= 40, "sixteen times the bytes take \(Int(ratio)) times the work")
    },
  ]
}
