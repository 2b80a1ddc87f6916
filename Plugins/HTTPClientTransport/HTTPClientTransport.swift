#if HTTPClient && !canImport(Darwin)
  import CCurl
  import SalvorModel
  import SalvorTransport

  /// The library of this transport, for its descriptor.
  let httpLibrary = ["libcurl": String(cString: ccurl_version())]

  /// HTTP/1.1 by libcurl: one thread drives every transfer, and keeps connections to use them again.
  public final class HTTPClientTransport: FileFetchingTransport, CompressionPreference {
    private let options: HTTPClientOptions
    private let driver: CurlDriver

    /// The option `compression`. The transport itself neither codes nor decodes.
    public var preferredCompression: String { options.compression }

    /// Opens nothing yet. Errors: `failed` where libcurl cannot be set up.
    public init(_ options: HTTPClientOptions, limits: Limits = Limits()) throws {
      self.options = options
      driver = try CurlDriver(options, responseBytesMax: limits.downloadBytesMax)
    }

    deinit { driver.requestClose() }

    /// Ends every transfer. Safe twice.
    public func close() async { await driver.close() }

    /// Errors: those of `ClientTransport`; `configuration` where a header is a credential that would travel to another
    /// machine in clear text.
    public func send(_ request: TransportRequest) async throws -> TransportResponse {
      do {
        try checkHead(request)
        try options.check(request)
      } catch {
        await request.body.close()
        throw error
      }
      return try await send(request, to: options.url, options.url.text + request.path)
    }

    /// Errors: those of `send`; `usage` where a header is a credential, or `address` is no http or https URL;
    /// `configuration` where the file would travel in clear text.
    public func fetch(_ address: String, headers: [String: String]) async throws -> TransportResponse {
      let request = TransportRequest(method: "GET", path: "/", headers: headers, contentLength: 0)
      try checkHead(request)
      return try await send(request, to: options.server(of: address, headers), address)
    }

    private func send(
      _ request: TransportRequest, to server: HTTPServerURL, _ address: String
    ) async throws -> TransportResponse {
      let transfer: CurlTransfer
      do {
        let body = try await UploadBody(request)
        transfer = CurlTransfer(driver, request: request, to: server, address, body: body)
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
