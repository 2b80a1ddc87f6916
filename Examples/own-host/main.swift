import SalvorHost
import SalvorHostCommands
import SalvorModules
import StandardModules

/// Bytes as they are, each with its bits turned: a coding of one's own, in the shortest form.
struct TurnedBits: Compression {
  let token = "x-turned"
  func makeCompressor() throws -> any StreamCoder { Turner() }
  func makeDecompressor() throws -> any StreamCoder { Turner() }

  final class Turner: StreamCoder {
    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
      for start in stride(from: 0, to: input.count, by: pieceBytesMax) {
        try output(input[start..<min(start + pieceBytesMax, input.count)].map { ~$0 })
      }
    }
    func finish(output: ([UInt8]) throws -> Void) throws {}
    func flush(output: ([UInt8]) throws -> Void) throws {}
  }

  static let factory = ModuleFactory(
    ModuleDescriptor(kind: .compression, name: "turned", summary: "Each bit turned"),
    product: (any Compression).self
  ) { _, _ in { TurnedBits() } }
}

await Tool.run(modules: StandardModules.all + [TurnedBits.factory], commands: HostCommands.all)
