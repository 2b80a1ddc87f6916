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
#endif
