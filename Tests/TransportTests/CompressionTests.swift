import GzipCompression
import IdentityCompression
import SalvorContracts
import SalvorModel
import SalvorModuleKit
import SalvorTransport
import Testing
import ZstdCompression

/// One after the other: they compute for long, and the tests of transports need the other threads.
@Suite(.serialized) struct CompressionTests {
  @Test(arguments: CompressionContract.cases)
  func gzipKeeps(_ rule: ContractCase<any Compression>) async throws { try await rule.run(GzipCompression()) }

  @Test(arguments: CompressionContract.cases)
  func gzipOfTheLeastLevelKeeps(_ rule: ContractCase<any Compression>) async throws {
    try await rule.run(GzipCompression(level: 1))
  }

  @Test(arguments: CompressionContract.cases)
  func identityKeeps(_ rule: ContractCase<any Compression>) async throws { try await rule.run(IdentityCompression()) }

  @Test(arguments: CompressionContract.levels)
  func gzipKeepsItsLevels(_ rule: ContractCase<CompressionLevels>) async throws {
    try await rule.run(CompressionLevels(1...9) { GzipCompression(level: $0) })
    // One that ignores its level.
    await #expect(throws: ContractFailure.self) {
      try await rule.run(CompressionLevels(1...9) { _ in GzipCompression() })
    }
  }

  #if Zstd
    @Test("a zstd frame names the size of its content where that is told, and another size is an error")
    func zstdNamesItsSize() throws {
      let input = [UInt8](repeating: 7, count: 70_000)
      func frame(_ bytes: Int64?) throws -> [UInt8] {
        let coder = try ZstdCompression().makeCompressor(bytes: bytes)
        var coded: [UInt8] = []
        try coder.code(input) { coded += $0 }
        try coder.finish { coded += $0 }
        return coded
      }
      // RFC 8878, 3.1.1.1: magic number, descriptor, window where it is no single segment, size in as many bytes as its flag says.
      func size(_ frame: [UInt8]) -> Int? {
        let isOneSegment = frame[4] & 0x20 != 0
        let width = [isOneSegment ? 1 : 0, 2, 4, 8][Int(frame[4] >> 6)]
        guard width > 0 else { return nil }
        let first = isOneSegment ? 5 : 6
        let value = frame[first..<first + width].reversed().reduce(0) { $0 << 8 | Int($1) }
        return width == 2 ? value + 256 : value
      }
      #expect(size(try frame(70_000)) == 70_000)
      #expect(size(try frame(nil)) == nil)
      for wrong in [Int64(69_999), 70_001] {
        #expect(throws: SalvorError.self) { try frame(wrong) }
      }
    }

    @Test(arguments: CompressionContract.cases)
    func zstdKeeps(_ rule: ContractCase<any Compression>) async throws { try await rule.run(ZstdCompression()) }

    @Test(arguments: CompressionContract.levels)
    func zstdKeepsItsLevels(_ rule: ContractCase<CompressionLevels>) async throws {
      try await rule.run(CompressionLevels(1...9) { ZstdCompression(level: $0) })
    }
  #endif

  /// The case that was written for each fault.
  static let caught: [BrokenCompression.Fault: String] = [
    .wrongToken: "the token is a coding's name, and the bytes are what it says",
    .badToken: "the token is a coding's name, and the bytes are what it says",
    .leaks: "streams that have ended, or were dropped, give their memory back",
    .hugeWindow: "a stream takes memory by its window, not by what its bytes claim",
    .quadratic: "twice the bytes take twice the work",
  ]

  @Test("A coding with a fault breaks the case that was written for it", arguments: BrokenCompression.Fault.allCases)
  func catches(_ fault: BrokenCompression.Fault) async throws {
    let name = try #require(Self.caught[fault])
    let rule = try #require(CompressionContract.cases.first { $0.name == name })
    // What other tests of this process give back meanwhile may hide a leak.
    var isCaught = false
    for _ in 0..<5 where !isCaught {
      do {
        try await rule.run(BrokenCompression(GzipCompression(), fault))
      } catch is ContractFailure {
        isCaught = true
      }
    }
    #expect(isCaught)
    leakedStreams.withLock { $0 = [] }
  }

  @Test("A case that hangs fails when its time is over, and says which")
  func aHangingCaseEnds() async throws {
    let rule = ContractCase<Int>("never ends", rule: "none") { _ in try await Task.sleep(for: .seconds(3600)) }
    let failure = await #expect(throws: ContractFailure.self) {
      try await ContractPatience.$duration.withValue(.milliseconds(20)) {
        try await ContractPatience.$ofACase.withValue(.milliseconds(20)) { try await rule.run(1) }
      }
    }
    #expect(failure?.message.contains("never ends: did not end within") == true)
  }

  @Test("A case that takes more memory than it may fails where somebody looks, and says which")
  func aHoardingCaseFails() async throws {
    guard ContractMemory.now() != nil else { return }
    let rule = ContractCase<Int>("hoards", rule: "none") { _ in }
    // Tests beside this one take memory and give it back: a limit that no process keeps is the one that can be asked for here.
    let failure = await #expect(throws: ContractFailure.self) {
      try await ContractMemory.$ofACase.withValue(-(1 << 40)) { try await rule.run(1) }
    }
    #expect(failure?.message.contains("hoards: the process has") == true)
    try await rule.run(1)
  }

  @Test func severalMembersAreReadAsOne() async throws {
    let (one, two) = (Array("first ".utf8), Array("second".utf8))
    let coded = try await collect(one, as: GzipCompression()) + collect(two, as: GzipCompression())
    let stream = try ByteStream.bytes(coded).decompressed(by: GzipCompression(), limit: 1000)
    #expect(try await stream.collect(upTo: 1000) == one + two)
  }

  @Test func aCodedStreamComesThroughWhole() async throws {
    let source = Pieces(count: 100, bytes: 10_000)
    let stream = try source.stream.compressed(by: GzipCompression()).decompressed(by: GzipCompression(), limit: 2 << 20)
    let found = try await stream.collect(upTo: 2 << 20)
    #expect(found == (0..<100).flatMap { [UInt8](repeating: UInt8($0), count: 10_000) })
    #expect(source.closes == 1)
  }

  @Test func aBombIsTooLargeBeforeItIsThrough() async throws {
    let zeros = try await collect([UInt8](repeating: 0, count: 32 << 20), as: GzipCompression(level: 9))
    let stream = try ByteStream.bytes(zeros).decompressed(by: GzipCompression(), limit: 1 << 20)
    var count = 0
    await #expect(throws: SalvorError.self) {
      while let piece = try await stream.next() {
        count += piece.count
        #expect(piece.count <= pieceBytesMax)
      }
    }
    #expect(count <= 1 << 20)
  }

  @Test func theLimitIsForTheWholeBodyAndNotForASliceOfIt() async throws {
    // What does not compress: each slice of the coded bytes becomes as many bytes.
    let noise = SystemRandom().bytes(200_000)
    let coded = try await collect(noise, as: GzipCompression())
    let fits = try ByteStream.bytes(coded).decompressed(by: GzipCompression(), limit: 200_000)
    #expect(try await fits.collect(upTo: 1 << 30) == noise)
    for limit in [199_999, 100_000, 10_000] {
      let stream = try ByteStream.bytes(coded).decompressed(by: GzipCompression(), limit: limit)
      var count = 0
      let error = await #expect(throws: SalvorError.self) {
        while let piece = try await stream.next() { count += piece.count }
      }
      #expect(error?.code == .tooLarge)
      #expect(count <= limit)
    }
  }

  @Test func decodingPullsNoMoreThanItNeeds() async throws {
    let source = Pieces(count: 1000, bytes: 60_000)
    let stream = try source.stream.decompressed(by: IdentityCompression(), limit: 1 << 30)
    _ = try await stream.next()
    #expect(source.pulled == 1)
    await stream.close()
    await stream.close()
    #expect(source.closes == 1)
  }

  @Test func aSourceThatBreaksBreaksTheCodedStream() async throws {
    let broken = ByteStream(next: { throw SalvorError(.unreachable, "broken") })
    let stream = try broken.compressed(by: GzipCompression())
    await #expect(throws: SalvorError.self) { _ = try await stream.next() }
  }

  @Test func theLevelIsAnOption() throws {
    #expect(try make("{ level: 9 }").0 as? GzipCompression != nil)
    #expect((try make("{ level: 9 }").0 as? GzipCompression)?.level == 9)
    #expect((try make("{}").0 as? GzipCompression)?.level == GzipCompression.defaultLevel)
    #expect(try make("{ level: 10 }").1.map(\.path) == ["server.level"])
  }

  private func make(_ options: String) throws -> ((any Compression)?, [Diagnostic]) {
    var reader = OptionReader(try JSON5Reader.read(Array(options.utf8), file: "f"), file: "f", path: "server")
    let make = GzipCompression.factory.prepare(&reader, ModuleContext(), as: (any Compression).self)
    return (try make?(), reader.diagnostics)
  }

  private func collect(_ bytes: [UInt8], as compression: any Compression) async throws -> [UInt8] {
    try await ByteStream.bytes(bytes).compressed(by: compression).collect(upTo: 1 << 30)
  }
}

