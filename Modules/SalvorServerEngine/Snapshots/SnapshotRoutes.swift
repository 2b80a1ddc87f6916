import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `GET` and `HEAD /v1/snapshots/ID?expires=…&scope=…&signature=…`: the file, or one range of it. Whoever has the link may
  /// fetch it until it expires, as from a cache that knows no devices.
  func snapshots(_ request: TransportRequest, _ id: String) async throws -> TransportResponse {
    guard request.method == "GET" || request.method == "HEAD" else {
      throw SalvorError(.notFound, "A snapshot is read with GET.")
    }
    let query = queryParameters(request.path)
    guard let shelf else { throw SalvorError(.notFound, "This server offers no snapshots.") }
    let expires = query["expires"].flatMap { Int64($0) } ?? 0
    let scope = percentDecoded(query["scope"] ?? "")
    // Before anything is looked up: who guesses an ID learns nothing, nor by the time that it takes.
    let expected = try shelf.folder.signature(of: signed(id, scope, expires))
    guard isEqualInConstantTime(Array(expected.utf8), Array((query["signature"] ?? "").utf8)),
      expires > configuration.clock.now()
    else {
      throw SalvorError(
        .forbidden, "This link to a snapshot is not valid, or not any more. Begin a synchronization for a new one.")
    }
    guard let snapshot = try await shelf.snapshot(id) else {
      throw SalvorError(.notFound, "This snapshot is not kept any more. Begin a synchronization: it names another.")
    }
    return try await send(snapshot, shelf, request)
  }

  private func send(
    _ snapshot: Snapshot, _ shelf: SnapshotShelf, _ request: TransportRequest
  ) async throws -> TransportResponse {
    let tag = "\"\(snapshot.id)\""
    var headers = [
      "content-type": "application/octet-stream", "etag": tag, "accept-ranges": "bytes",
      "cache-control": "private, max-age=31536000, immutable",
    ]
    if let known = request.headers["if-none-match"], known == tag || known == "*" {
      return TransportResponse(status: 304, headers: headers, contentLength: 0)
    }
    var range = ByteRange.all
    // A range of another file is of no use: the whole one comes.
    if let asked = request.headers["range"], request.headers["if-range"].map({ $0 == tag }) ?? true {
      range = ByteRange(asked, of: snapshot.bytes)
    }
    let first: Int64
    let count: Int64
    switch range {
    case .all: (first, count) = (0, snapshot.bytes)
    case .part(let start, let length):
      (first, count) = (start, length)
      headers["content-range"] = "bytes \(start)-\(start + length - 1)/\(snapshot.bytes)"
    case .unsatisfiable:
      headers["content-range"] = "bytes */\(snapshot.bytes)"
      headers["content-type"] = Problem.contentType
      let body = Problem.json(
        SalvorError(.malformed, "The snapshot has \(snapshot.bytes) bytes, and the range lies beyond its end.")
      ).bytes
      return TransportResponse(status: 416, headers: headers, body: .bytes(body), contentLength: body.count)
    }
    let status = range == .all ? 200 : 206
    guard request.method == "GET" else {
      return TransportResponse(status: status, headers: headers, contentLength: Int(count))
    }
    let paces = [BytePace(shelf.settings.bytesPerSecond), shelf.pace].compactMap(\.self)
    let pieceBytes = paces.isEmpty ? Self.filePieceBytes : BytePace.pieceBytes
    guard let open = try shelf.folder.open(snapshot, from: first, count: count, pieceBytes: pieceBytes) else {
      try await shelf.remove(snapshot.id)
      throw SalvorError(.notFound, "This snapshot is not kept any more. Begin a synchronization: it names another.")
    }
    let metrics = metrics
    metrics.snapshotsSent.add(1)
    let pieces = open.pieces
    let stream = ByteStream(next: {
      guard let piece = try await pieces() else { return nil }
      for pace in paces { try await pace.wait(piece.count) }
      metrics.snapshotBytesSent.add(Int64(piece.count))
      return piece
    })
    var response = TransportResponse(status: status, headers: headers, body: stream, contentLength: Int(count))
    if paces.isEmpty, let descriptor = open.descriptor {
      response.file = FileBody(descriptor: descriptor, offset: first, count: count, keeping: pieces) {
        metrics.snapshotBytesSent.add(count)
      }
    }
    return response
  }

  private static var filePieceBytes: Int { 256 << 10 }
}

/// One range of bytes (RFC 9110, 14). Several at once, and what is no range of bytes, are passed over, as it allows.
enum ByteRange: Equatable {
  case all
  case part(first: Int64, count: Int64)
  case unsatisfiable

  init(_ header: String, of size: Int64) {
    self = .all
    guard header.hasPrefix("bytes=") else { return }
    let bounds = header.dropFirst(6).split(separator: "-", omittingEmptySubsequences: false)
    guard bounds.count == 2, bounds.allSatisfy({ $0.allSatisfy { $0.isASCII && $0.isNumber } }) else { return }
    // A number of any length is one: beyond every end.
    func number(_ digits: Substring) -> Int64? { digits.isEmpty ? nil : Int64(digits) ?? .max }
    switch (number(bounds[0]), number(bounds[1])) {
    case (let first?, let last):
      guard last.map({ $0 >= first }) ?? bounds[1].isEmpty else { return }
      self = first < size ? .part(first: first, count: min(last ?? .max - 1, size - 1) - first + 1) : .unsatisfiable
    case (nil, let length?) where bounds[0].isEmpty:
      self = length > 0 && size > 0 ? .part(first: max(0, size - length), count: min(length, size)) : .unsatisfiable
    default: return
    }
  }
}
