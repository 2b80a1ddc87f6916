#if HTTPClient && !canImport(Darwin)
  import CCurl
  import SalvorModel
  import SalvorTransport

  /// One exchange. What is marked so is used by the driver's thread only; the rest is behind locks.
  final class CurlTransfer: @unchecked Sendable {
    struct Head: Sendable {
      var status = 0
      var headers: [String: String] = [:]
      var contentLength: Int?
    }

    private enum HeadState {
      case pending
      case waiting(CheckedContinuation<Head, any Error>)
      case settled
      case failedBefore(any Error)
    }

    let method: String
    let server: HTTPServerURL
    let url: String
    let headers: [String: String]
    let body: UploadBody
    let responseBody: PieceSlot
    private let requestBody: PieceSlot
    private let driver: CurlDriver
    private let headState = Mutex(HeadState.pending)
    private let pump = Mutex<Task<Void, Never>?>(nil)
    /// libcurl is done with it: there is nothing to cancel, and no reason to wake the thread.
    private let isOver = Atomic(false)

    // The driver's thread only.
    var handle: UnsafeMutableRawPointer?
    var headerList: UnsafeMutablePointer<curl_slist>?
    private var head = Head()
    private var isHeadWhole = false
    private var isHeadGiven = false
    private var received = 0
    private var isReceivingPaused = false
    private var isSendingPaused = false
    private var upload: [UInt8] = []
    private var uploadOffset = 0
    /// What this side found wrong, which libcurl only knows as "aborted".
    private var ownError: (any Error)?
    var isTouched = false

    /// - Parameter url: the whole address, on `server`.
    init(_ driver: CurlDriver, request: TransportRequest, to server: HTTPServerURL, _ url: String, body: UploadBody) {
      self.server = server
      self.driver = driver
      self.method = request.method
      self.headers = request.headers
      self.url = url
      self.body = body
      let wake = WeakWake()
      responseBody = PieceSlot(onRoom: { wake.resume() })
      requestBody = PieceSlot(onPiece: { wake.resume() })
      wake.set(self)
    }

    // MARK: The caller's task

    func start() async throws -> Head {
      if case .stream(let stream, _) = body {
        pump.withLock { $0 = Task { [requestBody] in await requestBody.pump(stream) } }
      }
      return try await withCheckedThrowingContinuation { continuation in
        let failure = headState.withLock { state -> (any Error)? in
          if case .failedBefore(let error) = state { return error }
          state = .waiting(continuation)
          return nil
        }
        if let failure {
          continuation.resume(throwing: failure)
        } else {
          driver.submit(.start(self))
        }
      }
    }

    /// The caller wants no more: nothing happens where everything has come already.
    func cancel() {
      guard !isOver.load(ordering: .acquiring) else { return responseBody.discard() }
      settle(.failure(SalvorError(.cancelled, "The exchange was cancelled.")))
      driver.submit(.cancel(self))
    }

    func resume() { driver.submit(.resume(self)) }

    /// Tells the caller how it ended, or that the head is there. Only the first word counts.
    private func settle(_ result: Result<Head, any Error>) {
      let continuation = headState.withLock { state -> CheckedContinuation<Head, any Error>? in
        switch (state, result) {
        case (.waiting(let continuation), _):
          state = .settled
          return continuation
        case (.pending, .failure(let error)):
          state = .failedBefore(error)
          return nil
        default: return nil
        }
      }
      continuation?.resume(with: result)
      if case .failure(let error) = result {
        responseBody.fail(error)
        requestBody.fail(error)
        pump.withLock { $0 }?.cancel()
      }
    }

    // MARK: The driver's thread

    /// Gives on what the last round of libcurl brought: in one go, so that the caller wakes once.
    func flush() {
      if isHeadWhole, !isHeadGiven {
        isHeadGiven = true
        settle(.success(head))
      }
      responseBody.flush()
    }

    /// The transfer is over and its handle is about to be taken away.
    func finish(_ code: CURLcode, label: String) {
      isOver.store(true, ordering: .releasing)
      let isWhole =
        code == CURLE_OK
        // The server answered and hung up before it had read all: its answer is whole, and it is what counts.
        || (isHeadWhole && head.contentLength == received && ownError == nil
          && (code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR))
      if isWhole, isHeadWhole {
        responseBody.finish()
        flush()
        requestBody.fail(SalvorError(.cancelled, "The server answered before it had read the whole body."))
        pump.withLock { $0 }?.cancel()
      } else {
        let error = ownError ?? curlError(code, label: label)
        if isHeadWhole { flush() }
        settle(.failure(error))
      }
    }

    func fail(_ error: SalvorError) { settle(.failure(error)) }

    func unpause() {
      guard let handle, isReceivingPaused || isSendingPaused else { return }
      isReceivingPaused = false
      isSendingPaused = false
      curl_easy_pause(handle, 0)
    }

    func takeHeader(_ line: UnsafeRawBufferPointer) -> Int {
      driver.touch(self)
      guard !isHeadWhole else { return line.count }
      let text = String(decoding: line, as: UTF8.self).trimmingLineEnd()
      if text.hasPrefix("HTTP/") {
        let parts = text.split(separator: " ", maxSplits: 2)
        head = Head(status: parts.count > 1 ? Int(parts[1]) ?? 0 : 0)
      } else if text.isEmpty {
        // 100 and its like come before the real one.
        isHeadWhole = head.status >= 200
        if head.headers["transfer-encoding"] == nil {
          head.contentLength = head.headers["content-length"].flatMap { Int($0) }
        }
      } else if let colon = text.firstIndex(of: ":") {
        let name = text[..<colon].lowercased()
        let value = text[text.index(after: colon)...].trimmingBlanks()
        head.headers[name] = head.headers[name].map { $0 + ", " + value } ?? value
      }
      return line.count
    }

    func takeBody(_ bytes: UnsafeRawBufferPointer) -> Int {
      driver.touch(self)
      let limit = driver.responseBytesMax
      // An event stream has no end, and so no length to limit.
      if received + bytes.count > limit, head.headers["content-type"]?.hasPrefix("text/event-stream") != true {
        ownError = SalvorError(
          .tooLarge, "The server's answer is larger than \(limit) bytes. Raise downloadBytesMax, or ask for less.",
          context: ["limit": "\(limit)"])
        return 0
      }
      do {
        guard try responseBody.offer(bytes) else {
          isReceivingPaused = true
          return Int(CURL_WRITEFUNC_PAUSE)
        }
      } catch {
        ownError = error
        return 0
      }
      received += bytes.count
      return bytes.count
    }

    func giveBody(_ buffer: UnsafeMutableRawBufferPointer) -> Int {
      if uploadOffset == upload.count {
        switch requestBody.poll() {
        case .piece(let piece): (upload, uploadOffset) = (piece, 0)
        case .end: return 0
        case .failed(let error):
          ownError = error
          return Int(CURL_READFUNC_ABORT)
        case .nothing:
          isSendingPaused = true
          return Int(CURL_READFUNC_PAUSE)
        }
      }
      let count = min(buffer.count, upload.count - uploadOffset)
      upload.withUnsafeBytes { bytes in
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[uploadOffset..<(uploadOffset + count)]))
      }
      uploadOffset += count
      return count
    }
  }

  /// The slots' way back to their transfer, which owns them.
  private final class WeakWake: Sendable {
    private struct Reference: @unchecked Sendable { weak var transfer: CurlTransfer? }
    private let reference = Mutex(Reference())
    func set(_ transfer: CurlTransfer) { reference.withLock { $0.transfer = transfer } }
    func resume() { reference.withLock { $0.transfer }?.resume() }
  }

  extension StringProtocol {
    fileprivate func trimmingLineEnd() -> String {
      var rest = self[...]
      while let last = rest.last, last.isNewline { rest = rest.dropLast() }
      return String(rest)
    }

    fileprivate func trimmingBlanks() -> String {
      var rest = self.drop { $0 == " " || $0 == "\t" }
      while let last = rest.last, last == " " || last == "\t" { rest = rest.dropLast() }
      return String(rest)
    }
  }

  /// libcurl's result in the catalogue's terms. The message names host and port, never a path or a header.
  func curlError(_ code: CURLcode, label: String) -> SalvorError {
    let why = String(cString: curl_easy_strerror(code))
    let context = ["server": label]
    switch code {
    case CURLE_OPERATION_TIMEDOUT:
      return SalvorError(
        .timeout, "The server at \(label) did not answer in time. Check the network, and try again.", context: context)
    case CURLE_FILESIZE_EXCEEDED:
      return SalvorError(
        .tooLarge, "The answer of the server at \(label) is too large. Raise downloadBytesMax, or ask for less.",
        context: context)
    case CURLE_ABORTED_BY_CALLBACK:
      return SalvorError(.cancelled, "The exchange with \(label) was cancelled.", context: context)
    case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CONNECT_ERROR, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CERTPROBLEM:
      return SalvorError(
        .unreachable, "No TLS with the server at \(label): \(why). Check its certificate, and caFile.", context: context
      )
    case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT:
      return SalvorError(
        .unreachable, "The server at \(label) cannot be reached: \(why). Check that it runs, and the url.",
        context: context)
    case CURLE_OUT_OF_MEMORY, CURLE_FAILED_INIT, CURLE_BAD_FUNCTION_ARGUMENT, CURLE_URL_MALFORMAT:
      return SalvorError(.failed, "libcurl cannot make the request to \(label): \(why).", context: context)
    default:
      return SalvorError(
        .unreachable, "The connection with the server at \(label) broke: \(why). Try again.", context: context)
    }
  }
#endif
