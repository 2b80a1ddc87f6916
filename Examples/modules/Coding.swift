import SalvorModules

/// A content coding: each byte turned, in frames of a length, so many bytes and a check sum: what was cut or damaged is found.
struct TurnedBytes: Compression {
  let token = "x-framed"
  func makeCompressor() throws -> any StreamCoder { Writer() }
  func makeDecompressor() throws -> any StreamCoder { Reader() }

  /// FNV-1a, in four bytes.
  private static func sum(_ bytes: some Sequence<UInt8>) -> [UInt8] {
    let sum = bytes.reduce(UInt32(0x811C_9DC5)) { ($0 ^ UInt32($1)) &* 0x0100_0193 }
    return (0..<4).map { UInt8(truncatingIfNeeded: sum >> (8 * $0)) }
  }

  private final class Writer: StreamCoder {
    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
      for start in stride(from: 0, to: input.count, by: 255) {
        let piece = input[start..<min(start + 255, input.count)]
        let frame = [UInt8(piece.count)] + piece.map { ~$0 }
        try output(frame + TurnedBytes.sum(frame))
      }
    }
    func finish(output: ([UInt8]) throws -> Void) throws { try output([0] + TurnedBytes.sum([0])) }
    func flush(output: ([UInt8]) throws -> Void) throws {}
  }

  private final class Reader: StreamCoder, @unchecked Sendable {
    /// A frame that is not there whole yet.
    private var rest: [UInt8] = []
    private var isAtEnd = false

    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
      rest += input
      var start = 0
      while !isAtEnd, start < rest.count {
        let end = start + 1 + Int(rest[start])
        guard rest.count >= end + 4 else { break }
        guard TurnedBytes.sum(rest[start..<end]) == Array(rest[end..<end + 4]) else {
          throw SalvorError(.malformed, "A body in x-framed is damaged.")
        }
        if end == start + 1 { isAtEnd = true } else { try output(rest[(start + 1)..<end].map { ~$0 }) }
        start = end + 4
      }
      rest.removeFirst(start)
      if isAtEnd, !rest.isEmpty { throw SalvorError(.malformed, "Something follows the end of x-framed.") }
    }
    func finish(output: ([UInt8]) throws -> Void) throws {
      if !isAtEnd { throw SalvorError(.malformed, "A body in x-framed was cut.") }
    }
    func flush(output: ([UInt8]) throws -> Void) throws {}
  }

  static let factory = ModuleFactory(
    ModuleDescriptor(kind: .compression, name: "framed", summary: "Bytes turned, in frames."),
    product: (any Compression).self
  ) { _, _ in { TurnedBytes() } }
}
