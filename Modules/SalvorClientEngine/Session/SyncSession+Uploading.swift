import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// How much of a large upload goes in one chunk: as much as takes a second at the pace of the chunk before it, and four times that one
/// where it arrived within a second, so that a large upload takes few round trips, and a cut costs little where the network is slow
/// (decision 146).
struct ChunkSize {
  private var smallest: Int
  private var largest: Int
  private(set) var target: Int
  /// A chunk has arrived: the pace is known.
  private(set) var isKnown = false
  /// The server may take larger ones than `smallest`.
  private var isGrowing: Bool

  private static let wantedMilliseconds: Int64 = 1000
  /// Shorter ones are not made for a server's limit.
  private static let bytesMin = 512
  private static let slowMilliseconds: Int64 = 5000

  init(_ limits: Limits) {
    smallest = limits.chunkBytesTarget
    // Who wants them smaller than usual gets them so.
    largest = smallest < Limits().chunkBytesTarget ? smallest : max(smallest, limits.chunkBytesMax)
    target = smallest
    isGrowing = largest > smallest
  }

  mutating func sent(_ chunk: UploadChunk, inMilliseconds milliseconds: Int64) {
    if milliseconds > Self.slowMilliseconds { largest = smallest }
    let size = Int64(chunk.bytes.count)
    let pace = size * Self.wantedMilliseconds / max(1, milliseconds)
    let wanted = milliseconds <= Self.wantedMilliseconds ? max(pace, 4 * size) : pace
    target = min(largest, max(smallest, Int(clamping: wanted)))
    isKnown = true
  }

  /// The server does not read as much at once: what comes next is shorter, first of all as long as every server takes it. False: it is
  /// one change, or short already.
  mutating func shrink(below chunk: UploadChunk) -> Bool {
    if isGrowing, chunk.bytes.count > smallest {
      (largest, target, isGrowing) = (smallest, smallest, false)
      return true
    }
    let half = min(chunk.bytes.count, target) / 2
    guard chunk.changeCount > 1, half >= Self.bytesMin else { return false }
    (smallest, target, isGrowing) = (min(smallest, half), half, false)
    largest = max(half, min(largest, chunk.bytes.count / 2))
    return true
  }
}

/// An upload in chunks (semantics 4, step 2), and the blobs of any upload.
extension SyncSession {
  /// A session under which chunks are sent.
  struct Staging {
    var token: String
    /// Of the upload.
    var sequence: SequenceID
    var chunks: Int
    var lastCounter: Int64
    /// The last counter of the whole upload.
    var end: Int64
  }

  /// The token under which chunks are sent. Nil: the answer holds results instead.
  mutating func stagingSession(_ reader: inout ResponseReader, _ session: ClientSession) async throws -> Staging? {
    guard case .control(let line) = try await reader.next(), let json = line["session"] else {
      throw SalvorError(.malformed, "The server's answer does not begin with a \"session\".")
    }
    if try await meet(json) { hasNewRequests = true }
    guard let token = json["token"]?.string, let staged = json["staged"], let upload = session.upload else {
      return nil
    }
    return Staging(
      token: token, sequence: upload.sequence, chunks: Int(try staged.count("chunks")),
      lastCounter: try staged.integer("last"), end: upload.lastCounter)
  }

  /// Sends the chunks and has them processed. Nil: the upload was taken back, for a smaller one to take its place.
  ///
  /// - Parameter noRoom: the server has refused its blobs before.
  mutating func upload(
    _ staging: Staging, first: UploadChunk?, _ noRoom: SalvorError?
  ) async throws -> TransportResponse? {
    var noRoom = noRoom
    if let error = noRoom, try await takeBack(staging, error) { return nil }
    if try await takeBackUnfitting(staging) { return nil }
    guard try await sendChunks(staging, first: first, &noRoom) else { return nil }
    let path = "/v1/sync/\(staging.token)/process"
    do {
      return try await post(path, [])
    } catch let error as SalvorError where error.code == .blobMissing {}
    // Without room the server has judged the upload as it is: it was not the upload that was too large.
    if noRoom != nil { throw othersUpload }
    // Blobs of chunks that were staged by a session before this one may have been emptied since: all are looked at.
    do {
      var counter: Int64 = 0
      while let chunk = try await store.uploadChunk(after: counter, bytesTarget: limits.chunkBytesTarget) {
        try await sendBlobs(chunk.blobs)
        counter = chunk.lastCounter
      }
    } catch let error as SalvorError where error.blobRoom != nil {
      if try await takeBack(staging, error) { return nil }
      throw othersUpload
    }
    return try await post(path, [])
  }

