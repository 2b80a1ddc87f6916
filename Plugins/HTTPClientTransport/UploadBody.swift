#if HTTPClient
  import SalvorTransport

  /// How a request's body goes out.
  enum UploadBody {
    case none
    case bytes([UInt8])
    case stream(ByteStream, length: Int?)

    /// Looks at the first piece, in the caller's task: a small body needs no more tasks and no pauses. Closes the body
    /// where it does not become a stream.
    init(_ request: TransportRequest) async throws {
      if let length = request.contentLength {
        if length > pieceBytesMax {
          self = .stream(request.body.exactly(length), length: length)
        } else {
          let bytes = try await request.body.exactly(length).collect(upTo: length)
          self = bytes.isEmpty ? .none : .bytes(bytes)
        }
      } else {
        do {
          if let first = try await request.body.next() {
            self = .stream(request.body.behind(first), length: nil)
            return
          }
        } catch {
          await request.body.close()
          throw error
        }
        await request.body.close()
        self = .none
      }
    }
  }

  extension ByteStream {
    /// `first`, then this stream.
    fileprivate func behind(_ first: [UInt8]) -> ByteStream {
      let head = ByteStream.bytes(first)
      return ByteStream(
        next: {
          if let piece = try await head.next() { return piece }
          return try await next()
        }, close: close)
    }
  }
#endif
