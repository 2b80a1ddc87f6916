import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Blobs that travel outside the payload (docs/reference/protocol.md, *Blobs*). A principal learns of a blob only where it
/// has sent it, or may read a row that holds it.
extension ServerEngine {
  func blobs(_ request: TransportRequest, _ name: String) async throws -> TransportResponse {
    let principal = try await authenticate(request)
    if request.method == "POST", name == "missing" { return try await missingBlobs(request, principal) }
    // The key of a row may be longer than an address: then its place stands in the body.
    var body: JSONValue?
    if request.method == "POST" { body = try await parsedBody(request, limit: chunkLimit) }
    guard let hash = BlobHash(name), let address = BlobAddress(request.path, hash, body) else {
      throw SalvorError(
        .malformed,
        "A blob's path is /v1/blobs/SHA256?size=BYTES&offset=BYTES; to read one, with &table=NAME&key=JSON&column=NAME or as a POST with {\"table\":NAME,\"key\":[…],\"column\":NAME}."
      )
    }
    switch request.method {
    case "PUT": return try await receiveBlob(request, address, principal)
    case "GET", "POST": return try await sendBlob(address, principal)
    default: throw SalvorError(.notFound, "A blob is read with GET or POST and sent with PUT.")
    }
  }

  /// `POST /v1/blobs/missing`: which of these blobs the device must send, and how much of each is staged.
  private func missingBlobs(_ request: TransportRequest, _ principal: Principal) async throws -> TransportResponse {
    let entries = try await parsedBody(request, limit: configuration.limits.beginBytesMax).array("blobs")
    guard entries.count <= BlobLimits.missingMax else {
      throw SalvorError(.tooLarge, "One question names at most \(BlobLimits.missingMax) blobs.")
    }
    let needs = try await configuration.store.missingBlobs(
      of: try entries.map { try BlobReference($0) }, for: principal)
    let list = needs.map { need -> JSONValue in
      [
        "ref": .string(need.reference.hash.text), "size": .integer(need.reference.size),
        "have": .integer(need.received),
      ]
    }
    return json(["blobs": .array(list)])
  }

  /// `PUT /v1/blobs/HASH?size=N&offset=N`: one part, as it is.
  private func receiveBlob(
    _ request: TransportRequest, _ address: BlobAddress, _ principal: Principal
  ) async throws -> TransportResponse {
    let part = try await decodedBody(request, limit: configuration.limits.chunkBytesMax)
    await sessions.touch(principal)
    _ = try await write(for: principal) {
      try await $0.stageBlob(part, of: address.reference, at: address.offset, for: principal)
    }
    await sessions.touch(principal)
    return TransportResponse(status: 204, contentLength: 0)
  }

  /// `GET /v1/blobs/HASH?size=N&offset=N&table=…&key=…&column=…`, or `POST` with the place in the body: the bytes from the
  /// offset on.
  private func sendBlob(_ address: BlobAddress, _ principal: Principal) async throws -> TransportResponse {
    guard
      let content = try await configuration.store.blobContent(
        of: address.reference, at: address.place, for: principal)
    else {
      throw SalvorError(
        .blobGone, "There is no such blob any more, or none that may be read. Begin the download again.")
    }
    guard address.offset <= Int64(content.count) else {
      throw SalvorError(.malformed, "The offset lies beyond the blob's end.")
    }
    let rest = content.count - Int(address.offset)
    return TransportResponse(
      status: 200, headers: ["content-type": "application/octet-stream"],
      body: BlobPieces(content, from: Int(address.offset)).stream, contentLength: rest)
  }
}

/// What a request says of a blob.
private struct BlobAddress {
  var reference: BlobReference
  var offset: Int64
  var place: BlobPlace?

  /// Nil where something of it is not well formed.
  ///
  /// - Parameter body: where the row is; nil: the path says it, or nothing does.
  init?(_ path: String, _ hash: BlobHash, _ body: JSONValue?) {
    let query = queryParameters(path)
    guard let size = query["size"].flatMap({ Int64($0) }), size >= 0,
      let offset = Int64(query["offset"] ?? "0"), offset >= 0
    else { return nil }
    reference = BlobReference(hash: hash, size: size)
    self.offset = offset
    guard let json = body ?? Self.place(query) else { return }
    guard let place = BlobPlace(json) else { return nil }
    self.place = place
  }

  private static func place(_ query: [String: String]) -> JSONValue? {
    guard let table = query["table"], let key = query["key"], let column = query["column"] else { return nil }
    return [
      "table": .string(percentDecoded(table)),
      "key": (try? JSONValue(parsing: Array(percentDecoded(key).utf8))) ?? .null,
      "column": .string(percentDecoded(column)),
    ]
  }
}

/// Hands a blob out piece by piece: the transport holds a few of them.
private actor BlobPieces {
  private let content: [UInt8]
  private var offset: Int
  private static let pieceBytes = 256 << 10

  init(_ content: [UInt8], from offset: Int) {
    self.content = content
    self.offset = offset
  }

  nonisolated var stream: ByteStream { ByteStream(next: { await self.next() }, close: {}) }

  private func next() -> [UInt8]? {
    guard offset < content.count else { return nil }
    let end = min(content.count, offset + Self.pieceBytes)
    defer { offset = end }
    return Array(content[offset..<end])
  }
}
