import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `POST /v1/sync`: begin, with the upload in the same body where it is small, and the answer with the download.
  func sync(_ request: TransportRequest) async throws -> TransportResponse {
    let principal = try await authenticate(request)
    let body = try await decodedBody(request, limit: chunkLimit, headLimit: beginLimit)
    let head = body.prefix { $0 != 0x0A }
    let message = try await parsedBegin(Array(head)).following(configuration.schema)
    let begin = try await check(message, principal: principal)
    if let page = begin.page, try await sessions.isFree(message.remote) {
      return try await answer(begin, nothing: page, principal, request)
    }
    let session = try await withinQuota(principal) { try await sessions.open(begin, principal: principal) }
    do {
      switch message.upload {
      case .staged where !begin.answersAgain:
        return try await answerStaging(session)
      case .none where message.current == nil || !begin.answersAgain:
        return try await answer(session, results: nil, try await compare(session), request)
      case .inline where !begin.answersAgain:
        let chunk = UploadChunk(
          bytes: Array(body[min(head.endIndex + 1, body.endIndex)...]), firstCounter: 0, lastCounter: 0,
          changeCount: 0, isLast: true)
        return try await answer(session, chunks: [chunk], request)
      default:
        return try await answer(session, chunks: [], request)
      }
    } catch {
      await sessions.close(session)
      throw error
    }
  }

  /// `PUT /v1/sync/TOKEN/chunks/INDEX?first=F&last=L`, with `&final=true` on the last one: one chunk of a large upload.
  /// The same again replaces itself.
  func receiveChunk(_ request: TransportRequest, token: String, index: String) async throws -> TransportResponse {
    let principal = try await authenticate(request)
    let session = try await sessions.find(token, principal: principal)
    let query = queryParameters(request.path)
    guard let index = Int(index), index >= 0, let first = query["first"].flatMap({ Int64($0) }),
      let last = query["last"].flatMap({ Int64($0) }), first > 0, last >= first, let sequence = session.current
    else {
      throw SalvorError(
        .malformed,
        "A chunk's path is /v1/sync/TOKEN/chunks/INDEX?first=COUNTER&last=COUNTER, and &final=true on the last one.")
    }
    let staged = try await configuration.store.staged(session.remote, sequence: sequence)
    guard staged.bytes < Int64(configuration.limits.uploadBytesMax) else {
      throw SalvorError.uploadTooLarge(configuration.limits)
    }
    let bytes = try await decodedBody(request, limit: chunkLimit)
    guard !bytes.isEmpty else { throw SalvorError(.malformed, "A chunk has changes. Send none that is empty.") }
    let chunk = UploadChunk(
      bytes: bytes, firstCounter: first, lastCounter: last, changeCount: 0, isLast: query["final"] == "true")
    try await withinQuota(principal) {
      try await staging(for: session.remote) {
        try await write(for: principal) {
          try await $0.stage(chunk, index: index, remote: session.remote, sequence: sequence)
        }
      }
    }
    await sessions.touch(session)
    return TransportResponse(status: 204, contentLength: 0)
  }

  /// `POST /v1/sync/TOKEN/process`: the staged upload is applied; the answer is that of `POST /v1/sync`.
  func processStaged(_ request: TransportRequest, token: String) async throws -> TransportResponse {
    let principal = try await authenticate(request)
    let session = try await sessions.find(token, principal: principal)
    _ = try await decodedBody(request, limit: BodyBudget.freeBytes)
    do {
      return try await answer(session, chunks: nil, request)
    } catch let error as SalvorError where error.code == .blobMissing {
      // The device sends it under this session and asks again.
      await sessions.touch(session)
      throw error
    } catch {
      await sessions.close(session)
      throw error
    }
  }

  /// `DELETE /v1/sync/TOKEN`: the device takes its upload back; it is not processed any more, and the session ends.
  func giveUp(_ request: TransportRequest, token: String) async throws -> TransportResponse {
    let principal = try await authenticate(request)
    let session = try await sessions.find(token, principal: principal)
    guard let sequence = session.current else {
      throw SalvorError(.malformed, "There is no upload under way in this session.")
    }
    try await staging(for: session.remote) {
      try await write(for: principal) { try await $0.unstage(session.remote, sequence: sequence) }
    }
    await sessions.close(session)
    guard try await configuration.store.results(session.remote, sequence: sequence) == nil else {
      throw SalvorError(.sessionUnknown, "This upload was processed. Begin again: its results are given then.")
    }
    return TransportResponse(status: 204, contentLength: 0)
  }

  private func answer(
    _ session: SessionTable.Session, chunks: [UploadChunk]?, _ request: TransportRequest
  ) async throws -> TransportResponse {
    let comparison = try await compare(session)
    return try await answer(session, results: try await process(session, chunks: chunks), comparison, request)
  }

  /// A chunk is cut where it has reached its target, so its last row may stand out by its whole length.
  var chunkLimit: Int { configuration.limits.chunkBytesMax + configuration.limits.rowBytesMax }

  private func process(_ session: SessionTable.Session, chunks: [UploadChunk]?) async throws -> UploadResults {
    guard let sequence = session.current else {
      throw SalvorError(.malformed, "An upload needs a current sequence ID.")
    }
    if session.begin.answersAgain,
      let recorded = try await configuration.store.results(session.remote, sequence: sequence)
    {
      return recorded
    }
    let began = ContinuousClock.now
    let results = try await processValidated(
      ProcessRequest(
        remote: session.remote, sequence: sequence, previous: session.begin.message.previous,
        principal: session.principal, chunks: chunks,
        isNarrowed: session.begin.message.isNarrowed))
    observe(results, of: session.remote, tookSince: began)
    await sessions.touch(session)
    metrics.uploads.add(1)
    events.notice()
    metrics.accepted.add(results.acceptedRequests)
    metrics.refused.add(Int64(results.refused.count))
    return results
  }

  private func answerStaging(_ session: SessionTable.Session) async throws -> TransportResponse {
    guard let sequence = session.current else {
      throw SalvorError(.malformed, "An upload needs a current sequence ID.")
    }
    let staged = try await configuration.store.staged(session.remote, sequence: sequence)
    return json(
      sessionLine(
        session.principal,
        [
          .init("token", .string(session.token)),
          .init("staged", ["chunks": .integer(Int64(staged.chunks)), "last": .integer(staged.lastCounter)]),
        ], untold: session.begin.incarnations, heal: session.begin.heal))
  }
}
