import SalvorModel

/// Bytes that are pulled, so that whoever reads sets the pace: a transport holds no more than one piece that nobody
/// has asked for.
public struct ByteStream: Sendable {
  /// The next piece, never empty; nil at the end. Called by one reader at a time; not called again after nil or an error.
  public let next: @Sendable () async throws -> [UInt8]?
  /// Called once when the reader is done with it, whether or not the end was reached.
  public let close: @Sendable () async -> Void

  /// - Parameter close: does nothing where it is left out.
  public init(
    next: @escaping @Sendable () async throws -> [UInt8]?, close: @escaping @Sendable () async -> Void = {}
  ) {
    self.next = next
    self.close = close
  }

  /// A body of no bytes.
  public static let empty = ByteStream(next: { nil })

  /// A body that is in memory: one piece, whatever its length. It can be read once.
  public static func bytes(_ bytes: [UInt8]) -> ByteStream {
    let box = OneShot(bytes.isEmpty ? nil : bytes)
    return ByteStream(next: { await box.take() })
  }

  /// Reads everything, at most `limit` bytes; more throws `too-large`.
  public func collect(upTo limit: Int) async throws -> [UInt8] {
    var all: [UInt8] = []
    do {
      while let piece = try await next() {
        guard all.count + piece.count <= limit else {
          throw SalvorError(.tooLarge, "A body is larger than \(limit) bytes.")
        }
        all += piece
      }
    } catch {
      await close()
      throw error
    }
    await close()
    return all
  }
}

private actor OneShot {
  private var value: [UInt8]?
  init(_ value: [UInt8]?) { self.value = value }
  func take() -> [UInt8]? {
    defer { value = nil }
    return value
  }
}

/// A request as both ends of a transport see it: HTTP's terms, whatever carries it. Header names are lower-case.
public struct TransportRequest: Sendable {
  /// In capitals: `GET`, `POST`.
  public var method: String
  /// With its query, starting with `/`.
  public var path: String
  /// By lower-case name; a name stands once.
  public var headers: [String: String]
  /// Streams: whoever handles the request reads it, as far as it wants.
  public var body: ByteStream
  /// The body's length where it is known beforehand.
  public var contentLength: Int?
  /// True where the caller is on the same machine or in the same process.
  public var peerIsLocal: Bool
  /// The caller's network address, for the log; nil where the transport has none.
  public var peer: String?

  /// No headers, an empty body of unknown length and a local caller, where nothing else is given.
  public init(
    method: String, path: String, headers: [String: String] = [:], body: ByteStream = .empty,
    contentLength: Int? = nil, peerIsLocal: Bool = true, peer: String? = nil
  ) {
    self.peer = peer
    self.method = method
    self.path = path
    self.headers = headers
    self.body = body
    self.contentLength = contentLength
    self.peerIsLocal = peerIsLocal
  }
}

/// The answer of a server, as both ends of a transport see it. Header names are lower-case.
public struct TransportResponse: Sendable {
  /// HTTP's status code, also for errors: a problem is a response like any other.
  public var status: Int
  /// By lower-case name; a name stands once.
  public var headers: [String: String]
  /// Streams. Whoever reads it closes it when done, read to its end or not: the exchange is over then.
  public var body: ByteStream
  /// The body's length where it is known beforehand.
  public var contentLength: Int?
  /// The same bytes as `body`, as a part of an open file, for a transport that has the system send them.
  public var file: FileBody?

  /// No headers, an empty body of unknown length and no file, where nothing else is given.
  public init(status: Int, headers: [String: String] = [:], body: ByteStream = .empty, contentLength: Int? = nil) {
    self.status = status
    self.headers = headers
    self.body = body
    self.contentLength = contentLength
  }
}

/// A part of an open file. A file that is removed meanwhile is sent to its end.
public final class FileBody: Sendable {
  /// Open as long as this is held.
  public let descriptor: Int32
  /// In bytes from the file's beginning.
  public let offset: Int64
  /// In bytes.
  public let count: Int64
  /// A transport calls it when it takes the file in the place of the body.
  public let isTaken: @Sendable () -> Void
  private let keeping: any Sendable

  /// - Parameter keeping: whoever closes the descriptor when nobody holds it any more.
  public init(
    descriptor: Int32, offset: Int64, count: Int64, keeping: any Sendable,
    isTaken: @escaping @Sendable () -> Void = {}
  ) {
    self.descriptor = descriptor
    self.offset = offset
    self.count = count
    self.keeping = keeping
    self.isTaken = isTaken
  }
}

/// What a server transport hands each request to. It never throws: an error is a response. The handler may answer
/// before it has read the body; the transport then closes the body.
public typealias TransportHandler = @Sendable (TransportRequest) async -> TransportResponse

