/// A server transport that knows who can reach it. The host asks `server as? any ListeningAddress`: authentication
/// `none` is for loopback only (interfaces.md), and one that does not say counts as reachable by everyone.
public protocol ListeningAddress: Sendable {
  /// True where only callers on the same machine, or in the same process, can reach the configured address.
  var isLoopback: Bool { get }
  /// Why others than this machine would be served in clear text, as the end of a sentence that begins with the option's
  /// name; nil: they are not, or the configuration says that they may be.
  var clearTextReach: String? { get }
}

extension ListeningAddress {
  /// Nil where a transport does not say otherwise.
  public var clearTextReach: String? { nil }
}

/// A server transport that can take renewed files (certificates) while it runs.
public protocol ReloadableTransport: Sendable {
  /// Errors: `configuration`; what was in force stays in force then.
  func reload() async throws
}

/// A server transport with certificates that end.
public protocol CertifiedTransport: ServerTransport {
  /// When the first of them ends, in milliseconds since 1970; nil: it has none, or it is not known. Reads files; may be asked
  /// before `start`. Errors: `configuration`.
  func certificateEnd() throws -> Int64?
}

/// Paths of health checks, which a transport answers however many connections there are.
public let healthCheckPaths: Set<String> = ["/healthz", "/readyz"]

/// A client transport whose options say which content coding the client sends and asks for. The engine codes; the
/// transport carries bytes.
public protocol CompressionPreference: Sendable {
  /// The token of a compression module, e.g. `gzip` or `identity`.
  var preferredCompression: String { get }
}
