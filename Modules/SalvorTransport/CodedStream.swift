import SalvorModel

extension ByteStream {
  /// These bytes as `compression` codes them, made while they are pulled: no more than a piece of either side is held.
  ///
  /// - Parameter bytes: exactly how many these are, where that is known.
  public func compressed(by compression: any Compression, bytes: Int64? = nil) throws -> ByteStream {
    let coder = try compression.makeCompressor(bytes: bytes)
    return CodedSource(self, coder: coder, sliceBytes: pieceBytesMax, limit: nil).stream
  }

  /// What `compression` coded, decoded while it is pulled. Errors: `malformed` where the coded bytes are corrupt or end
  /// too early; `tooLarge` where more than `limit` bytes come out, after at most `limit` of them were handed on.
  public func decompressed(by compression: any Compression, limit: Int) throws -> ByteStream {
    // A slice of 4 KiB can become 4 MiB of zeros at most (deflate codes 1032:1): that bounds what is held.
    CodedSource(self, coder: try compression.makeDecompressor(), sliceBytes: 4 << 10, limit: limit).stream
  }
}

/// Runs one stream through a coder, slice by slice.
private actor CodedSource {
  private let source: ByteStream
  private let coder: any StreamCoder
  private let sliceBytes: Int
  private let limit: Int?
  private var input: ArraySlice<UInt8> = []
  /// Coded and not handed on yet, youngest first.
  private var ready: [[UInt8]] = []
  private var total = 0
  private var isFinished = false
  private var isClosed = false

  init(_ source: ByteStream, coder: any StreamCoder, sliceBytes: Int, limit: Int?) {
    self.source = source
    self.coder = coder
    self.sliceBytes = sliceBytes
    self.limit = limit
  }

  nonisolated var stream: ByteStream {
    ByteStream(next: { try await self.next() }, close: { await self.close() })
  }

  private func next() async throws -> [UInt8]? {
    while ready.isEmpty {
      if isFinished { return nil }
      if input.isEmpty {
        if let piece = try await source.next() {
          input = piece[...]
        } else {
          isFinished = true
          try run { try coder.finish(output: $0) }
          continue
        }
      }
      let slice = input.prefix(sliceBytes)
      input = input.dropFirst(sliceBytes)
      try run { try coder.code(Array(slice), output: $0) }
    }
    return ready.removeLast()
  }

  private func run(_ work: (([UInt8]) throws -> Void) throws -> Void) throws {
    var made: [[UInt8]] = []
    var total = total
    try work { piece in
      total += piece.count
      if let limit, total > limit {
        throw SalvorError(
          .tooLarge, "A body is larger than \(limit) bytes after decompression. Send it in smaller parts.",
          context: ["limit": "\(limit)"])
      }
      if !piece.isEmpty { made.append(piece) }
    }
    self.total = total
    ready = made.reversed()
  }

  private func close() async {
    guard !isClosed else { return }
    isClosed = true
    ready = []
    await source.close()
  }
}
