@preconcurrency import Dispatch

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Each SIGHUP, from `init` on: the configuration is to be read again. The signal ends the process no more.
final class ReloadSignals: Sendable {
  private let source: any DispatchSourceRead
  private let stream: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  init() {
    // Several that come while one is worked on are one.
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    self.stream = stream
    self.continuation = continuation
    // A pipe, as for SIGTERM: whether a source of signals hears one depends on which thread has it blocked.
    let ends = signalPipeEnds()
    reloadPipe = ends[1]
    let reading = ends[0]
    source = DispatchSource.makeReadSource(fileDescriptor: reading, queue: DispatchQueue(label: "salvor.reload"))
    source.setEventHandler {
      var bytes = [UInt8](repeating: 0, count: 16)
      if read(reading, &bytes, bytes.count) > 0 { continuation.yield() }
    }
    source.resume()
    signal(SIGHUP) { _ in
      let before = errno
      var byte: UInt8 = 1
      _ = write(reloadPipe, &byte, 1)
      errno = before
    }
  }

  /// Calls `body` for each, until the task is cancelled.
  func forEach(_ body: () async -> Void) async { for await _ in stream { await body() } }
}

/// The end that the handler writes to. Set before it is.
nonisolated(unsafe) private var reloadPipe: Int32 = -1
