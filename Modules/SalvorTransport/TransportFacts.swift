/// A server transport that knows who can reach it. The host asks `server as? any ListeningAddress`: authentication
/// `none` is for loopback only (interfaces.md), and one that does not say counts as reachable by everyone.
public protocol ListeningAddress: Sendable {
  /// True where only callers on the same machine, or in the same process, can reach the configured address.
  var isLoopback: Bool { get }
}

/// A client transport whose options say which content coding the client sends and asks for. The engine codes; the
/// transport carries bytes.
public protocol CompressionPreference: Sendable {
  /// The token of a compression module, e.g. `gzip` or `identity`.
  var preferredCompression: String { get }
}
