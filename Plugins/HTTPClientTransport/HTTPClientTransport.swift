#if HTTPClient && !canImport(Darwin)
  import CCurl
  import SalvorModel
  import SalvorTransport

  /// The library of this transport, for its descriptor.
  let httpLibrary = ["libcurl": String(cString: ccurl_version())]

  /// HTTP/1.1 by libcurl: one thread drives every transfer, and keeps connections to use them again.
  public final class HTTPClientTransport: ClientTransport, CompressionPreference {
    private let options: HTTPClientOptions
    private let driver: CurlDriver

    public var preferredCompression: String { options.compression }

    /// Opens nothing yet. Errors: `failed` where libcurl cannot be set up.
    public init(_ options: HTTPClientOptions, limits: Limits = Limits()) throws {
      self.options = options
      driver = try CurlDriver(options, responseBytesMax: limits.downloadBytesMax)
    }

    deinit { driver.requestClose() }

    public func close() async { await driver.close() }

    public func send(_ request: TransportRequest) async throws -> TransportResponse {
      let transfer: CurlTransfer
      do {
        try checkHead(request)
        try options.check(request)
      } catch {
        await request.body.close()
        throw error
      }
      do {
        let body = try await UploadBody(request)
        transfer = CurlTransfer(driver, request: request, url: options.url.text + request.path, body: body)
      } catch {
        throw Task.isCancelled ? SalvorError(.cancelled, "The exchange was cancelled.") : error
      }
      let head = try await withTaskCancellationHandler {
        try await transfer.start()
      } onCancel: {
        transfer.cancel()
      }
      return TransportResponse(
        status: head.status, headers: head.headers,
        body: ByteStream(
          next: {
            try await withTaskCancellationHandler {
              try await transfer.responseBody.take()
            } onCancel: {
              transfer.cancel()
            }
          }, close: { transfer.cancel() }),
        contentLength: head.contentLength)
    }

    /// Nothing of a request's head may end a line early. Errors: `usage`.
    private func checkHead(_ request: TransportRequest) throws {
      let isPathGood = request.path.hasPrefix("/") && request.path.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
      let isMethodGood =
        !request.method.isEmpty
        && request.method.utf8.allSatisfy { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) }
      guard isPathGood, isMethodGood else {
        throw SalvorError(
          .usage, "A request's method and path must be of HTTP: capitals, and an encoded absolute path.")
      }
      for (name, value) in request.headers {
        let isGood =
          !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
          && value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f || $0 == 0x09 }
        guard isGood else {
          throw SalvorError(.usage, "A request's header has a name or a value that HTTP does not allow.")
        }
      }
    }
  }

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
