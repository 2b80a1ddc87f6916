#if HTTPServer
  import CMicrohttpd
  import SalvorModel
  import SalvorTransport

  /// One request and its response.
  ///
  /// libmicrohttpd calls it on the thread of the connection: `handle` for the head, for each part of the body and at
  /// its end, then `read` for the response's body. Between those calls the connection is suspended; the handler's task
  /// wakes it. What only those calls use is kept without a lock.
  final class ServerExchange: @unchecked Sendable {
    private enum Phase { case waiting, head, body, complete }

    /// What the handler answered, as far as the head needs it.
    private struct Answer {
      enum Body {
        case bytes([UInt8])
        case stream(length: Int?)
        /// Sent by the system, which reads the file itself.
        case file(FileBody)
        /// To HEAD, and for statuses without a body.
        case none(length: Int?)
      }
      var status: Int
      var headers: [String: String]
      var body: Body
    }

    private struct State {
      var answer: Answer?
      var task: Task<Void, Never>?
      var bodyWanted = false
      var aborted = false
      /// It is the request's turn (`ConnectionTable.begin`).
      var hasTurn = false
    }

    /// Up to this size a body is read whole before the handler starts: one suspension for a small request, not three.
    private static let smallBodyBytesMax = 16 << 10

    private let core: ServerCore
    private let path: String?
    private let connection: ClientConnection?
    private let gate: ConnectionGate
    private let requestBody: PieceSlot
    private let responseBody: PieceSlot
    private let state = Mutex(State())

    // Only used by the connection's thread.
    private var phase = Phase.head
    private var hasBegun = false
    private var isSmall = false
    private var smallBody: [UInt8] = []
    private var contentLength: Int?
    private var received = 0
    private var method = ""
    private var request: TransportRequest?
    private var current: [UInt8] = []
    private var currentOffset = 0
    private var lingeringSocket: Int32 = -1
    private var admission: ConnectionTable.Admission?
    private var isHealthCheck = false
    /// For whom a proxy asks.
    private var client: PeerAddress?

    init(core: ServerCore, uri: UnsafePointer<CChar>?, connection: OpaquePointer) {
      self.core = core
      self.path = uri.flatMap { String(validatingCString: $0) }.flatMap(Self.originForm)
      self.connection = clientConnection(connection)
      let isSecure = self.connection?.isSecure ?? false
      let gate = ConnectionGate(connection, canProbe: !isSecure, isSecure: isSecure)
      self.gate = gate
      requestBody = PieceSlot(onRoom: { gate.wake() })
      responseBody = PieceSlot(onPiece: { gate.wake() })
    }

    /// `/path?query`, also of the absolute form that RFC 9112 (3.2.2) obliges servers to take.
    private static func originForm(_ target: String) -> String? {
      if target.hasPrefix("/") { return target }
      guard target.hasPrefix("http://") || target.hasPrefix("https://") else { return nil }
      let rest = target.drop { $0 != ":" }.dropFirst(3)
      return rest.firstIndex(of: "/").map { String(rest[$0...]) } ?? "/"
    }

    // MARK: The request, on the connection's thread

    /// - Parameter size: how many bytes of `data` are there; set to 0 where they were taken.
    func handle(
      _ connection: OpaquePointer, method: String, version: String, data: UnsafePointer<CChar>?,
      size: UnsafeMutablePointer<Int>
    ) -> MHD_Result {
      if !hasBegun {
        hasBegun = true
        self.method = method
        if let refusal = begin(connection, version: version) { return queue(refusal, connection) }
      }
      while true {
        let (answer, bodyWanted, aborted, hasTurn) = state.withLock {
          ($0.answer, $0.bodyWanted, $0.aborted, $0.hasTurn)
        }
        if aborted { return .NO }
        switch phase {
        case .waiting:
          if hasTurn {
            phase = .head
            startUnlessSmall()
            continue
          }
        case .head:
          if let answer { return queue(answer, connection) }
          if isSmall || bodyWanted {
            phase = .body
            gate.move(more: contentLength != 0)
            return .YES
          }
        case .body where size.pointee > 0:
          guard let taken = take(UnsafeRawBufferPointer(start: data, count: size.pointee)) else { return .NO }
          if taken {
            gate.move(more: true)
            size.pointee = 0
            return .YES
          }
        case .body:
          phase = .complete
          gate.move(more: false)
          if isSmall {
            startHandler(body: .bytes(smallBody))
            smallBody = []
          } else {
            requestBody.finish()
          }
        case .complete:
          if let answer { return queue(answer, connection) }
        }
        switch gate.suspend() {
        case .suspended: return .YES
        case .woken: continue
        case .over: return .NO
        }
      }
    }

    /// Reads the head. An answer here is a refusal; the handler never sees the request.
    private func begin(_ connection: OpaquePointer, version: String) -> Answer? {
      guard core.begin(self) else { return refusal(.overloaded, "The server is stopping. Try again later.") }
      gate.open()
      let headers = requestHeaders(connection)
      // Two readings of where a request ends are how one is smuggled past a proxy: what has two is refused.
      if let fault = RequestHead.fault(headers, version: version) {
        core.connections.begin(on: self.connection)
        return refusal(.malformed, fault)
      }
      let peer = core.proxies.caller(headers, self.connection)
      client = peer.client
      isHealthCheck = path.map(healthCheckPaths.contains) ?? false
      let admission = core.connections.begin(
        self, on: self.connection, isHealthCheck: isHealthCheck, client: client)
      self.admission = admission
      if case .refused(let error) = admission {
        return refusal(error.code, error.message, retryAfterMilliseconds: error.retryAfterMilliseconds)
      }
      guard let path else {
        return refusal(.malformed, "The request's target is not a path. Send an absolute path.")
      }
      guard peer.mayAsk || isHealthCheck else {
        return refusal(.forbidden, "This server is reached through its proxy only. Ask that, over https.")
      }
      let isChunked = headers["transfer-encoding"] != nil
      if !isChunked, let text = headers["content-length"] {
        // The library has refused what is not a number; one that does not fit is too large.
        contentLength = Int(text) ?? Int.max
      } else if !isChunked {
        contentLength = 0
      }
      if let contentLength, contentLength > core.bodyBytesMax {
        return refusal(
          .tooLarge, "The body is larger than \(core.bodyBytesMax) bytes (bodyBytesMax).", limit: core.bodyBytesMax)
      }
      request = TransportRequest(
        method: method, path: path, headers: headers, contentLength: contentLength, peerIsLocal: peer.isLocal,
        peer: (peer.client ?? self.connection?.address)?.text)
      isSmall = contentLength.map { $0 <= Self.smallBodyBytesMax } ?? false
      if case .waits = admission {
        phase = .waiting
      } else {
        startUnlessSmall()
      }
      return nil
    }

    /// A small body is read before the handler starts.
    private func startUnlessSmall() {
      if !isSmall { startHandler(body: bodyStream()) }
    }

    /// It is the request's turn. On any thread.
    func goOn() {
      state.withLock { $0.hasTurn = true }
      gate.wake()
    }

    private func refusal(
      _ code: ErrorCode, _ detail: String, retryAfterMilliseconds: Int64? = nil, limit: Int? = nil
    ) -> Answer {
      var headers = ["content-type": "application/problem+json", "connection": "close"]
      headers["retry-after"] = retryAfterMilliseconds.map { String(($0 + 999) / 1000) }
      return Answer(
        status: code.httpStatus, headers: headers,
        body: .bytes(problemBody(code, status: code.httpStatus, detail, limit: limit)))
    }

    /// Takes a part of the body. False: no room; nil: the connection must end.
    private func take(_ data: UnsafeRawBufferPointer) -> Bool? {
      if isSmall {
        smallBody.append(contentsOf: data)
        return true
      }
      if received + data.count > core.bodyBytesMax {
        requestBody.fail(
          SalvorError(
            .tooLarge, "The body is larger than \(core.bodyBytesMax) bytes (bodyBytesMax).",
            context: ["limit": "\(core.bodyBytesMax)"]))
        // An answer can only be sent at the body's end (see the README): read on for a while, then give up.
        received += data.count
        return received > 2 * core.bodyBytesMax ? nil : true
      }
      do {
        guard try requestBody.offer(data) else { return false }
      } catch {
        return nil
      }
      requestBody.flush()
      received += data.count
      return true
    }

    private func bodyStream() -> ByteStream {
      ByteStream(
        next: { [self] in
          let isFirst = state.withLock { state in
            defer { state.bodyWanted = true }
            return !state.bodyWanted
          }
          if isFirst { gate.wake() }
          return try await withTaskCancellationHandler {
            try await requestBody.take()
          } onCancel: {
            requestBody.fail(SalvorError(.cancelled, "Reading the request's body was cancelled."))
          }
        },
        close: { [self] in requestBody.discard() })
    }

    // MARK: The handler

    private func startHandler(body: ByteStream) {
      guard var request else { return }
      self.request = nil
      request.body = body
      let isHead = method == "HEAD"
      core.handlerBegan()
      let task = OwnThread.task(on: isHealthCheck ? core.healthChecks : nil) { [self, request] in
        let response = await core.handler(request)
        requestBody.discard()
        await answer(response, isHead: isHead)
        core.handlerEnded()
      }
      let aborted = state.withLock { state in
        state.task = task
        return state.aborted
      }
      if aborted { task.cancel() }
    }

    private func answer(_ response: TransportResponse, isHead: Bool) async {
      func give(_ body: Answer.Body) {
        state.withLock {
          $0.answer = Answer(status: response.status, headers: response.headers, body: body)
        }
        gate.wake()
      }
      let length = response.contentLength
      if isEndless(response.headers) {
        guard core.connections.beginStream() else {
          await response.body.close()
          let error = refusal(
            .tooManyListeners,
            "As many streams of events as this server has connections for. Poll, and try again later.",
            retryAfterMilliseconds: 60_000)
          state.withLock { $0.answer = error }
          gate.wake()
          return
        }
        await stream(response, give)
        core.connections.endStream()
      } else if isHead || response.status == 204 || response.status == 304 {
        await response.body.close()
        give(.none(length: length))
      } else if let length, length <= pieceBytesMax {
        // Small and known: sent in one go with its head.
        let body = response.body.exactly(length)
        if let bytes = try? await body.collect(upTo: length) {
          give(.bytes(bytes))
        } else {
          responseBody.fail(SalvorError(.failed, "The response's body ended with an error."))
          give(.stream(length: max(1, length)))
        }
      } else if let file = response.file {
        file.isTaken()
        await response.body.close()
        give(.file(file))
      } else {
        await stream(response, give)
      }
    }

    private func stream(_ response: TransportResponse, _ give: (Answer.Body) -> Void) async {
      // The head goes out at once; the first piece is often there before it.
      give(.stream(length: response.contentLength))
      await responseBody.pump(response.contentLength.map { response.body.exactly($0) } ?? response.body)
    }

    /// A stream of events says little, there are many of them, and its reader ends it.
    private func isEndless(_ headers: [String: String]) -> Bool {
      headers["content-type"]?.hasPrefix("text/event-stream") == true
    }

    // MARK: The response, on the connection's thread

    private func queue(_ answer: Answer, _ connection: OpaquePointer) -> MHD_Result {
      let isEndless = isEndless(answer.headers)
      guard let response = makeResponse(answer.body, blockBytes: isEndless ? 1 << 10 : pieceBytesMax) else {
        return .NO
      }
      defer { MHD_destroy_response(response) }
      var headers = answer.headers
      headers["content-length"] = nil
      headers["transfer-encoding"] = nil
      let isEarly = (phase == .head || phase == .waiting) && contentLength != 0
      if isEarly || core.isStopping || core.connections.isCrowded
        || self.connection?.daemon.isRetired.load(ordering: .relaxed) == true
      {
        headers["connection"] = "close"
      }
      for (name, value) in headers where MHD_add_response_header(response, name, value) != .YES {
        core.log("A response's header \(name) is not a valid HTTP header; the connection was closed.")
        return .NO
      }
      if isEarly { lingeringSocket = dup(cmicrohttpd_socket(connection)) }
      gate.answered(isEndless: isEndless)
      return queueResponse(connection, answer.status, response)
    }

    private func makeResponse(_ body: Answer.Body, blockBytes: Int) -> OpaquePointer? {
      switch body {
      case .bytes(var bytes):
        return MHD_create_response_from_buffer(bytes.count, &bytes, .RESPMEM_MUST_COPY)
      case .file(let file):
        // The library closes it, whenever it is done; until then the file is there, whoever removes its name.
        let own = cmicrohttpd_same_file(file.descriptor)
        guard own >= 0 else { return nil }
        let response = MHD_create_response_from_fd_at_offset64(UInt64(file.count), own, UInt64(file.offset))
        if response == nil { cmicrohttpd_close(own) }
        return response
      case .stream(let length), .none(let length):
        let closure = Unmanaged.passRetained(self).toOpaque()
        let response = MHD_create_response_from_callback(
          length.map(UInt64.init) ?? UInt64.max, blockBytes, readResponseBody, closure, releaseExchange)
        if response == nil { Unmanaged<ServerExchange>.fromOpaque(closure).release() }
        return response
      }
    }

    /// Fills `buffer` from the response's body. 0: suspended until there is more; -1: the end; -2: an error, which
    /// ends the connection so that the client sees that the body is not whole.
    func read(into buffer: UnsafeMutableRawBufferPointer) -> Int {
      while currentOffset == current.count {
        if state.withLock({ $0.aborted }) { return -2 }
        switch responseBody.poll() {
        case .piece(let piece): (current, currentOffset) = (piece, 0)
        case .end: return -1
        case .failed: return -2
        case .nothing:
          switch gate.suspend() {
          case .suspended: return 0
          case .woken: continue
          case .over: return -2
          }
        }
      }
      let count = min(buffer.count, current.count - currentOffset)
      current.withUnsafeBytes { bytes in
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[currentOffset..<(currentOffset + count)]))
      }
      currentOffset += count
      return count
    }

    // MARK: The end

    /// Ends the exchange from outside: the handler is cancelled, the connection closed. On any thread.
    func abort(_ error: SalvorError) {
      let task = state.withLock { state in
        state.aborted = true
        return state.task
      }
      requestBody.fail(error)
      responseBody.fail(error)
      task?.cancel()
      gate.cut()
    }

    /// The library is done with the request. On the connection's thread, once, after everything else.
    func end(isWhole: Bool) {
      gate.end()
      core.end(self)
      core.connections.end(self, on: connection, admission, isHealthCheck: isHealthCheck, client: client)
      if lingeringSocket >= 0 { core.startLingering(lingeringSocket) }
      let left = SalvorError(.unreachable, "The client ended the connection.")
      requestBody.fail(left)
      responseBody.fail(left)
      if !isWhole { state.withLock { $0.task }?.cancel() }
    }

    func inspect(now: ContinuousClock.Instant, pace: ConnectionGate.Pace) {
      switch gate.inspect(now: now, pace: pace) {
      case .busy: break
      case .left: abort(SalvorError(.unreachable, "The client ended the connection."))
      case .idle:
        abort(SalvorError(.timeout, "Nothing moved for \(core.idleTimeoutSeconds) s; the exchange was ended."))
      case .slow:
        abort(
          SalvorError(
            .timeout, "A body moves slower than \(pace.bytesPerSecondMin) bytes a second (bodyBytesPerSecondMin)."))
      }
    }
  }
#endif