/// The device's end of a transport. Contract: `ClientTransportContract`.
///
/// `send` returns when the response's head is there; the body streams. A cancelled task ends the exchange and throws
/// `cancelled`. Errors: `unreachable`, `timeout`, `cancelled`, `tooLarge`. It does not retry: the engine does, where
/// it is safe.
public protocol ClientTransport: Sendable {
  /// Sends a request, and returns when the response's head is there. May be called many times at once. Throws what
  /// the type lists.
  func send(_ request: TransportRequest) async throws -> TransportResponse
  /// Ends what is in flight and gives everything back. Safe twice.
  func close() async
}

/// A device's transport that fetches files from other addresses than the server's, as from a cache or an object store. A device
/// whose transport does not gets every file from the server itself.
public protocol FileFetchingTransport: ClientTransport {
  /// `GET` of an absolute URL, perhaps with a query, that is not of the server: nothing goes there but these headers, and no
  /// redirect is followed. Any status is an answer. Errors: those of `send`, `usage` where the address is none or a header is a
  /// credential, and `configuration` where the transport would not send its own server's rows in that way.
  func fetch(_ address: String, headers: [String: String]) async throws -> TransportResponse
}

/// The server's end of a transport. Contract: `ServerTransportContract`.
public protocol ServerTransport: Sendable {
  /// Listens, and hands each request to `handler`, many at once. Returns the URL under which a client reaches it.
  func start(handler: @escaping TransportHandler) async throws -> String
  /// Takes no new request, lets those in flight finish for `graceMilliseconds`, then ends them. Safe before `start`,
  /// twice and after a failed start.
  func stop(graceMilliseconds: Int64) async
}

/// A content coding (RFC 9110, 8.4.1) by its name in the headers. Contract: `CompressionContract`.
public protocol Compression: Sendable {
  /// The token of `Content-Encoding`, e.g. `gzip`.
  var token: String { get }
  /// A coder for one stream. Throws where the system gives no memory for it.
  func makeCompressor() throws -> any StreamCoder
  /// The same for a stream of exactly so many bytes, where that is known: a coding may write the number at the stream's
  /// beginning, and its coder throws `failed` at an end that comes elsewhere. Without one of its own: `makeCompressor()`.
  func makeCompressor(bytes: Int64?) throws -> any StreamCoder
  /// A decoder for one stream. Throws where the system gives no memory for it.
  func makeDecompressor() throws -> any StreamCoder
}

extension Compression {
  /// A coder that does not ask how long its stream is.
  public func makeCompressor(bytes: Int64?) throws -> any StreamCoder { try makeCompressor() }
}

/// One direction of one stream. Not shared between tasks.
public protocol StreamCoder: AnyObject, Sendable {
  /// Codes `input` whole and gives each piece of output, at most `pieceBytesMax` (64 KiB) long, to `output`, which may
  /// throw to end it (a size limit after decompression). Corrupt input throws `malformed`.
  func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws
  /// Ends the stream. Truncated input throws `malformed`.
  func finish(output: ([UInt8]) throws -> Void) throws
  /// Compression only: everything given so far can be read by the other end after this.
  func flush(output: ([UInt8]) throws -> Void) throws
}

/// The most bytes in a piece that a coder gives: 64 KiB. Other streams may have longer pieces.
public let pieceBytesMax = 64 << 10

/// Finds out who sends a request. Contract: `AuthenticationContract`.
public protocol Authentication: Sendable {
  /// Throws `unauthenticated` or `forbidden`, with a message that does not say which part was wrong.
  func authenticate(_ request: TransportRequest) async throws -> Principal
  /// The headers that a client with these credentials sends.
  func headers(credentials: [String: String]) throws -> [String: String]
  /// True where it believes what a caller says of itself: the host then refuses to listen beyond this machine.
  var isForLocalCallersOnly: Bool { get }
  /// Whom it lets in without a list of the values that the sync parameter of this name may take, as of now. They may
  /// give it any value (semantics 7); `salvor check` says so.
  func principals(withoutValuesOf parameter: String) -> UnlimitedPrincipals
  /// Whom it has lists of values for, as of now. `salvor check` looks through them.
  var listedPrincipals: [Principal] { get }
  /// A principal by its name, with its lists; nil: it is not known by its name alone. For who explains to a person what
  /// somebody may see; never to let anyone in.
  func principal(named name: String) -> Principal?
}

/// For whom the values of a sync parameter are not limited.
public enum UnlimitedPrincipals: Sendable, Hashable {
  /// Whoever is let in: it has no lists.
  case everybody
  /// The principals of these names, each once, who have credentials without a list; empty: all have one.
  case named([String])
}

extension Authentication {
  /// False where a module does not say otherwise: it checks what a caller shows.
  public var isForLocalCallersOnly: Bool { false }
  /// What does not say that it has lists counts as without.
  public func principals(withoutValuesOf parameter: String) -> UnlimitedPrincipals { .everybody }
  /// None where a module does not say otherwise.
  public var listedPrincipals: [Principal] { [] }
  /// Nil where a module does not say otherwise: principals are known by their credentials alone.
  public func principal(named name: String) -> Principal? { nil }
}
