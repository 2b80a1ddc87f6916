import SalvorModel
import SalvorTransport

/// In which coding bodies are sent: `uploadCompression`, until the server has said that it takes a better one (RFC 7694), or that it
/// does not take this one: then as they are.
final class SendingCoding: Sendable {
  private struct Known {
    var taken: Set<String> = []
    /// Not even `uploadCompression`.
    var takesNone = false
  }
  private let known = Mutex(Known())

  /// What an answer's `accept-encoding` says.
  func note(_ header: String?, _ usual: (any Compression)?) {
    guard let header else { return }
    let tokens = header.split(separator: ",").map { $0.filter { $0 != " " }.lowercased() }
    known.withLock { known in
      known.taken = Set(tokens.prefix(32))
      known.takesNone = usual.map { !known.taken.contains($0.token) } ?? false
    }
  }

  /// The coding was refused. True: another one is left. Another server may stand behind the same address by now.
  func fallBack() -> Bool {
    known.withLock { known in
      defer { known = Known(taken: [], takesNone: known.taken.isEmpty || known.takesNone) }
      return !known.taken.isEmpty || !known.takesNone
    }
  }

  /// - Parameters:
  ///   - usual: what is sent to a server of which nothing is known; nil: bodies go as they are.
  ///   - compressions: those that this device has, the best first.
  func coding(_ usual: (any Compression)?, of compressions: [any Compression]) -> (any Compression)? {
    guard let usual else { return nil }
    let known = known.withLock { $0 }
    // A worse one is not taken up: it was not asked for to be sent.
    let better = compressions.prefix { $0.token != usual.token }
    return better.first { known.taken.contains($0.token) } ?? (known.takesNone ? nil : usual)
  }
}
