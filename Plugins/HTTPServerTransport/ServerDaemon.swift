#if HTTPServer
  import CMicrohttpd
  import SalvorModel
  import SalvorTransport

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// What the library's callbacks get: the core that all daemons of a transport share, and which of them calls.
  final class DaemonStart: Sendable {
    let core: ServerCore
    let isSecure: Bool
    /// Another one has taken its place: its connections end with what they do now.
    let isRetired = Atomic(false)

    init(_ core: ServerCore, isSecure: Bool) {
      self.core = core
      self.isSecure = isSecure
    }
  }

  /// A running libmicrohttpd and its threads.
  final class ServerDaemon: @unchecked Sendable {
    private let daemon: OpaquePointer
    private let start: Unmanaged<DaemonStart>
    private let tls: TLSFiles?
    /// Its own name of the listening socket, closed after its end.
    private let listening: Int32

    /// Names it in the table of connections.
    var mark: DaemonStart { start.takeUnretainedValue() }

    /// Blocks for a moment (threads). Errors: `configuration`.
    init(_ core: ServerCore, options: HTTPServerOptions, socket: ListeningSocket, tls: TLSFiles?) throws {
      let start = Unmanaged.passRetained(DaemonStart(core, isSecure: tls != nil))
      // The library closes the socket that it gets where it cannot start: not the one that others listen on.
      let listening = fcntl(socket.descriptor, F_DUPFD_CLOEXEC, 0)
      guard listening >= 0 else {
        start.release()
        throw SalvorError(.configuration, "The listening socket cannot be shared: \(String(cString: strerror(errno))).")
      }
      var configuration = CMicrohttpdConfiguration()
      configuration.flags = MHD_USE_AUTO_INTERNAL_THREAD.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
      if tls != nil { configuration.flags |= MHD_USE_TLS.rawValue }
      configuration.listenSocket = listening
      configuration.memoryLimit = 32 << 10
      configuration.connectionLimit = UInt32(clamping: max(core.connections.places.all, options.threads))
      configuration.timeoutSeconds = UInt32(clamping: options.idleTimeoutSeconds)
      configuration.threads = UInt32(clamping: options.threads)
      configuration.certificate = tls.map { UnsafePointer($0.certificate) }
      configuration.key = tls.map { UnsafePointer($0.key) }
      configuration.priorities = tls.map { UnsafePointer($0.priorities) }
      guard
        let daemon = cmicrohttpd_start(
          &configuration, handleRequest, endRequest, beginRequest, noteConnection, start.toOpaque())
      else {
        start.release()
        if Self.isSame(listening, socket.descriptor) { close(listening) }
        throw SalvorError(
          .configuration,
          tls == nil
            ? "libmicrohttpd could not start. Look at the limits of threads and files of this process."
            : "libmicrohttpd could not start. Check that the TLS certificate and key are PEM and belong together.")
      }
      self.daemon = daemon
      self.start = start
      self.tls = tls
      self.listening = listening
    }

    /// Whether `descriptor` is still open, and that socket.
    private static func isSame(_ descriptor: Int32, _ socket: Int32) -> Bool {
      var one = stat()
      var other = stat()
      return fstat(descriptor, &one) == 0 && fstat(socket, &other) == 0 && one.st_ino == other.st_ino
    }

    /// Leaves the listening socket to others.
    func takeNoConnection() {
      mark.isRetired.store(true, ordering: .relaxed)
      _ = MHD_quiesce_daemon(daemon)
    }

    /// Ends its threads and gives everything back. None of its connections is suspended. Once.
    func end() {
      if !mark.isRetired.load(ordering: .relaxed) { takeNoConnection() }
      MHD_stop_daemon(daemon)
      close(listening)
      start.release()
    }
  }
#endif
