#if HTTPServer
  import CMicrohttpd
  import SalvorModel

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// What a refusal says: a problem of RFC 9457, as the engine's have it.
  ///
  /// - Parameter limit: how many bytes would be taken.
  func problemBody(_ code: ErrorCode, status: Int, _ detail: String, limit: Int? = nil) -> [UInt8] {
    let context = limit.map { ",\"limit\":\"\($0)\"" } ?? ""
    let text =
      "{\"type\":\"about:blank\",\"title\":\"\(code.rawValue)\",\"status\":\(status),\"detail\":\"\(detail)\",\"code\":\"\(code.rawValue)\",\"number\":\(code.number)\(context)}"
    return Array(text.utf8)
  }

  /// A whole response for a connection that the library does not ask about: it is sent past the library, and the
  /// connection is closed.
  func refusalBytes(_ code: ErrorCode, status: Int, _ detail: String, retryAfterSeconds: Int? = nil) -> [UInt8] {
    let body = problemBody(code, status: status, detail)
    let reason = MHD_get_reason_phrase_for(UInt32(status)).map { String(cString: $0) } ?? "Refused"
    let retry = retryAfterSeconds.map { "retry-after: \($0)\r\n" } ?? ""
    let head =
      "HTTP/1.1 \(status) \(reason)\r\ncontent-type: application/problem+json\r\n\(retry)connection: close\r\ncontent-length: \(body.count)\r\n\r\n"
    return Array(head.utf8) + body
  }

  private typealias QueueResponse = @convention(c) (OpaquePointer?, UInt32, OpaquePointer?) -> MHD_Result

  /// The library's own function, behind the definition below.
  private let queueInLibrary: QueueResponse? = {
    // RTLD_NEXT, a cast that the importer does not see.
    let found = dlsym(UnsafeMutableRawPointer(bitPattern: -1), "MHD_queue_response")
    return found.map { unsafeBitCast($0, to: QueueResponse.self) }
  }()

  /// Queues a response of this transport's.
  func queueResponse(_ connection: OpaquePointer, _ status: Int, _ response: OpaquePointer) -> MHD_Result {
    queueInLibrary?(connection, UInt32(clamping: status), response) ?? .NO
  }

  /// libmicrohttpd refuses what it cannot read by itself, with pages in HTML, and has no hook for that (0.9.75). It
  /// queues them with its public function, and calls it by name: on Linux a definition in the program comes before the
  /// library's. So whatever arrives here is the library's own answer, and goes out as a problem like all others
  /// (docs/decisions/0044-the-librarys-own-refusals.md). Nobody in the program calls it: it must be visible, or an optimized build
  /// keeps it from the library.
  @_cdecl("MHD_queue_response")
  @usableFromInline func queueRefusalOfLibrary(
    _ connection: OpaquePointer?, _ status: UInt32, _ response: OpaquePointer?
  ) -> MHD_Result {
    guard let queueInLibrary else { return .NO }
    let (code, detail): (ErrorCode, String) =
      switch status {
      case 413: (.tooLarge, "The body that the request announces is too large. Send less in one request.")
      case 414, 431: (.tooLarge, "The request's head is too large. Send fewer or shorter headers.")
      case 408: (.timeout, "The request did not come in time. Send it again.")
      case 505: (.protocolVersion, "This server speaks HTTP/1.1. Send the request as that.")
      case 400..<500, 501: (.malformed, "The request is not well-formed HTTP/1.1. Correct its head.")
      default: (.failed, "The server could not take the request. Try again later.")
      }
    // Past the library, which writes the head of some of these answers twice (0.9.75); it closes the connection then.
    if let connection, let client = clientConnection(connection), !client.isSecure {
      let bytes = refusalBytes(code, status: Int(status), detail)
      bytes.withUnsafeBytes { cmicrohttpd_say(client.descriptor, $0.baseAddress, $0.count) }
      let copy = dup(client.descriptor)
      if copy >= 0 { client.daemon.core.startLingering(copy) }
      return .NO
    }
    var body = problemBody(code, status: Int(status), detail)
    guard let problem = MHD_create_response_from_buffer(body.count, &body, .RESPMEM_MUST_COPY) else {
      return queueInLibrary(connection, status, response)
    }
    defer { MHD_destroy_response(problem) }
    MHD_add_response_header(problem, "content-type", "application/problem+json")
    MHD_add_response_header(problem, "connection", "close")
    return queueInLibrary(connection, status, problem)
  }
#endif
