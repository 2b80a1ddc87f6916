#if Zstd
  import CZstd
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport

  /// The content coding `zstd` (RFC 8878) of libzstd.
  public struct ZstdCompression: Compression {
    /// libzstd's level, 1 (least work) to 19 (fewest bytes).
    public let level: Int
    /// `zstd`, as `Content-Encoding` names the coding.
    public var token: String { "zstd" }

    /// - Parameter level: 1 (fast) to 19 (small).
    public init(level: Int = ZstdCompression.defaultLevel) { self.level = min(19, max(1, level)) }

    /// The level where none is given: 3.
    public static let defaultLevel = 3
    /// What every decoder of the coding must take (RFC 9659): 8 MiB.
    static let windowLogMax: Int32 = 23

    /// The module `zstd` of the kind compression, with the option `level`.
    public static let factory = ModuleFactory(
      ModuleDescriptor(
        kind: .compression, name: "zstd", summary: "Content coding zstd, by libzstd",
        options: [
          ModuleOption("level", type: "integer", default: "\(defaultLevel)", "1 (least work) to 19 (fewest bytes)")
        ],
        guarantees: [
          "pieces of at most 64 KiB", "corrupt, truncated and trailing bytes are refused",
          "several frames are read as one",
        ], libraries: ["zstd": String(cString: ZSTD_versionString())]),
      product: (any Compression).self
    ) { reader, _ in
      let level = reader.integer("level", in: 1...19, default: Int64(defaultLevel))
      return { ZstdCompression(level: Int(level)) }
    }

    /// Errors: `failed` where libzstd gets no memory for the stream.
    public func makeCompressor() throws -> any StreamCoder { try makeCompressor(bytes: nil) }
    /// The frame names its content's size where it is known. Errors: as without.
    public func makeCompressor(bytes: Int64?) throws -> any StreamCoder {
      try ZstdCompressor(level: Int32(level), bytes: bytes)
    }
    /// Reads several frames as one stream, each with a window of at most 8 MiB. Errors: `failed` where libzstd gets no
    /// memory for the stream.
    public func makeDecompressor() throws -> any StreamCoder { try ZstdDecompressor() }
  }

  private func outOfMemory() -> SalvorError {
    SalvorError(.failed, "libzstd could not get memory for a stream. Free memory on this machine.")
  }

  private final class ZstdCompressor: StreamCoder, @unchecked Sendable {
    private let stream: OpaquePointer
    private var buffer: [UInt8] = []

    init(level: Int32, bytes: Int64?) throws {
      guard let stream = ZSTD_createCCtx() else { throw outOfMemory() }
      self.stream = stream
      for (parameter, value) in [
        (ZSTD_c_compressionLevel, level), (ZSTD_c_checksumFlag, 1), (ZSTD_c_windowLog, min(21, level + 18)),
      ] {
        guard ZSTD_isError(ZSTD_CCtx_setParameter(stream, parameter, value)) == 0 else { throw outOfMemory() }
      }
      if let bytes { ZSTD_CCtx_setPledgedSrcSize(stream, UInt64(bytes)) }
    }

    deinit { ZSTD_freeCCtx(stream) }

    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws { try run(input, ZSTD_e_continue, output) }

    func flush(output: ([UInt8]) throws -> Void) throws {
      try run([], ZSTD_e_flush, output)
      try emit(output)
    }

    func finish(output: ([UInt8]) throws -> Void) throws {
      try run([], ZSTD_e_end, output)
      try emit(output)
    }

    private func emit(_ output: ([UInt8]) throws -> Void) throws {
      guard !buffer.isEmpty else { return }
      defer { buffer = [] }
      try output(buffer)
    }

    /// Hands a piece on only when it is full.
    private func run(_ input: [UInt8], _ mode: ZSTD_EndDirective, _ output: ([UInt8]) throws -> Void) throws {
      try input.withUnsafeBytes { bytes in
        var source = ZSTD_inBuffer(src: bytes.baseAddress, size: bytes.count, pos: 0)
        var isDone = false
        while !isDone {
          let room = pieceBytesMax - buffer.count
          try withUnsafeTemporaryAllocation(of: UInt8.self, capacity: room) { out in
            var target = ZSTD_outBuffer(dst: out.baseAddress, size: room, pos: 0)
            let left = ZSTD_compressStream2(stream, &target, &source, mode)
            guard ZSTD_isError(left) == 0 else {
              throw SalvorError(.failed, "libzstd could not compress: \(String(cString: ZSTD_getErrorName(left))).")
            }
            buffer.append(contentsOf: out[0..<target.pos])
            isDone = mode == ZSTD_e_continue ? source.pos == source.size : left == 0
          }
          if buffer.count == pieceBytesMax { try emit(output) }
        }
      }
    }
  }

  private final class ZstdDecompressor: StreamCoder, @unchecked Sendable {
    private let stream: OpaquePointer
    /// Between frames: the body may end here. Not before the first: an empty body is none.
    private var isFrameEnd = false

    init() throws {
      guard let stream = ZSTD_createDCtx() else { throw outOfMemory() }
      self.stream = stream
      guard ZSTD_isError(ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, ZstdCompression.windowLogMax)) == 0 else {
        throw outOfMemory()
      }
    }

    deinit { ZSTD_freeDCtx(stream) }

    func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
      guard !input.isEmpty else { return }
      try input.withUnsafeBytes { bytes in
        var source = ZSTD_inBuffer(src: bytes.baseAddress, size: bytes.count, pos: 0)
        var isFull = false
        while source.pos < source.size || isFull {
          isFull = false
          let piece = try [UInt8](unsafeUninitializedCapacity: pieceBytesMax) { out, count in
            var target = ZSTD_outBuffer(dst: out.baseAddress, size: pieceBytesMax, pos: 0)
            let wanted = ZSTD_decompressStream(stream, &target, &source)
            guard ZSTD_isError(wanted) == 0 else {
              throw SalvorError(.malformed, "A zstd body is corrupt, or something follows it. Send it again.")
            }
            isFrameEnd = wanted == 0
            count = target.pos
            // More may wait inside; after a frame's end nothing does.
            isFull = target.pos == target.size && !isFrameEnd
          }
          if !piece.isEmpty { try output(piece) }
        }
      }
    }

    func finish(output: ([UInt8]) throws -> Void) throws {
      guard isFrameEnd else {
        throw SalvorError(.malformed, "A zstd body ends before its end. Send it again.")
      }
    }

    func flush(output: ([UInt8]) throws -> Void) throws {}
  }
#endif
