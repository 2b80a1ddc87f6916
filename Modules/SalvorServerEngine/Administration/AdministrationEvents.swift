import SalvorModel
import SalvorTransport
import SalvorWire

/// `GET /admin/v1/events`: what happens on the server, for consoles. Server-sent events, one JSON object each: `act`,
/// `recovery`, `recovered`, `reset`, `rewind`, `login-refused`, `upload-refused`. Nobody is waited for: a listener that does
/// not read loses the oldest.
final class AdministrationEvents: Sendable {
  private static let listenersMax = 16
  private static let bufferedMax = 256
  private static let keepAliveMilliseconds: Int64 = 15_000

  private struct State {
    var last = 0
    var listeners: [Int: AsyncStream<String>.Continuation] = [:]
    var isStopped = false
  }

  private let state = Mutex(State())
  private let clock: any Clock

  init(clock: any Clock) { self.clock = clock }

  var count: Int { state.withLock { $0.listeners.count } }

  func send(_ name: String, _ members: KeyValuePairs<String, String?>) {
    let listeners = state.withLock { Array($0.listeners.values) }
    guard !listeners.isEmpty else { return }
    let object = JSONValue.object(
      [.init("time", .integer(clock.now()))]
        + members.compactMap { member in member.value.map { .init(member.key, .string($0)) } })
    for listener in listeners { listener.yield("event: \(name)\ndata: \(object.text)\n\n") }
  }

  func stop() {
    let listeners = state.withLock { state in
      state.isStopped = true
      defer { state.listeners = [:] }
      return Array(state.listeners.values)
    }
    for listener in listeners { listener.finish() }
  }

  func listen() throws -> ByteStream {
    let (stream, continuation) = AsyncStream.makeStream(
      of: String.self, bufferingPolicy: .bufferingNewest(Self.bufferedMax))
    let number = try state.withLock { state in
      guard !state.isStopped, state.listeners.count < Self.listenersMax else {
        throw SalvorError(
          .tooManyListeners, "\(Self.listenersMax) consoles listen to this server's events already. End one of them.")
      }
      state.last += 1
      state.listeners[state.last] = continuation
      return state.last
    }
    continuation.yield(": listening\n\n")
    let clock = clock
    let keepAlive = Task {
      while !Task.isCancelled {
        do { try await clock.sleep(milliseconds: Self.keepAliveMilliseconds) } catch { return }
        continuation.yield(": still here\n\n")
      }
    }
    let reader = StreamReader(stream)
    return ByteStream(
      next: { await reader.next().map { Array($0.utf8) } },
      close: { [self] in
        keepAlive.cancel()
        continuation.finish()
        state.withLock { $0.listeners[number] = nil }
      })
  }
}

/// One reader of a stream, from wherever it is called.
private final class StreamReader: @unchecked Sendable {
  // Used by one reader at a time (`ByteStream.next`).
  private var iterator: AsyncStream<String>.Iterator
  init(_ stream: AsyncStream<String>) { iterator = stream.makeAsyncIterator() }
  func next() async -> String? { await iterator.next() }
}
