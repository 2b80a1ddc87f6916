#if HTTPClient && (canImport(Darwin) || URLSESSION_TESTED)
  import Foundation
  import SalvorModel
  import SalvorTransport

  /// Writes a request's body into the stream that the session reads, on a thread of its own: the writes block.
  final class SessionUpload: @unchecked Sendable {
    let input: InputStream
    private let output: OutputStream
    private let source: ByteStream
    private let pump = Mutex<Task<Void, Never>?>(nil)
    private let queue = DispatchQueue(label: "salvor.upload")

    #if canImport(Darwin)
      init(_ source: ByteStream) {
        var input: InputStream?
        var output: OutputStream?
        Stream.getBoundStreams(withBufferSize: pieceBytesMax, inputStream: &input, outputStream: &output)
        self.input = input ?? InputStream(data: Data())
        self.output = output ?? OutputStream.toMemory()
        self.source = source
      }

      private func open() { output.open() }
      private func endReading() {}
    #else
      /// There are no bound streams: the two ends of a pipe, which the streams open by their names.
      private let ends: Mutex<[Int32]>

      init(_ source: ByteStream) {
        _ = signal(SIGPIPE, SIG_IGN)
        var ends: [Int32] = [-1, -1]
        _ = pipe(&ends)
        input = InputStream(fileAtPath: "/dev/fd/\(ends[0])") ?? InputStream(data: Data())
        output = OutputStream(toFileAtPath: "/dev/fd/\(ends[1])", append: true) ?? OutputStream.toMemory()
        self.ends = Mutex(ends)
        self.source = source
      }

      deinit { for place in [0, 1] { closeEnd(place) } }

      private func closeEnd(_ place: Int) {
        ends.withLock { ends in
          if ends[place] >= 0 { close(ends[place]) }
          ends[place] = -1
        }
      }

      private func open() {
        output.open()
        closeEnd(1)
      }

      private func endReading() { closeEnd(0) }
    #endif

    /// - Parameter onFailure: the source has failed, or the session reads no more. The stream is not closed then before `stop`.
    func start(_ onFailure: @escaping @Sendable (any Error) -> Void) {
      let task = Task { [self] in
        await opened()
        do {
          while let piece = try await source.next() { try await write(piece) }
          queue.async { self.output.close() }
        } catch {
          onFailure(error)
        }
        await source.close()
      }
      pump.withLock { $0 = task }
    }

    private func opened() async {
      await withCheckedContinuation { continuation in
        queue.async {
          self.open()
          continuation.resume()
        }
      }
    }

    /// Nothing was begun.
    func discard() async { await source.close() }

    func giveUp() { pump.withLock { $0 }?.cancel() }

    /// The session does not read any more.
    func stop() {
      giveUp()
      endReading()
      queue.async { self.output.close() }
    }

    private func write(_ piece: [UInt8]) async throws {
      try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
        queue.async {
          var offset = 0
          while offset < piece.count {
            let count = piece.withUnsafeBufferPointer { bytes in
              bytes.baseAddress.map { self.output.write($0 + offset, maxLength: piece.count - offset) } ?? -1
            }
            guard count > 0 else {
              return continuation.resume(
                throwing: SalvorError(.unreachable, "The connection ended before the whole body was sent."))
            }
            offset += count
          }
          continuation.resume()
        }
      }
    }
  }
#endif
