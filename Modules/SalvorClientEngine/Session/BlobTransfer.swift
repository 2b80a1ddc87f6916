import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Moves the blobs that travel outside the payload (docs/architecture/blobs.md). Every call goes on where the one before
/// it was cut: what the other side has of a blob is asked, not remembered.
struct BlobTransfer {
  let configuration: ClientConfiguration

  private var store: any ClientStore { configuration.store }
  private var limits: Limits { configuration.limits }
  /// What a device that is killed fetches again of a blob.
  private static let partBytes = 1 << 20
  /// Blobs that the store is asked about at a time.
  private static let missingMax = 100
  /// What every server and everything on the way to it takes as an address; a longer key goes in a body.
  private static let addressBytesMax = 2048
  /// Small blobs that travel at one time: over a slow line each would cost a round trip by itself.
  private static let transfersMax = 4

  // MARK: Upload

  /// Sends those of an upload's blobs that the server lacks.
  ///
  /// - Parameter sent: set once a part has reached the server.
  func send(_ blobs: [OutgoingBlob], counting report: inout SyncReport, sent: inout Bool) async throws {
    var rest = blobs[...]
    while !rest.isEmpty {
      var batch: [BlobHash: OutgoingBlob] = [:]
      var references: [BlobReference] = []
      for blob in rest.prefix(BlobLimits.missingMax) {
        if batch.updateValue(blob, forKey: blob.reference.hash) == nil { references.append(blob.reference) }
      }
      rest = rest.dropFirst(BlobLimits.missingMax)
      let needs = try await missing(references, counting: &report)
      try await each(needs, size: \.reference.size, counting: &report, moved: &sent) { [batch] need, tally in
        guard let blob = batch[need.reference.hash], blob.reference == need.reference else {
          throw SalvorError(.malformed, "The server asks for a blob that this upload does not refer to.")
        }
        try await send(blob, from: need.received, counting: &tally.report, sent: &tally.hasMoved)
      }
    }
  }

  private func missing(
    _ references: [BlobReference], counting report: inout SyncReport
  ) async throws -> [BlobNeed] {
    let question: JSONValue = ["blobs": .array(references.map(\.json))]
    let response = try await configuration.request(
      "POST", "/v1/blobs/missing", question.bytes + [0x0A], counting: &report)
    let answer = try await response.body.collect(upTo: limits.chunkBytesMax)
    report.bytesReceived += Int64(answer.count)
    return try JSONValue(parsing: answer).array("blobs").map { entry in
      BlobNeed(reference: try BlobReference(entry), received: try entry.count("have"))
    }
  }

  private func send(
    _ blob: OutgoingBlob, from start: Int64, counting report: inout SyncReport, sent: inout Bool
  ) async throws {
    let (hash, size) = (blob.reference.hash, blob.reference.size)
    var offset = start
    var partBytes = limits.chunkBytesMax
    while offset < size {
      let part = try await store.outgoingBlob(blob, from: offset, count: partBytes)
      do {
        let response = try await configuration.request(
          "PUT", "/v1/blobs/\(hash)?size=\(size)&offset=\(offset)", part, isBinary: true, counting: &report)
        _ = try await response.body.collect(upTo: limits.chunkBytesMax)
      } catch let error as SalvorError where error.code == .tooLarge {
        // The server reads smaller parts than this.
        guard let limit = error.context["limit"].flatMap({ Int($0) }), (1..<part.count).contains(limit) else {
          throw error
        }
        partBytes = limit
        continue
      }
      offset += Int64(part.count)
      sent = true
    }
  }

  // MARK: Download

  /// Fetches the blobs that what is staged refers to. Throws `blob-gone` where one is not there any more.
  ///
  /// - Parameter received: set once a part has come.
  func fetch(
    counting report: inout SyncReport, received: inout Bool, progress: @Sendable (SyncProgress) -> Void
  ) async throws {
    while true {
      let missing = try await store.missingBlobs(limit: Self.missingMax)
      if missing.isEmpty { return }
      try await each(missing, size: \.reference.size, counting: &report, moved: &received) { blob, tally in
        try await fetch(blob, counting: &tally.report, received: &tally.hasMoved)
      } after: {
        progress(.downloading(bytes: $0.bytesReceived))
      }
    }
  }