  /// Sends the chunks that the server does not have yet. The next one is encoded while one is on its way, but for the second, whose
  /// size depends on how long the first took. False: the upload was taken back.
  private mutating func sendChunks(
    _ staging: Staging, first: UploadChunk?, _ noRoom: inout SalvorError?
  ) async throws -> Bool {
    let store = store
    var size = ChunkSize(limits)
    var index = staging.chunks
    var changes: Int64 = 0
    var taken = (counter: staging.lastCounter, bytes: Int64(0))
    let start = max(0, (first?.firstCounter ?? 1) - 1)
    var next = first
    if staging.lastCounter > 0 {
      next = try await store.uploadChunk(after: staging.lastCounter, bytesTarget: size.target)
    }
    while let chunk = next {
      do {
        if noRoom == nil { try await sendBlobs(chunk.blobs) }
      } catch let error as SalvorError where error.blobRoom != nil {
        if try await takeBack(staging, error) { return false }
        noRoom = error
      }
      let began = configuration.clock.now()
      let target = size.target
      let isAhead = size.isKnown && !chunk.isLast
      async let following = isAhead ? store.uploadChunk(after: chunk.lastCounter, bytesTarget: target) : nil
      let path =
        "/v1/sync/\(staging.token)/chunks/\(index)?first=\(chunk.firstCounter)&last=\(chunk.lastCounter)"
        + (chunk.isLast ? "&final=true" : "")
      do {
        try await send(chunk, path)
      } catch let error as SalvorError where error.isBeyondStaging {
        if taken.counter == 0, size.shrink(below: chunk) {
          _ = try await following
          next = try await store.uploadChunk(after: chunk.firstCounter - 1, bytesTarget: size.target)
          continue
        }
        // Of what was staged by a session before this one nobody knows the bytes.
        try await takeBack(staging, error, upTo: taken.counter, staging.lastCounter > 0 ? nil : taken.bytes)
        return false
      } catch let error as SalvorError where error.code == .tooLarge {
        if size.shrink(below: chunk) {
          _ = try await following
          next = try await store.uploadChunk(after: chunk.firstCounter - 1, bytesTarget: size.target)
          continue
        }
        // What the server does not read even alone is sent without what makes it so: the server refuses that change alone.
        guard let limit = error.context["limit"].flatMap({ Int($0) }), limit < chunk.bytes.count,
          let smaller = try LargeChanges.cut(chunk, to: limit, try await configuration.primaryKeysHere())
        else { throw error }
        try await send(smaller, path)
      }
      size.sent(chunk, inMilliseconds: configuration.clock.now() - began)
      index += 1
      taken = (chunk.lastCounter, taken.bytes + Int64(chunk.bytes.count))
      hasMadeProgress = true
      changes += Int64(chunk.changeCount)
      let share = staging.end > start ? Double(chunk.lastCounter - start) / Double(staging.end - start) : nil
      progress(.uploading(changes: changes, share: share.map { min(1, max(0, $0)) }))
      next = try await following
      if !isAhead, !chunk.isLast {
        next = try await store.uploadChunk(after: chunk.lastCounter, bytesTarget: size.target)
      }
    }
    return true
  }

  private mutating func send(_ chunk: UploadChunk, _ path: String) async throws {
    let response = try await configuration.request("PUT", path, chunk.bytes, counting: &report)
    _ = try await response.body.collect(upTo: limits.chunkBytesMax)
  }

