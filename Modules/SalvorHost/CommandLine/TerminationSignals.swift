@preconcurrency import Dispatch
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// SIGTERM and SIGINT, waited for instead of dying of them. From `init` on none is lost: the handler writes into a pipe,
/// and what is in the pipe stays there until somebody reads it.
final class TerminationSignals: Sendable {
  private let source: any DispatchSourceRead
  private let stream: AsyncStream<Void>
  private let continuation: AsyncStream<Void>.Continuation

  /// One at a time in a process.
  ///
  /// - Parameter seconds: so long after the first signal the process ends, whatever it still does, with exit code 0: for
  ///   one whose files may be left at any moment. Nil: it ends when it wants to.
  init(endingWithinSeconds seconds: Int? = nil) {
    let (stream, continuation) = AsyncStream<Void>.makeStream()
    self.stream = stream
    self.continuation = continuation
    let queue = DispatchQueue(label: "salvor.signals")
    let reading = Self.openPipe()
    source = DispatchSource.makeReadSource(fileDescriptor: reading, queue: queue)
    source.setEventHandler {
      var bytes = [UInt8](repeating: 0, count: 16)
      guard read(reading, &bytes, bytes.count) > 0 else { return }
      continuation.yield()
      guard let seconds else { return }
      queue.asyncAfter(deadline: .now() + .seconds(seconds)) {
        logLine(
          "What was under way did not end within \(seconds) s and was left. Nothing that was acknowledged is lost.")
        _exit(0)
      }
    }
    source.resume()
    for number in [SIGTERM, SIGINT] {
      signal(number) { _ in
        // Nothing but this is allowed in a handler.
        let before = errno
        var byte: UInt8 = 1
        _ = write(signalPipe, &byte, 1)
        errno = before
      }
    }
  }

  /// The end to read from.
  private static func openPipe() -> Int32 {
    let ends = signalPipeEnds()
    signalPipe = ends[1]
    return ends[0]
  }

  /// As if a signal had come.
  func end() { continuation.yield() }

  func wait() async {
    for await _ in stream { return }
  }
}

/// A pipe that a handler of a signal may write to: reading end, writing end. It is closed in programs that are started.
func signalPipeEnds() -> [Int32] {
  var ends: [Int32] = [-1, -1]
  _ = pipe(&ends)
  for end in ends {
    _ = fcntl(end, F_SETFD, FD_CLOEXEC)
    _ = fcntl(end, F_SETFL, O_NONBLOCK)
  }
  return ends
}

/// The end that the handlers write to. Set before they are.
nonisolated(unsafe) private var signalPipe: Int32 = -1
