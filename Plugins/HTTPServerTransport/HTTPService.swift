#if HTTPServer
  import CMicrohttpd
  import SalvorModel
  import SalvorTransport

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// A transport that listens: its socket, and the daemons that serve its connections. There is one of them, except
  /// after `reload`: then the earlier ones live until their connections have ended.
  final class HTTPService: Sendable {
    private struct State {
      var current: ServerDaemon
      /// Daemons of earlier certificates, with connections that have not ended.
      var retired: [ServerDaemon] = []
      var isStopping = false
    }

    let url: String
    private let core: ServerCore
    private let options: HTTPServerOptions
    private let socket: ListeningSocket
    private let state: Mutex<State>
    private let watch: Task<Void, Never>

    /// Blocks for a moment (name look-up, threads). Errors: `configuration`.
    init(
      handler: @escaping TransportHandler, options: HTTPServerOptions, limits: Limits,
      log: Log
    ) throws {
      let tls = try options.tls.map { try TLSFiles($0) }
      let places = try Self.places(limits, log)
      let core = ServerCore(handler: handler, limits: limits, options: options, places: places, log: log)
      let socket = try ListeningSocket(address: options.address, port: options.port)
      let daemon: ServerDaemon
      do {
        daemon = try ServerDaemon(core, options: options, socket: socket, tls: tls)
      } catch {
        close(socket.descriptor)
        throw error
      }
      self.core = core
      self.options = options
      self.socket = socket
      state = Mutex(State(current: daemon))
      let host =
        switch options.address {
        case "0.0.0.0": "127.0.0.1"
        case "::": "[::1]"
        case let address: address.contains(":") ? "[\(address)]" : address
        }
      url = "\(options.tls == nil ? "http" : "https")://\(host):\(socket.port)"
      watch = Task { await core.watch() }
    }

    /// Files that work in progress may open whatever connections there are: databases with their logs, temporary files,
    /// timers of the system, and connections that are read to their end after an early answer.
    private static let reserve = 128 + ServerCore.lingeringMax

    /// The connections that the limit of files allows, less what the process has open and what its work needs.
    private static func places(
      _ limits: Limits, _ log: Log
    ) throws -> ConnectionTable.Places {
      var places = ConnectionTable.Places(requests: limits.connectionsMax, perAddress: 0)
      places.headTimeout = .milliseconds(limits.headTimeoutMilliseconds)
      let opened = cmicrohttpd_open_descriptors()
      let wanted = places.all + Int(opened) + reserve
      let allowed = Int(clamping: cmicrohttpd_allow_descriptors(UInt(wanted)))
      if allowed < wanted {
        places.requests -= wanted - allowed
        guard places.requests >= 16 else {
          throw SalvorError(
            .configuration,
            "This process may have \(allowed) files and connections open, too few for a server. Raise its limit (ulimit -n) to \(wanted - limits.connectionsMax + 16) at least, better to \(wanted)."
          )
        }
        log(
          "This process may have \(allowed) files and connections open: at most \(places.requests) connections are served at one time, not \(limits.connectionsMax) (connectionsMax). Raise its limit (ulimit -n) to \(wanted), or lower connectionsMax."
        )
      }
      places.perAddress = min(limits.connectionsPerAddressMax, max(64, places.requests / 2))
      return places
    }

    /// Serves new connections with the TLS files as they are now.
    func reload() throws {
      guard let tls = options.tls else { return }
      let files = try TLSFiles(tls)
      let daemon = try ServerDaemon(core, options: options, socket: socket, tls: files)
      let old = state.withLock { state -> ServerDaemon? in
        guard !state.isStopping else { return nil }
        let old = state.current
        state.current = daemon
        state.retired.append(old)
        return old
      }
      guard let old else { return daemon.end() }
      old.takeNoConnection()
      Task { [self] in
        // Its connections end by themselves: each answer says so, and those without a request are closed here.
        while core.connections.count(of: old.mark) > 0, !isStopping {
          core.connections.closeIdle(of: old.mark)
          try? await Task.sleep(for: .milliseconds(200))
        }
        let isLast = state.withLock { state in
          guard !state.isStopping else { return false }
          state.retired.removeAll { $0 === old }
          return true
        }
        if isLast { _ = try? await onDispatchThread { old.end() } }
      }
      core.log("The TLS files were read again.")
    }

    private var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Takes no new request, waits for those in flight, ends those that are left, and gives everything back. Once.
    ///
    /// libmicrohttpd aborts the process if a connection is suspended when it stops. None is by then: from the first line
    /// on no gate opens, and each open one belongs to an exchange that has ended or was aborted below (ConnectionGate).
    /// A request that is refused from here on need not get its 503: a daemon that is being stopped drops an answer
    /// without saying so and calls back as if there had been none (seen in 0.9.75, MHD_queue_response); its connection
    /// is closed.
    func stop(graceMilliseconds: Int64) async {
      core.refuseRequests()
      let daemons = state.withLock { state in
        state.isStopping = true
        return state.retired + [state.current]
      }
      // The library hands the listening socket back still open: clients would go on connecting into its backlog.
      daemons.last?.takeNoConnection()
      socket.refuseConnections()
      if !(await core.waitUntilQuiet(milliseconds: graceMilliseconds)) {
        core.abortAll()
        // What stays after this is a handler that does not notice its cancellation, or a client that does not read.
        if !(await core.waitUntilQuiet(milliseconds: 2000)) {
          core.log("The HTTP server stopped while a request did not end.")
        }
      }
      watch.cancel()
      let socket = socket
      _ = try? await onDispatchThread {
        for daemon in daemons { daemon.end() }
        close(socket.descriptor)
      }
    }
  }

  /// The text of the TLS files. The library keeps pointing at it.
  final class TLSFiles: @unchecked Sendable {
    let certificate: UnsafeMutablePointer<CChar>
    let key: UnsafeMutablePointer<CChar>
    let priorities: UnsafeMutablePointer<CChar>

    /// Errors: `configuration`.
    init(_ options: HTTPServerOptions.TLS) throws {
      guard MHD_is_feature_supported(.FEATURE_TLS) == .YES else {
        throw SalvorError(.configuration, "This libmicrohttpd was built without TLS. Install one with it, or drop tls.")
      }
      // GnuTLS' terms: its own defaults, less the versions that nobody should speak.
      let versions = options.versionMin == "1.3" ? "+VERS-TLS1.3" : "+VERS-TLS1.3:+VERS-TLS1.2"
      guard let priorities = strdup("NORMAL:-VERS-ALL:\(versions):%SERVER_PRECEDENCE") else {
        throw SalvorError(.failed, "There is no memory for the TLS files.")
      }
      do {
        certificate = try Self.text(ofFile: options.certificate)
      } catch {
        free(priorities)
        throw error
      }
      do {
        key = try Self.text(ofFile: options.key)
      } catch {
        free(priorities)
        free(certificate)
        throw error
      }
      self.priorities = priorities
    }

    deinit {
      free(certificate)
      free(key)
      free(priorities)
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
  }
#endif
