#if HTTPClient && (canImport(Darwin) || URLSESSION_TESTED)
  import Foundation
  #if canImport(FoundationNetworking)
    import FoundationNetworking
  #endif
  import SalvorModel
  import SalvorTransport

  /// The transport is the system's own: there is no library to name.
  let httpLibrary: [String: String] = [:]

  /// HTTP by URLSession, on Apple's systems. On Linux it is compiled into its tests alone (Tests/URLSessionTests).
  ///
  /// A response streams with back-pressure (the task is suspended while its piece is not taken). A request's body goes
  /// through a bound stream pair of one piece.
  public final class HTTPClientTransport: ClientTransport, CompressionPreference {
    private let options: HTTPClientOptions
    private let responseBytesMax: Int
    private let session: URLSession
    private let router = SessionRouter()

    public var preferredCompression: String { options.compression }

    /// Opens nothing yet. Errors: `configuration` where `caFile` is named: add the authority to the key chain.
    public init(_ options: HTTPClientOptions, limits: Limits = Limits()) throws {
      guard options.caFile == nil else {
        throw SalvorError(
          .configuration, "caFile cannot be used on this system. Add the authority to its key chain, and drop caFile.")
      }
      self.options = options
      responseBytesMax = limits.downloadBytesMax
      let configuration = URLSessionConfiguration.ephemeral
      configuration.timeoutIntervalForRequest = TimeInterval(options.idleTimeoutSeconds)
      configuration.httpShouldSetCookies = false
      configuration.urlCache = nil
      #if canImport(Darwin)
        configuration.tlsMinimumSupportedProtocolVersion = .TLSv12
      #endif
      session = URLSession(configuration: configuration, delegate: router, delegateQueue: nil)
    }

    deinit { session.invalidateAndCancel() }

    public func close() async { session.invalidateAndCancel() }

    public func send(_ request: TransportRequest) async throws -> TransportResponse {
      do {
        try options.check(request)
      } catch {
        await request.body.close()
        throw error
      }
      guard let url = URL(string: options.url.text + request.path) else {
        await request.body.close()
        throw SalvorError(.usage, "A request's path must be an encoded absolute path.")
      }
      var head = URLRequest(url: url)
      head.httpMethod = request.method
      for (name, value) in request.headers { head.setValue(value, forHTTPHeaderField: name) }
      // URLSession decodes what it asked for; the engine asks and decodes.
      if request.headers["accept-encoding"] == nil { head.setValue("identity", forHTTPHeaderField: "accept-encoding") }
      let source: SessionUpload?
      switch try await UploadBody(request) {
      case .none: source = nil
      case .bytes(let bytes):
        head.httpBody = Data(bytes)
        source = nil
      case .stream(let stream, _):
        let upload = SessionUpload(stream)
        head.httpBodyStream = upload.input
        source = upload
      }
      let task = session.dataTask(with: head)
      let exchange = SessionExchange(
        task, upload: source, label: options.url.label, responseBytesMax: responseBytesMax)
      router.add(exchange, for: task)
      return try await withTaskCancellationHandler {
        try await exchange.start()
      } onCancel: {
        exchange.cancel()
      }
    }
  }

  /// Hands the session's events to the exchange that they belong to.
  private final class SessionRouter: NSObject, URLSessionDataDelegate, Sendable {
    private let exchanges = Mutex<[Int: SessionExchange]>([:])

    func add(_ exchange: SessionExchange, for task: URLSessionTask) {
      exchanges.withLock { $0[task.taskIdentifier] = exchange }
    }

    private func exchange(_ task: URLSessionTask) -> SessionExchange? {
      exchanges.withLock { $0[task.taskIdentifier] }
    }

    func urlSession(
      _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
      completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
      exchange(dataTask)?.receive(response)
      completionHandler(.allow)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
      exchange(dataTask)?.receive(data)
    }

    func urlSession(
      _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
      newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
      completionHandler(nil)
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
      exchanges.withLock { $0.removeValue(forKey: task.taskIdentifier) }?.end(error)
    }
  }

  /// One exchange of the session.
  private final class SessionExchange: @unchecked Sendable {
    private struct State {
      var waiting: CheckedContinuation<TransportResponse, any Error>?
      var received = 0
      var isEventStream = false
      var ownError: SalvorError?
    }

    private let task: URLSessionDataTask
    private let upload: SessionUpload?
    private let label: String
    private let responseBytesMax: Int
    private let body: PieceSlot
    /// What came while there was no room: the session cannot give it again.
    private let overflow = Mutex<[Data]>([])
    private let state = Mutex(State())

    init(_ task: URLSessionDataTask, upload: SessionUpload?, label: String, responseBytesMax: Int) {
      self.task = task
      self.upload = upload
      self.label = label
      self.responseBytesMax = responseBytesMax
      body = PieceSlot()
    }

    func start() async throws -> TransportResponse {
      try await withCheckedThrowingContinuation { continuation in
        state.withLock { $0.waiting = continuation }
        upload?.start()
        task.resume()
      }
    }

    func cancel() {
      state.withLock { state in
        if state.ownError == nil { state.ownError = SalvorError(.cancelled, "The exchange was cancelled.") }
      }
      body.fail(SalvorError(.cancelled, "The exchange was cancelled."))
      task.cancel()
    }

    func receive(_ response: URLResponse) {
      guard let http = response as? HTTPURLResponse else { return task.cancel() }
      var headers: [String: String] = [:]
      for (name, value) in http.allHeaderFields { headers["\(name)".lowercased()] = "\(value)" }
      let length = http.expectedContentLength
      let made = TransportResponse(
        status: http.statusCode, headers: headers,
        body: ByteStream(
          next: { [self] in
            try await withTaskCancellationHandler {
              let piece = try await body.take()
              refill()
              return piece
            } onCancel: {
              cancel()
            }
          }, close: { [self] in cancel() }),
        contentLength: length >= 0 ? Int(length) : nil)
      let waiting = state.withLock { state in
        state.isEventStream = headers["content-type"]?.hasPrefix("text/event-stream") == true
        defer { state.waiting = nil }
        return state.waiting
      }
      waiting?.resume(returning: made)
    }

    func receive(_ data: Data) {
      let isTooLarge = state.withLock { state in
        state.received += data.count
        guard state.received > responseBytesMax, !state.isEventStream else { return false }
        state.ownError = SalvorError(
          .tooLarge,
          "The server's answer is larger than \(responseBytesMax) bytes. Raise downloadBytesMax, or ask for less.")
        return true
      }
      if isTooLarge { return task.cancel() }
      overflow.withLock { $0.append(data) }
      refill()
    }

    /// Moves what came into the slot, and lets the session go on once all of it has found room.
    private func refill() {
      overflow.withLock { waiting in
        while let data = waiting.first {
          guard let taken = try? data.withUnsafeBytes({ try body.offer($0) }), taken else { break }
          waiting.removeFirst()
        }
        if waiting.isEmpty { task.resume() } else { task.suspend() }
      }
      body.flush()
    }

    func end(_ error: (any Error)?) {
      upload?.stop()
      guard let error else { return finishWhenTaken() }
      let (own, waiting) = state.withLock { state in
        defer { state.waiting = nil }
        return (state.ownError, state.waiting)
      }
      let mapped = upload?.failure ?? own ?? Self.map(error, label: label)
      waiting?.resume(throwing: mapped)
      body.fail(mapped)
    }

    private func finishWhenTaken() {
      Task { [self] in
        for data in overflow.withLock({ waiting in
          defer { waiting = [] }
          return waiting
        }) {
          guard (try? await body.waitForRoom()) != nil else { return }
          body.store([UInt8](data))
        }
        body.finish()
      }
    }

    private static func map(_ error: any Error, label: String) -> SalvorError {
      let code = (error as? URLError)?.code
      let context = ["server": label]
      switch code {
      case .timedOut:
        return SalvorError(
          .timeout, "The server at \(label) did not answer in time. Check the network, and try again.", context: context
        )
      case .cancelled: return SalvorError(.cancelled, "The exchange was cancelled.", context: context)
      default:
        return SalvorError(
          .unreachable, "The server at \(label) cannot be reached. Check that it runs, and the url.", context: context)
      }
    }
  }

  /// Writes a request's body into the stream that the session reads, on a thread of its own: the writes block.
  private final class SessionUpload: @unchecked Sendable {
    let input: InputStream
    private let output: OutputStream
    private let slot = PieceSlot()
    private let source: ByteStream
    private let failed = Mutex<(any Error)?>(nil)
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

    var failure: (any Error)? { failed.withLock { $0 } }

    func start() {
      let stream = ByteStream(next: source.next, close: source.close)
      Task { [self] in
        queue.sync { open() }
        do {
          while let piece = try await stream.next() { try await write(piece) }
        } catch {
          failed.withLock { $0 = error }
          slot.fail(error)
        }
        await stream.close()
        queue.async { self.output.close() }
      }
    }

    func stop() {
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
