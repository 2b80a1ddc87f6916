import SalvorModel
import SalvorTransport

/// A coding with one deliberate fault, round one without. The suite must catch every one of them.
public struct BrokenCompression: Compression {
  /// What is wrong with the coding: one thing at a time.
  public enum Fault: String, Sendable, CaseIterable {
    /// Says that it is another coding.
    case wrongToken
    /// Its token is none.
    case badToken
    /// Nobody gets the memory of a stream back.
    case leaks
    /// Takes 600 MiB of addresses for a window, as a coding with one of 2 GiB would 2 GiB.
    case hugeWindow
    /// Looks at everything again with each piece.
    case quadratic
  }

  private let base: any Compression
  private let fault: Fault

  /// - Parameter base: gzip.
  public init(_ base: any Compression, _ fault: Fault) {
    self.base = base
    self.fault = fault
  }

  /// The base's, unless the fault is about the token: `wrongToken` says `br`, `badToken` what no header may hold.
  public var token: String {
    switch fault {
    case .wrongToken: "br"
    case .badToken: "GZip; q=1"
    default: base.token
    }
  }

  /// A stream of the base's. `leaks` puts 256 KiB into `leakedStreams`; `hugeWindow` takes 600 MiB of addresses.
  public func makeCompressor() throws -> any StreamCoder { BrokenCoder(try base.makeCompressor(), fault) }
  /// The same as for a compressor: the faults are about both directions.
  public func makeDecompressor() throws -> any StreamCoder { BrokenCoder(try base.makeDecompressor(), fault) }
}

/// What leaked streams have; a test gives it back.
public let leakedStreams = Mutex<[[UInt8]]>([])

private final class BrokenCoder: StreamCoder, @unchecked Sendable {
  private let base: any StreamCoder
  private let fault: BrokenCompression.Fault
  private var window: UnsafeMutableRawPointer?
  private var seen: [UInt8] = []
  private var sum: UInt64 = 0

  init(_ base: any StreamCoder, _ fault: BrokenCompression.Fault) {
    self.base = base
    self.fault = fault
    if fault == .leaks { leakedStreams.withLock { $0.append([UInt8](repeating: 1, count: 256 << 10)) } }
    if fault == .hugeWindow { window = .allocate(byteCount: 600 << 20, alignment: 16) }
  }

  deinit { window?.deallocate() }

  func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
    if fault == .quadratic {
      seen += input
      sum = seen.withUnsafeBufferPointer { bytes in
        var sum = sum
        for _ in 0..<4 { for byte in bytes { sum = sum &* 31 &+ UInt64(byte) } }
        return sum
      }
    }
    try base.code(input, output: output)
  }

  func finish(output: ([UInt8]) throws -> Void) throws { try base.finish(output: output) }
  func flush(output: ([UInt8]) throws -> Void) throws { try base.flush(output: output) }
}