/// The suite is proved on gzip with one thing broken at a time.
@Suite struct CompressionContractProof {
  struct Double: Sendable, CustomStringConvertible {
    var description: String
    var breaks: String
    var encoding: @Sendable (any StreamCoder) -> any StreamCoder = { $0 }
    var decoding: @Sendable (any StreamCoder) -> any StreamCoder = { $0 }
  }

  static let doubles: [Double] = [
    Double(
      description: "loses the last byte", breaks: "what goes in comes out, at every size",
      decoding: { BrokenCoder($0, change: { Array($0.dropLast()) }) }),
    Double(
      description: "gives pieces of any size", breaks: "pieces are neither empty nor longer than 64 KiB",
      decoding: { BrokenCoder($0, gathers: true) }),
    Double(
      description: "forgets what it had between calls", breaks: "where the input is cut does not matter",
      decoding: { BrokenCoder($0, takesOneByte: false) }),
    Double(
      description: "ignores a truncation", breaks: "truncated bytes are malformed",
      decoding: { BrokenCoder($0, finishes: false) }),
    Double(
      description: "ignores a corruption", breaks: "corrupt bytes never become other bytes",
      decoding: { BrokenCoder($0, finishes: false, throwsErrors: false) }),
    Double(
      description: "ignores what follows", breaks: "bytes behind the end are malformed",
      decoding: { BrokenCoder($0, finishes: false, throwsErrors: false) }),
    Double(
      description: "does not flush", breaks: "after a flush the other end can read everything",
      encoding: { BrokenCoder($0, flushes: false) }),
    Double(
      description: "goes on when output throws", breaks: "output that throws ends it, long before a bomb is through",
      decoding: { BrokenCoder($0, gathers: true) }),
  ]

