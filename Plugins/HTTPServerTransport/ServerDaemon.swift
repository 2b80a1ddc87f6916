#if HTTPServer
  import CMicrohttpd
  import SalvorModel
  import SalvorTransport

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// A running libmicrohttpd and its threads.
  final class ServerDaemon: @unchecked Sendable {
    let url: String
    private let core: ServerCore
    private let daemon: OpaquePointer
    private let socket: ListeningSocket
    private let closure: Unmanaged<ServerCore>
    private let watch: Task<Void, Never>
    /// The library keeps pointing at them.
    private let certificate: UnsafeMutablePointer<CChar>?
    private let key: UnsafeMutablePointer<CChar>?

    /// Files and sockets of this process that are no connection of a client's.
    private static let otherDescriptors = 128

    /// Blocks for a moment (name look-up, threads). Errors: `configuration`.
    init(_ core: ServerCore, options: HTTPServerOptions, connectionsMax: Int) throws {
      var certificate: UnsafeMutablePointer<CChar>?
      var key: UnsafeMutablePointer<CChar>?
      if let tls = options.tls {
        guard MHD_is_feature_supported(.FEATURE_TLS) == .YES else {
          throw SalvorError(
            .configuration, "This libmicrohttpd was built without TLS. Install one with it, or drop tls.")
        }
        certificate = try Self.text(ofFile: tls.certificate)
        do {
          key = try Self.text(ofFile: tls.key)
        } catch {
          free(certificate)
          throw error
        }
      }
      let socket: ListeningSocket
      do {
        socket = try ListeningSocket(address: options.address, port: options.port)
      } catch {
        free(certificate)
        free(key)
        throw error
      }
      let descriptors = UInt(connectionsMax + Self.otherDescriptors)
      let allowed = cmicrohttpd_allow_descriptors(descriptors)
      if allowed < descriptors {
        core.log(
          "This process may have \(allowed) files and connections open, fewer than connectionsMax (\(connectionsMax)) needs. Raise its limit (ulimit -n), or lower connectionsMax."
        )
      }
      let closure = Unmanaged.passRetained(core)
      var configuration = CMicrohttpdConfiguration()
      configuration.flags = MHD_USE_AUTO_INTERNAL_THREAD.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
      if options.tls != nil { configuration.flags |= MHD_USE_TLS.rawValue }
      configuration.listenSocket = socket.descriptor
      configuration.memoryLimit = 32 << 10
      configuration.connectionLimit = UInt32(clamping: max(connectionsMax, options.threads))
      configuration.timeoutSeconds = UInt32(clamping: options.idleTimeoutSeconds)
      configuration.threads = UInt32(clamping: options.threads)
      configuration.certificate = certificate.map { UnsafePointer($0) }
      configuration.key = key.map { UnsafePointer($0) }
      guard
        let daemon = cmicrohttpd_start(
          &configuration, handleRequest, endRequest, beginRequest, closure.toOpaque())
      else {
        closure.release()
        close(socket.descriptor)
        free(certificate)
        free(key)
        throw SalvorError(
          .configuration,
          options.tls == nil
            ? "libmicrohttpd could not start. Look at the limits of threads and files of this process."
            : "libmicrohttpd could not start. Check that the TLS certificate and key are PEM and belong together.")
      }
      self.core = core
      self.daemon = daemon
      self.socket = socket
      self.closure = closure
      self.certificate = certificate
      self.key = key
      let host =
        switch options.address {
        case "0.0.0.0": "127.0.0.1"
        case "::": "[::1]"
        case let address: address.contains(":") ? "[\(address)]" : address
        }
      url = "\(options.tls == nil ? "http" : "https")://\(host):\(socket.port)"
      watch = Task { await core.watch() }
    }

    private static func text(ofFile path: String) throws -> UnsafeMutablePointer<CChar> {
      guard let file = fopen(path, "r") else {
        throw SalvorError(
          .configuration, "Cannot read the TLS file: \(String(cString: strerror(errno))). Check tls.",
          context: ["file": path])
      }
      defer { fclose(file) }
      let bytesMax = 1 << 20
      guard let buffer = malloc(bytesMax + 1)?.assumingMemoryBound(to: CChar.self) else {
        throw SalvorError(.failed, "There is no memory for the TLS files.")
      }
      let count = fread(buffer, 1, bytesMax, file)
      buffer[count] = 0
      return buffer
    }

    /// Takes no new request, waits for those in flight, ends those that are left, and gives everything back. Once.
    ///
    /// libmicrohttpd aborts the process if a connection is suspended when it stops. None is by then: from the first line
    /// on no gate opens, and each open one belongs to an exchange that has ended or was aborted below (ConnectionGate).
    /// A request that is refused from here on need not get its 503: a daemon that is being stopped drops an answer
    /// without saying so and calls back as if there had been none (seen in 0.9.75, MHD_queue_response); its connection
    /// is closed.
    func stop(graceMilliseconds: Int64) async {
      core.refuseRequests()
      // The library hands the listening socket back still open: clients would go on connecting into its backlog.
      _ = MHD_quiesce_daemon(daemon)
      socket.refuseConnections()
      if !(await core.waitUntilQuiet(milliseconds: graceMilliseconds)) {
        core.abortAll()
        // What stays after this is a handler that does not notice its cancellation, or a client that does not read.
        if !(await core.waitUntilQuiet(milliseconds: 2000)) {
          core.log("The HTTP server stopped while a request did not end.")
        }
      }
      watch.cancel()
      let ended = self
      _ = try? await onDispatchThread {
        MHD_stop_daemon(ended.daemon)
        close(ended.socket.descriptor)
        free(ended.certificate)
        free(ended.key)
        ended.closure.release()
      }
    }
  }
#endif
