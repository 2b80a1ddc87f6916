import SalvorModel

/// What happened in a simulation, line by line, and a digest of it: the same seed gives the same digest.
public final class Trace: Sendable {
  private struct State {
    var digest: UInt64 = 0xCBF2_9CE4_8422_2325
    var lines: [String] = []
  }

  private let state = Mutex(State())
  private let keepsLines: Bool
  private let tell: (@Sendable (String) -> Void)?

  /// - Parameters:
  ///   - keepsLines: false: the digest alone.
  ///   - tell: is given each line as it comes.
  public init(keepsLines: Bool = false, tell: (@Sendable (String) -> Void)? = nil) {
    self.keepsLines = keepsLines
    self.tell = tell
  }

  /// Adds a line: to the digest, to `lines` where they are kept, and tells it. May be called from any thread.
  public func add(_ line: String) {
    state.withLock { state in
      for byte in line.utf8 { state.digest = (state.digest ^ UInt64(byte)) &* 0x100_0000_01B3 }
      state.digest = (state.digest ^ 0x0A) &* 0x100_0000_01B3
      if keepsLines { state.lines.append(line) }
    }
    tell?(line)
  }

  /// Tells a line that is not part of the trace: for who looks on.
  public func remark(_ line: String) { tell?(line) }

  /// Every line so far, in order; empty where lines are not kept.
  public var lines: [String] { state.withLock { $0.lines } }

  /// Of all lines so far: 16 hexadecimal digits (FNV-1a of 64 bits), each line with its line end.
  public var digest: String {
    let text = String(state.withLock { $0.digest }, radix: 16)
    return String(repeating: "0", count: 16 - text.count) + text
  }
}
