import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorTransport

// What the loader asks for.
@_cdecl("salvor_plugin_abi") public func salvorPluginABI() -> UnsafeMutablePointer<CChar> { PluginABI.handshake() }
@_cdecl("salvor_plugin_modules") public func salvorPluginModules() -> UnsafeMutableRawPointer {
  PluginABI.modules([PatientRecovery.factory, PlainCoding.factory])
}

/// A strategy: a copy first, and a person decides.
public struct PatientRecovery: RecoveryStrategy {
  public let name = "patient"
  public let fallBack: String? = nil
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .untouched, clientOnlyTables: .untouched, settings: .untouched, needsServersConsent: false,
    survivesSchemaChange: true)

  public func plan(for incident: Incident) -> RecoveryDecision { .steps([.copy, .wait]) }

  static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .recoveryStrategy, name: "patient", summary: "A copy, and a person decides",
      guarantees: PatientRecovery().guarantees.phrases),
    product: (any RecoveryStrategy).self
  ) { _, _ in { PatientRecovery() } }
}

/// A coding: the bytes, with their number and a check sum before and behind them.
public struct PlainCoding: Compression {
  public let token = "x-plain"
  public func makeCompressor() throws -> any StreamCoder { Writer() }
  public func makeDecompressor() throws -> any StreamCoder { Reader() }

  static let factory = ModuleFactory(
    ModuleDescriptor(kind: .compression, name: "plain", summary: "Frames with a check sum, nothing smaller"),
    product: (any Compression).self
  ) { _, _ in { PlainCoding() } }

  /// FNV-1a.
  private static func sum(_ bytes: some Sequence<UInt8>, _ start: UInt32 = 0x811C_9DC5) -> UInt32 {
    bytes.reduce(start) { ($0 ^ UInt32($1)) &* 0x0100_0193 }
  }

  private static func bytes(_ number: UInt32) -> [UInt8] {
    (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
  }

  private final class Writer: StreamCoder {
    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
      let most = pieceBytesMax - 8
      for start in stride(from: 0, to: input.count, by: most) {
        let piece = Array(input[start..<min(start + most, input.count)])
        let head = PlainCoding.bytes(UInt32(piece.count))
        try output(head + piece + PlainCoding.bytes(PlainCoding.sum(head + piece)))
      }
    }
    func finish(output: ([UInt8]) throws -> Void) throws {
      let end = PlainCoding.bytes(0)
      try output(end + PlainCoding.bytes(PlainCoding.sum(end)))
    }
    func flush(output: ([UInt8]) throws -> Void) throws {}
  }

  private final class Reader: StreamCoder, @unchecked Sendable {
    private var rest: [UInt8] = []
    private var isAtEnd = false

    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
      if isAtEnd, !input.isEmpty { throw malformed("there is something behind its end") }
      rest += input
      var start = 0
      func number(_ place: Int) -> UInt32 { (0..<4).reduce(0) { $0 | UInt32(rest[place + $1]) << (8 * $1) } }
      while !isAtEnd, rest.count - start >= 4 {
        let count = Int(number(start))
        guard count <= pieceBytesMax else { throw malformed("a frame is too long") }
        guard rest.count - start >= count + 8 else { break }
        guard PlainCoding.sum(rest[start..<start + 4 + count]) == number(start + 4 + count) else {
          throw malformed("a check sum is wrong")
        }
        if count > 0 { try output(Array(rest[start + 4..<start + 4 + count])) } else { isAtEnd = true }
        start += count + 8
      }
      rest.removeFirst(start)
      if isAtEnd, !rest.isEmpty { throw malformed("there is something behind its end") }
    }

    func finish(output: ([UInt8]) throws -> Void) throws {
      if !isAtEnd { throw malformed("it was cut") }
    }
    func flush(output: ([UInt8]) throws -> Void) throws {}

    private func malformed(_ what: String) -> SalvorError {
      SalvorError(.malformed, "This is not coded as x-plain: \(what).")
    }
  }
}
