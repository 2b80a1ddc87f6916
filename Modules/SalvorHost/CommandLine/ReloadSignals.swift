@preconcurrency import Dispatch

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Each SIGHUP, from `init` on: the configuration is to be read again. The signal ends the process no more.
final class ReloadSignals: Sendable {
  private let source: any DispatchSourceSignal
  private let stream: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  init() {
    // Several that come while one is worked on are one.
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    self.stream = stream
    self.continuation = continuation
    signal(SIGHUP, SIG_IGN)
    source = DispatchSource.makeSignalSource(signal: SIGHUP, queue: DispatchQueue(label: "salvor.reload"))
    source.setEventHandler { continuation.yield() }
    source.resume()
  }

  /// Calls `body` for each, until the task is cancelled.
  func forEach(_ body: () async -> Void) async { for await _ in stream { await body() } }
}
