#if HTTPServer
  import CMicrohttpd

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  // The C callbacks, as free functions: a closure written where an actor is inferred would be checked for that actor at
  // run time, on the library's threads.

  /// A connection is accepted, or closed: its descriptor is good until this has returned.
  func noteConnection(
    _ closure: UnsafeMutableRawPointer?, _ connection: OpaquePointer?,
    _ context: UnsafeMutablePointer<UnsafeMutableRawPointer?>?, _ code: MHD_ConnectionNotificationCode
  ) {
    guard let closure, let connection, let context else { return }
    let start = Unmanaged<DaemonStart>.fromOpaque(closure).takeUnretainedValue()
    if code == .CONNECTION_NOTIFY_STARTED {
      let address = PeerAddress(cmicrohttpd_peer(connection))
      let made = ClientConnection(
        cmicrohttpd_socket(connection), address, isOfProxy: start.core.proxies.isProxy(address),
        daemon: start)
      context.pointee = Unmanaged.passRetained(made).toOpaque()
      start.core.connections.add(made)
    } else if let pointer = context.pointee {
      context.pointee = nil
      start.core.connections.remove(Unmanaged<ClientConnection>.fromOpaque(pointer).takeRetainedValue())
    }
  }

  /// What `noteConnection` made for it.
  func clientConnection(_ connection: OpaquePointer) -> ClientConnection? {
    cmicrohttpd_context(connection).map { Unmanaged<ClientConnection>.fromOpaque($0).takeUnretainedValue() }
  }

  /// The request line is there: the exchange is made; `endRequest` gives it back.
  func beginRequest(
    _ closure: UnsafeMutableRawPointer?, _ uri: UnsafePointer<CChar>?, _ connection: OpaquePointer?
  ) -> UnsafeMutableRawPointer? {
    guard let closure, let connection else { return nil }
    let core = Unmanaged<DaemonStart>.fromOpaque(closure).takeUnretainedValue().core
    return Unmanaged.passRetained(ServerExchange(core: core, uri: uri, connection: connection)).toOpaque()
  }

  func handleRequest(
    _ closure: UnsafeMutableRawPointer?, _ connection: OpaquePointer?, _ url: UnsafePointer<CChar>?,
    _ method: UnsafePointer<CChar>?, _ version: UnsafePointer<CChar>?, _ data: UnsafePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>?, _ exchange: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> MHD_Result {
    guard let connection, let method, let size, let pointer = exchange?.pointee else { return .NO }
    return Unmanaged<ServerExchange>.fromOpaque(pointer).takeUnretainedValue()
      .handle(
        connection, method: String(cString: method), version: version.map { String(cString: $0) } ?? "", data: data,
        size: size)
  }

  func endRequest(
    _ closure: UnsafeMutableRawPointer?, _ connection: OpaquePointer?,
    _ exchange: UnsafeMutablePointer<UnsafeMutableRawPointer?>?, _ reason: MHD_RequestTerminationCode
  ) {
    guard let pointer = exchange?.pointee else { return }
    exchange?.pointee = nil
    Unmanaged<ServerExchange>.fromOpaque(pointer).takeRetainedValue()
      .end(isWhole: reason == .REQUEST_TERMINATED_COMPLETED_OK)
  }

  func readResponseBody(
    _ closure: UnsafeMutableRawPointer?, _ position: UInt64, _ buffer: UnsafeMutablePointer<CChar>?, _ size: Int
  ) -> Int {
    guard let closure else { return -2 }
    return Unmanaged<ServerExchange>.fromOpaque(closure).takeUnretainedValue()
      .read(into: UnsafeMutableRawBufferPointer(start: buffer, count: size))
  }

  func releaseExchange(_ closure: UnsafeMutableRawPointer?) {
    guard let closure else { return }
    Unmanaged<ServerExchange>.fromOpaque(closure).release()
  }

  /// The headers with lower-case names; those that come several times are joined by commas (RFC 9110, 5.3).
  func requestHeaders(_ connection: OpaquePointer) -> [String: String] {
    var headers: [String: String] = [:]
    withUnsafeMutablePointer(to: &headers) { pointer in
      _ = MHD_get_connection_values(connection, .HEADER_KIND, collectHeader, pointer)
    }
    return headers
  }

  private func collectHeader(
    _ closure: UnsafeMutableRawPointer?, _ kind: MHD_ValueKind, _ name: UnsafePointer<CChar>?,
    _ value: UnsafePointer<CChar>?
  ) -> MHD_Result {
    guard let headers = closure?.assumingMemoryBound(to: [String: String].self), let name else { return .NO }
    let key = String(cString: name).lowercased()
    let text = value.map { String(cString: $0) } ?? ""
    if let before = headers.pointee[key] {
      headers.pointee[key] = before + ", " + text
    } else {
      headers.pointee[key] = text
    }
    return .YES
  }
#endif