  @Test(arguments: doubles)
  func aBrokenCodingIsCaught(_ double: Double) async {
    let cases = CompressionContract.cases.filter { $0.name == double.breaks }
    #expect(cases.count == 1, "no case has the name \(double.breaks)")
    let broken = await brokenRules(cases) { DoubledCompression(double: double) as any Compression }
    #expect(broken == [double.breaks], "\(double) went unnoticed")
  }

  @Test func streamsThatShareACoderAreCaught() async {
    let name = "streams do not know of each other"
    let broken = await brokenRules(CompressionContract.cases.filter { $0.name == name }) {
      try SharingCompression() as any Compression
    }
    #expect(broken == [name])
  }
}

private struct DoubledCompression: Compression {
  var double: CompressionContractProof.Double
  var token: String { "gzip" }
  func makeCompressor() throws -> any StreamCoder { double.encoding(try GzipCompression().makeCompressor()) }
  func makeDecompressor() throws -> any StreamCoder { double.decoding(try GzipCompression().makeDecompressor()) }
}

private struct SharingCompression: Compression {
  let coder: any StreamCoder
  var token: String { "gzip" }
  init() throws { coder = try GzipCompression().makeCompressor() }
  func makeCompressor() throws -> any StreamCoder { coder }
  func makeDecompressor() throws -> any StreamCoder { try GzipCompression().makeDecompressor() }
}

private final class BrokenCoder: StreamCoder {
  let inner: any StreamCoder
  let change: @Sendable ([UInt8]) -> [UInt8]
  let gathers: Bool
  let takesOneByte: Bool
  let finishes: Bool
  let throwsErrors: Bool
  let flushes: Bool

  init(
    _ inner: any StreamCoder, change: @escaping @Sendable ([UInt8]) -> [UInt8] = { $0 }, gathers: Bool = false,
    takesOneByte: Bool = true, finishes: Bool = true, throwsErrors: Bool = true, flushes: Bool = true
  ) {
    self.inner = inner
    self.change = change
    self.gathers = gathers
    self.takesOneByte = takesOneByte
    self.finishes = finishes
    self.throwsErrors = throwsErrors
    self.flushes = flushes
  }

  func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
    if !takesOneByte, input.count == 1 { return }
    var gathered: [UInt8] = []
    do {
      try inner.code(input) { piece in
        if gathers { gathered += piece } else { try output(change(piece)) }
      }
    } catch {
      if throwsErrors { throw error }
    }
    if gathers { try output(gathered) }
  }

  func finish(output: ([UInt8]) throws -> Void) throws {
    if finishes { try inner.finish(output: output) }
  }

  func flush(output: ([UInt8]) throws -> Void) throws {
    if flushes { try inner.flush(output: output) }
  }
}

/// `count` pieces, each full of its number.
private final class Pieces: Sendable {
  private let state = Mutex((pulled: 0, closes: 0))
  let count: Int
  let bytes: Int

  init(count: Int, bytes: Int) {
    self.count = count
    self.bytes = bytes
  }

  var pulled: Int { state.withLock { $0.pulled } }
  var closes: Int { state.withLock { $0.closes } }

  var stream: ByteStream {
    ByteStream(
      next: { [self] in
        let number = state.withLock { state in
          state.pulled += 1
          return state.pulled - 1
        }
        return number < count ? [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: bytes) : nil
      }, close: { [self] in state.withLock { $0.closes += 1 } })
  }
}
