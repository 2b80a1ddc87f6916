#if HTTPServer
  import CMicrohttpd
  import SalvorModel
  import SalvorTransport
  import Synchronization

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

    /// Names it in the table of connections.
    var mark: DaemonStart { start.takeUnretainedValue() }

    /// Blocks for a moment (threads). Errors: `configuration`.
    init(_ core: ServerCore, options: HTTPServerOptions, socket: ListeningSocket, tls: TLSFiles?) throws {
      let start = Unmanaged.passRetained(DaemonStart(core, isSecure: tls != nil))
      var configuration = CMicrohttpdConfiguration()
      configuration.flags = MHD_USE_AUTO_INTERNAL_THREAD.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
      if tls != nil { configuration.flags |= MHD_USE_TLS.rawValue }
      configuration.listenSocket = socket.descriptor
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
        throw SalvorError(
          .configuration,
          tls == nil
            ? "libmicrohttpd could not start. Look at the limits of threads and files of this process."
            : "libmicrohttpd could not start. Check that the TLS certificate and key are PEM and belong together.")
      }
      self.daemon = daemon
      self.start = start
      self.tls = tls
    }

    /// Leaves the listening socket to others.
    func takeNoConnection() {
      mark.isRetired.store(true, ordering: .relaxed)
      _ = MHD_quiesce_daemon(daemon)
    }

    /// Ends its threads and gives everything back. None of its connections is suspended. Once.
    func end() {
      MHD_stop_daemon(daemon)
      start.release()
    }
  }
#endif
