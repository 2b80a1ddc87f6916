import SalvorModel
import SalvorTransport

/// One request and its response between two ends in this process. The pieces of both bodies go through slots, as they
/// would through sockets: either end can go without the other one hanging.
final class LoopbackExchange: Sendable {
  private struct State {
    var waiting: CheckedContinuation<TransportResponse, any Error>?
    var failure: SalvorError?
    /// Both bodies are through: there is nothing left to end.
    var isOver = false
    var tasks: [Task<Void, Never>] = []
  }

  private let requestBody = PieceSlot()
  private let responseBody = PieceSlot()
  private let requestBytesMax: Int
  private let responseBytesMax: Int
  private let onEnd: @Sendable (LoopbackExchange) -> Void
  private let state = Mutex(State())

  init(
    requestBytesMax: Int, responseBytesMax: Int, onEnd: @escaping @Sendable (LoopbackExchange) -> Void
  ) {
    self.requestBytesMax = requestBytesMax
    self.responseBytesMax = responseBytesMax
    self.onEnd = onEnd
  }

  /// Runs `handler` with the request; returns its response, whose body is this exchange's.
  func run(_ request: TransportRequest, _ handler: @escaping TransportHandler) async throws -> TransportResponse {
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        state.withLock { $0.waiting = continuation }
        let source = request.contentLength.map { request.body.exactly($0) } ?? request.body
        keep(Task { await self.requestBody.pump(self.limited(self.endingBoth(source), self.requestBytesMax)) })
        keep(Task { await self.serve(request, handler) })
      }
    } onCancel: {
      end(SalvorError(.cancelled, "The exchange was cancelled."))
    }
  }

  private func keep(_ task: Task<Void, Never>) {
    let failure = state.withLock { state in
      state.tasks.append(task)
      return state.failure
    }
    // Cancelled before it began: what was ended then did not know of this task.
    if let failure { end(failure) }
  }

  private func serve(_ request: TransportRequest, _ handler: TransportHandler) async {
    var request = request
    request.body = ByteStream(
      next: { [self] in
        try await withTaskCancellationHandler {
          try await requestBody.take()
        } onCancel: {
          requestBody.fail(SalvorError(.cancelled, "Reading the request's body was cancelled."))
        }
      }, close: { [self] in requestBody.discard() })
    request.peerIsLocal = true
    let response = await handler(request)
    requestBody.discard()

    var answer = response
    answer.body = ByteStream(
      next: { [self] in
        try await withTaskCancellationHandler {
          try await responseBody.take()
        } onCancel: {
          end(SalvorError(.cancelled, "The exchange was cancelled."))
        }
      }, close: { [self] in end(SalvorError(.cancelled, "The exchange was cancelled.")) })
    if request.method == "HEAD" || response.status == 204 || response.status == 304 {
      await response.body.close()
      responseBody.finish()
      deliver(answer)
    } else {
      deliver(answer)
      let source = response.contentLength.map { response.body.exactly($0) } ?? response.body
      // An event stream has no end, and so no length to limit.
      let isEvents = response.headers["content-type"]?.hasPrefix("text/event-stream") == true
      await responseBody.pump(limited(hidingErrors(source), isEvents ? Int.max : responseBytesMax))
    }
    state.withLock { $0.isOver = true }
    onEnd(self)
  }

  private func deliver(_ response: TransportResponse) {
    let waiting = state.withLock { state in
      defer { state.waiting = nil }
      return state.waiting
    }
    waiting?.resume(returning: response)
  }

  /// Ends it for both sides, whatever they are doing.
  func end(_ error: SalvorError) {
    let ended = state.withLock { state -> (CheckedContinuation<TransportResponse, any Error>?, [Task<Void, Never>])? in
      if state.isOver { return nil }
      if state.failure == nil { state.failure = error }
      defer { (state.waiting, state.tasks) = (nil, []) }
      return (state.waiting, state.tasks)
    }
    guard let (waiting, tasks) = ended else { return }
    requestBody.fail(error)
    responseBody.fail(error)
    for task in tasks { task.cancel() }
    waiting?.resume(throwing: error)
  }

  /// A request whose source breaks is broken off: the sender gets its source's own error.
  private func endingBoth(_ source: ByteStream) -> ByteStream {
    ByteStream(
      next: { [self] in
        do {
          return try await source.next()
        } catch {
          end(error as? SalvorError ?? SalvorError(.failed, "The request's body could not be read to its end."))
          throw error
        }
      }, close: source.close)
  }

  /// What breaks at the server is no more to the client than a connection that broke, as over a network.
  private func hidingErrors(_ source: ByteStream) -> ByteStream {
    ByteStream(
      next: {
        do {
          return try await source.next()
        } catch {
          throw SalvorError(.unreachable, "The server's answer broke off. Try again.")
        }
      }, close: source.close)
  }

  private func limited(_ source: ByteStream, _ limit: Int) -> ByteStream {
    let count = Count()
    return ByteStream(
      next: {
        let piece = try await source.next()
        guard count.add(piece?.count ?? 0) <= limit else {
          throw SalvorError(.tooLarge, "A body is larger than \(limit) bytes. Send it in smaller parts.")
        }
        return piece
      }, close: source.close)
  }
}

private final class Count: Sendable {
  private let value = Mutex(0)
  func add(_ more: Int) -> Int {
    value.withLock {
      $0 += more
      return $0
    }
  }
}