  // MARK: - Blobs

  mutating func sendBlobs(_ blobs: [OutgoingBlob]) async throws {
    if blobs.isEmpty { return }
    try await BlobTransfer(configuration: configuration).send(blobs, counting: &report, sent: &hasMadeProgress)
  }

  /// The blobs of this upload are more than the server takes at a time: it is given up there, and the next session chooses
  /// a smaller one. False: it was chosen for that already, and the server is to judge it as it is.
  private mutating func takeBack(_ staging: Staging, _ error: SalvorError) async throws -> Bool {
    guard let bytes = error.blobRoom, bytes != room.blobBytes else { return false }
    try await giveUp(staging)
    room.blobBytes = bytes
    return true
  }

  private mutating func giveUp(_ staging: Staging) async throws {
    let response = try await configuration.request("DELETE", "/v1/sync/\(staging.token)", [], counting: &report)
    _ = try await response.body.collect(upTo: limits.chunkBytesMax)
    try await store.takeBackUpload(staging.sequence)
    isUnfinished = true
  }

  // MARK: - Payloads beyond what a server stages

  /// The server takes no more of this upload: the next session chooses the requests that it has taken, and the rest goes with later ones. Throws
  /// where the upload was chosen for that already: its request is too large by itself, or other devices have the room.
  ///
  /// - Parameters:
  ///   - counter: of the last change that it has taken; 0: of none.
  ///   - bytes: of what it has taken; nil: not known.
  private mutating func takeBack(
    _ staging: Staging, _ error: SalvorError, upTo counter: Int64, _ bytes: Int64?
  ) async throws {
    guard counter > 0, counter < room.lastCounter ?? .max else {
      if let others = error.context["others"], others != "0" { throw error }
      let request = try await store.requests(in: [.sent, .unknownOutcome], after: nil, limit: 1).first
      // It can be withdrawn then.
      try await giveUp(staging)
      room.lastCounter = nil
      throw request.map { Self.tooLarge($0, error) } ?? error
    }
    try await giveUp(staging)
    room.lastCounter = counter
    room.payloadBytes = bytes ?? room.payloadBytes
  }

  private static func tooLarge(_ request: QueuedRequest, _ error: SalvorError) -> SalvorError {
    let key = request.key.map { "\($0)" }.joined(separator: ", ").prefix(200)
    let (limit, most) = (error.context["limit"] ?? "", error.context["max"] ?? "")
    return SalvorError(
      .tooLarge,
      "The request \(request.id) (\(request.table) [\(key)]) alone has more than the server takes at a time: \(limit) is \(most). What was written after it waits behind it. Withdraw it (salvor queue withdraw \(request.id)) and write it as smaller requests, or have the server's operator raise \(limit). Then sync again.",
      context: ["limit": limit, "max": most, "request": "\(request.id)"])
  }

  /// Where a server has said how much it takes, an upload that has more is taken back before anything of it is sent.
  private mutating func takeBackUnfitting(_ staging: Staging) async throws -> Bool {
    guard let most = room.payloadBytes, room.lastCounter == nil, staging.lastCounter == 0 else { return false }
    var (counter, bytes) = (Int64(0), Int64(0))
    while let chunk = try await store.uploadChunk(after: counter, bytesTarget: limits.chunkBytesTarget) {
      bytes += Int64(chunk.bytes.count)
      if bytes > most { break }
      counter = chunk.lastCounter
    }
    guard bytes > most, counter > 0 else { return false }
    try await giveUp(staging)
    room.lastCounter = counter
    return true
  }

  private var othersUpload: SalvorError {
    SalvorError(
      .sessionInUse,
      "The server has no room for the blobs of this upload beside those that other devices of the same principal are uploading (blobStagingBytesMax). Sync again later; where it stays so, its operator can raise that limit.",
      retryAfterMilliseconds: 2_000)
  }
}
