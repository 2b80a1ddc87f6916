import CZlib
import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// The content coding `gzip` (RFC 1952) of zlib.
public struct GzipCompression: Compression {
  /// zlib's level, 1 (least work) to 9 (fewest bytes).
  public let level: Int
  /// `gzip`, as `Content-Encoding` names the coding.
  public var token: String { "gzip" }

  /// - Parameter level: 1 (fast) to 9 (small).
  public init(level: Int = GzipCompression.defaultLevel) { self.level = min(9, max(1, level)) }

  /// The level where none is given: 3.
  public static let defaultLevel = 3

  /// The module `gzip` of the kind compression, with the option `level`.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .compression, name: "gzip", summary: "Content coding gzip, by zlib",
      options: [
        ModuleOption(
          "level", type: "integer", default: "\(defaultLevel)", "1 (least work) to 9 (fewest bytes)")
      ],
      guarantees: [
        "pieces of at most 64 KiB", "corrupt, truncated and trailing bytes are refused",
        "several members are read as one",
      ], libraries: ["zlib": String(cString: zlibVersion())]),
    product: (any Compression).self
  ) { reader, _ in
    let level = reader.integer("level", in: 1...9, default: Int64(defaultLevel))
    return { GzipCompression(level: Int(level)) }
  }

  /// Errors: `failed` where zlib gets no memory for the stream.
  public func makeCompressor() throws -> any StreamCoder { try GzipCompressor(level: Int32(level)) }
  /// Reads several members as one stream. Errors: `failed` where zlib gets no memory for the stream.
  public func makeDecompressor() throws -> any StreamCoder { try GzipDecompressor() }
}

/// zlib keeps a pointer to its stream: it must not move.
private typealias Stream = UnsafeMutablePointer<z_stream>

private func outOfMemory() -> SalvorError {
  SalvorError(.failed, "zlib could not get memory for a stream. Free memory on this machine.")
}

private final class GzipCompressor: StreamCoder, @unchecked Sendable {
  private let stream: Stream
  private var buffer: [UInt8] = []

  init(level: Int32) throws {
    stream = .allocate(capacity: 1)
    stream.initialize(to: z_stream())
    guard czlib_deflate_init(stream, level) == Z_OK else {
      stream.deallocate()
      throw outOfMemory()
    }
  }

  deinit {
    deflateEnd(stream)
    stream.deallocate()
  }

  func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
    try run(input, mode: Z_NO_FLUSH, output: output)
  }

  func flush(output: ([UInt8]) throws -> Void) throws {
    try run([], mode: Z_SYNC_FLUSH, output: output)
    try emit(output)
  }

  func finish(output: ([UInt8]) throws -> Void) throws {
    try run([], mode: Z_FINISH, output: output)
    try emit(output)
  }

  private func emit(_ output: ([UInt8]) throws -> Void) throws {
    guard !buffer.isEmpty else { return }
    defer { buffer = [] }
    try output(buffer)
  }

  /// Hands a piece on only when it is full: deflate dribbles.
  private func run(_ input: [UInt8], mode: Int32, output: ([UInt8]) throws -> Void) throws {
    try input.withUnsafeBufferPointer { bytes in
      // zlib does not write through `next_in`; its declaration predates const.
      stream.pointee.next_in = UnsafeMutablePointer(mutating: bytes.baseAddress)
      stream.pointee.avail_in = UInt32(bytes.count)
      defer { stream.pointee.next_in = nil }
      var isDone = false
      while !isDone {
        let room = pieceBytesMax - buffer.count
        let made = try withUnsafeTemporaryAllocation(of: UInt8.self, capacity: room) { out in
          stream.pointee.next_out = out.baseAddress
          stream.pointee.avail_out = UInt32(room)
          let result = deflate(stream, mode)
          guard result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR else {
            throw SalvorError(.failed, "zlib could not compress (result \(result)).")
          }
          let made = room - Int(stream.pointee.avail_out)
          buffer.append(contentsOf: out[0..<made])
          return made
        }
        isDone = made < room
        if buffer.count == pieceBytesMax { try emit(output) }
      }
    }
  }
}

private final class GzipDecompressor: StreamCoder, @unchecked Sendable {
  private let stream: Stream
  /// Between members: the body may end here.
  private var isMemberEnd = false

  init() throws {
    stream = .allocate(capacity: 1)
    stream.initialize(to: z_stream())
    guard czlib_inflate_init(stream) == Z_OK else {
      stream.deallocate()
      throw outOfMemory()
    }
  }

  deinit {
    inflateEnd(stream)
    stream.deallocate()
  }

  func code(_ input: [UInt8], output: ([UInt8]) throws -> Void) throws {
    guard !input.isEmpty else { return }
    try input.withUnsafeBufferPointer { bytes in
      stream.pointee.next_in = UnsafeMutablePointer(mutating: bytes.baseAddress)
      stream.pointee.avail_in = UInt32(bytes.count)
      defer { stream.pointee.next_in = nil }
      var isDone = false
      while !isDone {
        if isMemberEnd {
          guard stream.pointee.avail_in > 0 else { return }
          // Another member, or garbage: zlib tells them apart by the header.
          inflateReset(stream)
          isMemberEnd = false
        }
        let piece = try [UInt8](unsafeUninitializedCapacity: pieceBytesMax) { out, count in
          stream.pointee.next_out = out.baseAddress
          stream.pointee.avail_out = UInt32(pieceBytesMax)
          let result = inflate(stream, Z_NO_FLUSH)
          count = pieceBytesMax - Int(stream.pointee.avail_out)
          switch result {
          case Z_STREAM_END: isMemberEnd = true
          case Z_OK, Z_BUF_ERROR: isDone = stream.pointee.avail_out > 0
          case Z_MEM_ERROR: throw outOfMemory()
          default:
            throw SalvorError(.malformed, "A gzip body is corrupt, or something follows it. Send it again.")
          }
        }
        if !piece.isEmpty { try output(piece) }
      }
    }
  }

  func finish(output: ([UInt8]) throws -> Void) throws {
    guard isMemberEnd else {
      throw SalvorError(.malformed, "A gzip body ends before its end. Send it again.")
    }
  }

  func flush(output: ([UInt8]) throws -> Void) throws {}
}