  // MARK: Several at one time

  /// What one transfer did, also where it failed.
  private struct Tally: Sendable {
    var report = SyncReport()
    var hasMoved = false
    var failure: (any Error)?
  }

  /// Small blobs some at a time, large ones one after the other: both sides hold a whole value for each. Throws the first
  /// failure, once what was under way has ended.
  private func each<Blob: Sendable>(
    _ blobs: [Blob], size: (Blob) -> Int64, counting report: inout SyncReport, moved: inout Bool,
    _ transfer: @escaping @Sendable (Blob, inout Tally) async throws -> Void,
    after: (SyncReport) -> Void = { _ in }
  ) async throws {
    let small = blobs.filter { size($0) <= Self.partBytes }
    let large = blobs.filter { size($0) > Self.partBytes }
    for (blobs, atOnce) in [(small, Self.transfersMax), (large, 1)] {
      let failure = await withTaskGroup(of: Tally.self) { group in
        var next = blobs.startIndex
        var failure: (any Error)?
        for _ in 0..<atOnce { add() }
        while let tally = await group.next() {
          report.bytesSent += tally.report.bytesSent
          report.bytesReceived += tally.report.bytesReceived
          report.roundTrips += tally.report.roundTrips
          moved = moved || tally.hasMoved
          after(report)
          failure = failure ?? tally.failure
          if failure == nil { add() }
        }
        return failure

        func add() {
          guard next < blobs.endIndex else { return }
          let blob = blobs[next]
          next += 1
          group.addTask {
            var tally = Tally()
            do { try await transfer(blob, &tally) } catch { tally.failure = error }
            return tally
          }
        }
      }
      if let failure { throw failure }
    }
  }

  private func fetch(
    _ blob: MissingBlob, counting report: inout SyncReport, received: inout Bool
  ) async throws {
    let (reference, place) = (blob.reference, blob.place)
    guard reference.size <= limits.blobBytesMax else {
      throw SalvorError(
        .tooLarge,
        "The value of \(place.table).\(place.column) in the row with the key \(place.keyText) has \(reference.size) bytes, more than this device takes (client.limits.blobBytesMax \(limits.blobBytesMax)). Raise that, or make the value smaller at the server; until then nothing is downloaded.",
        context: ["table": place.table, "column": place.column])
    }
    let path = "/v1/blobs/\(reference.hash)?size=\(reference.size)&offset=\(blob.received)"
    let query =
      "&table=\(percentEncoded(place.table))&key=\(percentEncoded(place.keyText))"
      + "&column=\(percentEncoded(place.column))"
    let isShort = path.utf8.count + query.utf8.count <= Self.addressBytesMax
    let response = try await configuration.request(
      isShort ? "GET" : "POST", isShort ? path + query : path, isShort ? [] : place.json.bytes + [0x0A], isBinary: true,
      counting: &report)
    let parts = PartSource(response.body, partBytes: Self.partBytes)
    var offset = blob.received
    while let part = await parts.next() {
      report.bytesReceived += Int64(part.count)
      try await store.stageBlob(part, of: reference, at: offset)
      offset += Int64(part.count)
      received = true
    }
    if let failure = await parts.failure { throw failure }
    guard offset == reference.size else {
      throw SalvorError(.unreachable, "The server's answer was cut. The next sync goes on where this one stopped.")
    }
  }
}

/// A body in parts of one size. One that is cut gives what came of it first.
private actor PartSource {
  private let body: ByteStream
  private let partBytes: Int
  private var rest: [UInt8] = []
  private var isAtEnd = false
  private(set) var failure: (any Error)?

  init(_ body: ByteStream, partBytes: Int) {
    self.body = body
    self.partBytes = partBytes
  }

  func next() async -> [UInt8]? {
    while !isAtEnd, rest.count < partBytes {
      do {
        if let piece = try await body.next() { rest += piece } else { isAtEnd = true }
      } catch {
        failure = error
        isAtEnd = true
      }
    }
    if isAtEnd { await body.close() }
    guard !rest.isEmpty else { return nil }
    let part = Array(rest.prefix(partBytes))
    rest.removeFirst(part.count)
    return part
  }
}
