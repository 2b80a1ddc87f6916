import SalvorModel
import SalvorTransport

/// In which coding bodies are sent: `uploadCompression`, until the server has said that it takes a better one (RFC 7694).
final class SendingCoding: Sendable {
  private let taken = Mutex<Set<String>>([])

  /// What an answer's `accept-encoding` says.
  func note(_ header: String?) {
    guard let header else { return }
    let tokens = header.split(separator: ",").map { $0.filter { $0 != " " }.lowercased() }
    taken.withLock { $0 = Set(tokens.prefix(32)) }
  }

  /// True: there was something to forget. Another server may stand behind the same address by now.
  func forget() -> Bool {
    taken.withLock { taken in
      defer { taken = [] }
      return !taken.isEmpty
    }
  }

  /// - Parameters:
  ///   - known: what is sent to a server of which nothing is known; nil: bodies go as they are.
  ///   - compressions: those that this device has, the best first.
  func coding(_ known: (any Compression)?, of compressions: [any Compression]) -> (any Compression)? {
    guard let known else { return nil }
    let taken = taken.withLock { $0 }
    // A worse one is not taken up: it was not asked for to be sent.
    let better = compressions.prefix { $0.token != known.token }
    return better.first { taken.contains($0.token) } ?? known
  }
}
