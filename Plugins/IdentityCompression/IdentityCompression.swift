import SalvorModuleKit
import SalvorTransport

/// The content coding `identity`: the bytes as they are.
public struct IdentityCompression: Compression {
  /// `identity`, as `Content-Encoding` names the coding.
  public var token: String { "identity" }
  /// The coding has no options.
  public init() {}

  /// The module `identity` of the kind compression. It takes no options.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .compression, name: "identity", summary: "No content coding: bytes as they are",
      guarantees: ["pieces of at most 64 KiB"]),
    product: (any Compression).self
  ) { _, _ in { IdentityCompression() } }

  /// A coder that hands on the bytes that it gets. Never throws.
  public func makeCompressor() throws -> any StreamCoder { IdentityCoder() }
  /// A decoder that hands on the bytes that it gets. Never throws.
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
