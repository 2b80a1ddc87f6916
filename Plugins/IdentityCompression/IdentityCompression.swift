import SalvorModuleKit
import SalvorTransport

/// The content coding `identity`: the bytes as they are.
public struct IdentityCompression: Compression {
  public var token: String { "identity" }
  public init() {}

  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .compression, name: "identity", summary: "No content coding: bytes as they are",
      guarantees: ["pieces of at most 64 KiB"]),
    product: (any Compression).self
  ) { _, _ in { IdentityCompression() } }

  public func makeCompressor() throws -> any StreamCoder { IdentityCoder() }
  public func makeDecompressor() throws -> any StreamCoder { IdentityCoder() }
}

private final class IdentityCoder: StreamCoder {
  func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
    if input.count <= pieceBytesMax {
      if !input.isEmpty { try output(input) }
      return
    }
    for start in stride(from: 0, to: input.count, by: pieceBytesMax) {
      try output(Array(input[start..<min(start + pieceBytesMax, input.count)]))
    }
  }

  func finish(output: ([UInt8]) throws -> Void) throws {}
  func flush(output: ([UInt8]) throws -> Void) throws {}
}
