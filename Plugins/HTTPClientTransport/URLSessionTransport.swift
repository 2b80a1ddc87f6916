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
  public final class HTTPClientTransport: FileFetchingTransport, CompressionPreference {
    private let options: HTTPClientOptions
    private let responseBytesMax: Int
    private let session: URLSession
    private let router = SessionRouter()
    /// A task of a session that has ended is a crash.
    private let isClosed = Mutex(false)

    /// An event stream, a synchronization and its large values go on beside each other; the system's limit is four to six.
    private static let connectionsMax = 32

    /// The option `compression`. The transport itself neither codes nor decodes.
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
      configuration.httpMaximumConnectionsPerHost = Self.connectionsMax
      #if canImport(Darwin)
        configuration.tlsMinimumSupportedProtocolVersion = .TLSv12
      #endif
      session = URLSession(configuration: configuration, delegate: router, delegateQueue: nil)
    }

    deinit { session.invalidateAndCancel() }

    /// Ends every transfer. Safe twice.
    public func close() async {
      guard
        isClosed.withLock({ isClosed in
          defer { isClosed = true }
          return !isClosed
        })
      else { return }
      router.cancelAll()
      session.invalidateAndCancel()
    }

    /// Errors: those of `ClientTransport`; `configuration` where a header is a credential that would travel to another
    /// machine in clear text.
    public func send(_ request: TransportRequest) async throws -> TransportResponse {
      do {
        try options.check(request)
      } catch {
        await request.body.close()
        throw error
      }
      return try await send(request, to: options.url, options.url.text + request.path)
    }

    /// Errors: those of `send`; `usage` where a header is a credential, or `address` is no http or https URL;
    /// `configuration` where the file would travel in clear text.
    public func fetch(_ address: String, headers: [String: String]) async throws -> TransportResponse {
      try await send(
        TransportRequest(method: "GET", path: "/", headers: headers, contentLength: 0),
        to: options.server(of: address, headers), address)
    }

    private func send(
      _ request: TransportRequest, to server: HTTPServerURL, _ address: String
    ) async throws -> TransportResponse {
      guard let url = URL(string: address) else {
        await request.body.close()
        throw SalvorError(.usage, "A request's path must be an encoded absolute path.")
      }
      var head = URLRequest(url: url)
      head.httpMethod = request.method
      for (name, value) in request.headers { head.setValue(value, forHTTPHeaderField: name) }
      // What nobody asked for, the system asks for and decodes.
      if request.headers["accept-encoding"] == nil { head.setValue("identity", forHTTPHeaderField: "accept-encoding") }
      let source: SessionUpload?
      switch try await UploadBody(request) {
      case .none: source = nil
      case .bytes(let bytes):
        head.httpBody = Data(bytes)
        source = nil
      case .stream(let stream, let length):
        #if canImport(Darwin)
          // Linux's session says "chunked" beside it, which servers refuse.
          if let length { head.setValue("\(length)", forHTTPHeaderField: "content-length") }
        #else
          _ = length
        #endif
        let upload = SessionUpload(stream)
        head.httpBodyStream = upload.input
        source = upload
      }
      let made = isClosed.withLock { isClosed -> SessionExchange? in
        if isClosed { return nil }
        let task = session.dataTask(with: head)
        let exchange = SessionExchange(
          task, upload: source, label: server.label, responseBytesMax: responseBytesMax)
        router.add(exchange, for: task)
        return exchange
      }
      guard let exchange = made else {
        await source?.discard()
        throw SalvorError(.cancelled, "The transport was closed. Open another client.")
      }
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

    func cancelAll() { for exchange in exchanges.withLock({ Array($0.values) }) { exchange.cancel() } }

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
      #if !canImport(Darwin)
        // That session would wait for ever: the redirection is the answer.
        guard let exchange = exchanges.withLock({ $0.removeValue(forKey: task.taskIdentifier) }) else { return }
        exchange.receive(response)
        exchange.end(nil)
        task.cancel()
      #endif
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
      exchanges.withLock { $0.removeValue(forKey: task.taskIdentifier) }?.end(error)
    }
  }

  /// One exchange of the session.
  private final class SessionExchange: @unchecked Sendable {
    private struct Head {
      var status: Int
      var headers: [String: String]
      var length: Int?
    }

    private struct State {
      var waiting: CheckedContinuation<TransportResponse, any Error>?
      /// Until its first bytes say whether the system has decoded them.
      var held: Head?
      var received = 0
      var isEventStream = false
      var isSuspended = false
      /// Why this side has ended it.
      var ownError: (any Error)?
    }

    private let task: URLSessionDataTask
    private let upload: SessionUpload?
    private let label: String
    private let responseBytesMax: Int
    private let body: PieceSlot
    /// What came while there was no room: the session cannot give it again.
    private let overflow = Mutex<[Data]>([])
    private let state = Mutex(State())

    /// How bodies in the codings begin that the system may decode by itself, whoever has asked for them. It leaves the header,
    /// and cannot be told not to.
    private static let signatures: [String: [UInt8]] = ["gzip": [0x1f, 0x8b], "zstd": [0x28, 0xb5, 0x2f, 0xfd]]

    init(_ task: URLSessionDataTask, upload: SessionUpload?, label: String, responseBytesMax: Int) {
      self.task = task
      self.upload = upload
      self.label = label
      self.responseBytesMax = responseBytesMax
      body = PieceSlot()
    }

    func start() async throws -> TransportResponse {
      try await withCheckedThrowingContinuation { continuation in
        let isBegun = state.withLock { state in
          guard state.ownError == nil else { return false }
          state.waiting = continuation
          return true
        }
        guard isBegun else {
          Task { await upload?.discard() }
          continuation.resume(throwing: state.withLock { $0.ownError } ?? CancellationError())
          return
        }
        upload?.start { [weak self] error in self?.fail(error) }
        task.resume()
      }
    }

    func cancel() { fail(SalvorError(.cancelled, "The exchange was cancelled.")) }

    /// This side ends it; nobody waits for what the session says of that.
    private func fail(_ error: any Error) {
      let waiting = state.withLock { state in
        if state.ownError == nil { state.ownError = error }
        defer { state.waiting = nil }
        return state.waiting
      }
      waiting?.resume(throwing: error)
      body.fail(error)
      task.cancel()
      // The stream of the body is closed when the session has let go of it: its end would pass for the body's.
      upload?.giveUp()
    }

    func receive(_ response: URLResponse) {
      guard let http = response as? HTTPURLResponse else { return task.cancel() }
      var headers: [String: String] = [:]
      for (name, value) in http.allHeaderFields { headers["\(name)".lowercased()] = "\(value)" }
      let length = http.expectedContentLength
      let head = Head(status: http.statusCode, headers: headers, length: length >= 0 ? Int(length) : nil)
      let isEventStream = headers["content-type"]?.hasPrefix("text/event-stream") == true
      let isHeld = !isEventStream && Self.signatures[headers["content-encoding"]?.lowercased() ?? ""] != nil
      state.withLock { state in
        state.isEventStream = isEventStream
        if isHeld { state.held = head }
      }
      if !isHeld { give(head) }
    }

    private func give(_ head: Head) {
      let waiting = state.withLock { state in
        defer { state.waiting = nil }
        return state.waiting
      }
      waiting?.resume(
        returning: TransportResponse(
          status: head.status, headers: head.headers,
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
          contentLength: head.length))
    }

    /// The head that was held back, once the first bytes are there, or the end.
    private func giveHeld(_ first: Data) {
      let held = state.withLock { state in
        defer { state.held = nil }
        return state.held
      }
      guard var head = held else { return }
      let signature = Self.signatures[head.headers["content-encoding"]?.lowercased() ?? ""] ?? []
      if first.isEmpty || !signature.starts(with: first.prefix(signature.count)) {
        head.headers["content-encoding"] = nil
        head.length = nil
      }
      give(head)
    }

    func receive(_ data: Data) {
      let isTooLarge = state.withLock { state in
        state.received += data.count
        return state.received > responseBytesMax && !state.isEventStream
      }
      if isTooLarge {
        return fail(
          SalvorError(
            .tooLarge,
            "The server's answer is larger than \(responseBytesMax) bytes. Raise downloadBytesMax, or ask for less."))
      }
      overflow.withLock { $0.append(data) }
      giveHeld(data)
      refill()
    }

    /// Moves what came into the slot, and lets the session go on once all of it has found room.
    private func refill() {
      let hasRoom = overflow.withLock { waiting in
        while let data = waiting.first {
          guard let taken = try? data.withUnsafeBytes({ try body.offer($0) }), taken else { break }
          waiting.removeFirst()
        }
        return waiting.isEmpty
      }
      hold(!hasRoom)
      body.flush()
    }

    #if canImport(Darwin)
      /// Suspensions are counted: there is one for each that is taken back.
      private func hold(_ isFull: Bool) {
        state.withLock { state in
          guard state.isSuspended != isFull, state.ownError == nil else { return }
          state.isSuspended = isFull
          if isFull { task.suspend() } else { task.resume() }
        }
      }
    #else
      /// A task of Linux's session that was suspended goes on with other bytes.
      private func hold(_ isFull: Bool) {}
    #endif

    func end(_ error: (any Error)?) {
      upload?.stop()
      guard let error else {
        giveHeld(Data())
        return finishWhenTaken()
      }
      let (own, waiting) = state.withLock { state in
        defer { state.waiting = nil }
        return (state.ownError, state.waiting)
      }
      let mapped = own ?? Self.map(error, label: label)
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
#endif
