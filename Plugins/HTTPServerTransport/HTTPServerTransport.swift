#if HTTPServer
  import CMicrohttpd
  import Dispatch
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// The options of `listen: { module: "http" }`.
  public struct HTTPServerOptions: Sendable, Hashable {
    /// The files that TLS needs, and the oldest version that is spoken.
    public struct TLS: Sendable, Hashable {
      /// PEM files.
      public var certificate: String
      /// A PEM file of the certificate's private key.
      public var key: String
      /// The oldest version that is spoken: `1.2` or `1.3`. The newest that both ends know is used.
      public var versionMin = "1.2"
      /// The paths of two PEM files. No file is read before `start`.
      public init(certificate: String, key: String) {
        self.certificate = certificate
        self.key = key
      }
    }

    /// The address to listen on, or a name of it.
    public var address = "127.0.0.1"
    /// 0: any free port; `start` returns which.
    public var port: UInt16 = 8484
    /// Threads that read and write connections; the module's option takes 1 to 64. Handlers do not run on them.
    public var threads = 2
    /// A connection on which no byte goes in either direction for this long ends.
    public var idleTimeoutSeconds = 60
    /// Nil: the server speaks clear text.
    public var tls: TLS?
    /// Others than this machine may be served in clear text.
    public var insecure = false
    /// The addresses of proxies whose `X-Forwarded-For` says for whom they ask.
    public var forwardedFor: [String] = []

    /// Clear text on 127.0.0.1, port 8484, with two threads and 60 seconds of idle time.
    public init() {}
  }

  /// HTTP/1.1 by libmicrohttpd. Requests and responses stream, each holding one piece; a handler runs as a task, never
  /// on a thread of the library.
  public final class HTTPServerTransport: ServerTransport, ListeningAddress, ReloadableTransport {
    private enum Phase {
      case idle
      case starting
      case running(HTTPService)
      case stopping(Task<Void, Never>)
    }

    let options: HTTPServerOptions
    private let limits: Limits
    private let log: Log
    private let phase = Mutex(Phase.idle)

    /// Opens nothing yet: `start` does.
    ///
    /// - Parameter limits: bounds bodies, the time for a request's head and the number of connections.
    public init(
      _ options: HTTPServerOptions = HTTPServerOptions(), limits: Limits = Limits(),
      log: Log = .none
    ) {
      self.options = options
      self.limits = limits
      self.log = log
    }

    deinit {
      // Nobody stopped it: the daemon's threads must not outlive the process's idea of them.
      if case .running(let service) = phase.withLock({ $0 }) {
        Task { await service.stop(graceMilliseconds: 0) }
      }
    }

    /// True where the configured address is one that only this machine reaches.
    public var isLoopback: Bool { isLoopbackHost(options.address) }

    /// Nil on a loopback address, with TLS, with `insecure`, or where proxies are named (`forwardedFor`).
    public var clearTextReach: String? {
      if isLoopback || options.tls != nil || options.insecure || !options.forwardedFor.isEmpty { return nil }
      return
        "listens on \(options.address) without TLS: others can reach it, and their tokens and rows travel in clear text; "
        + "give it tls: { certificate, key }, listen on 127.0.0.1 behind a proxy, name the proxy with forwardedFor, or say "
        + "insecure: true"
    }

    /// Errors: `configuration` where the address cannot be listened on (taken, not this machine's, not allowed), the TLS
    /// files cannot be used, others would be served in clear text, or the process may have too few files open; `usage`
    /// where it runs already.
    public func start(handler: @escaping TransportHandler) async throws -> String {
      let isIdle = phase.withLock { phase in
        guard case .idle = phase else { return false }
        phase = .starting
        return true
      }
      guard isIdle else { throw SalvorError(.usage, "This HTTP server runs already. Stop it first.") }
      do {
        if let clearTextReach { throw SalvorError(.configuration, "The HTTP server \(clearTextReach).") }
        let (options, limits, log) = (options, limits, log)
        let service = try await onDispatchThread {
          try HTTPService(handler: handler, options: options, limits: limits, log: log)
        }
        phase.withLock { $0 = .running(service) }
        return service.url
      } catch {
        phase.withLock { $0 = .idle }
        throw error
      }
    }

    /// Reads the TLS files again: new connections get the new certificate, those that are open keep the one they have.
    /// Errors: `configuration` where the files cannot be used; the ones of before stay in force then.
    public func reload() async throws {
      guard case .running(let service) = phase.withLock({ $0 }) else { return }
      try await onDispatchThread { try service.reload() }
    }

    /// Takes no new connection, and ends exchanges that go on after `graceMilliseconds`. A second call waits for the
    /// first one; a call without a running server does nothing.
    public func stop(graceMilliseconds: Int64) async {
      let stopping = phase.withLock { phase -> Task<Void, Never>? in
        switch phase {
        case .idle, .starting: return nil
        case .stopping(let task): return task
        case .running(let service):
          let task = Task {
            await service.stop(graceMilliseconds: graceMilliseconds)
            self.phase.withLock { $0 = .idle }
          }
          phase = .stopping(task)
          return task
        }
      }
      await stopping?.value
    }
  }

  /// Runs what blocks (name look-up, joining threads) off the cooperative pool.
  func onDispatchThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async { continuation.resume(with: Result { try work() }) }
    }
  }

  extension HTTPServerTransport {
    /// The module `http` of the kind server transport. `salvor modules` lists its options.
    public static let factory = ModuleFactory(
      ModuleDescriptor(
        kind: .serverTransport, name: "http", summary: "HTTP/1.1 server, with TLS where files are named",
        options: [
          ModuleOption(
            "address", type: "string", default: "\"127.0.0.1\"", "the address to listen on, or a name of it"),
          ModuleOption("port", type: "integer", default: "8484", "the port; 0 takes any free one"),
          ModuleOption("threads", type: "integer", default: "2", "threads that read and write connections"),
          ModuleOption(
            "idleTimeoutSeconds", type: "integer", default: "60",
            "no byte in either direction for this long ends a connection"),
          ModuleOption(
            "tls", type: "object", default: "null",
            "{ certificate: FILE, key: FILE, versionMin: \"1.2\" }, PEM; read again at SIGHUP; null: no TLS"),
          ModuleOption(
            "insecure", type: "boolean", default: "false",
            "true: serves others than this machine in clear text; without it that is refused"),
          ModuleOption(
            "forwardedFor", type: "[string]", default: "[]",
            "addresses of proxies whose X-Forwarded-For says for whom they ask; without TLS nobody else is served then"),
        ],
        guarantees: [
          "bodies stream both ways with back-pressure", "a body over the limit is refused before it is read",
          "a response that breaks never looks complete", "a client that left is noticed within a second",
          "a stop lets requests in flight finish within its grace",
          "no flood of connections takes the files that work in progress needs, or keeps a health check from its answer",
          "what can be read in two ways is refused, every refusal is a problem (RFC 9457)",
        ], libraries: ["libmicrohttpd": String(cString: MHD_get_version())]),
      product: (any ServerTransport).self
    ) { reader, context in
      var options = HTTPServerOptions()
      options.address = reader.string("address", default: options.address)
      options.port = UInt16(reader.integer("port", in: 0...65535, default: Int64(options.port)))
      options.threads = Int(reader.integer("threads", in: 1...64, default: Int64(options.threads)))
      options.insecure = reader.boolean("insecure", default: false)
      options.forwardedFor = reader.strings("forwardedFor", default: [])
      for (index, text) in options.forwardedFor.enumerated() where PeerAddress(text) == nil {
        reader.report(
          path: reader.join("forwardedFor") + "[\(index)]", line: reader.value("forwardedFor")?.line ?? reader.line,
          "must be an address of a proxy, like \"10.0.0.5\"")
      }
      let idle = max(1, (context.limits.idleTimeoutMilliseconds + 999) / 1000)
      options.idleTimeoutSeconds = Int(reader.integer("idleTimeoutSeconds", in: 1...86_400, default: idle))
      if reader.value("tls")?.content != .null, var tls = reader.object("tls") {
        if let certificate = tls.path("certificate"), let key = tls.path("key") {
          options.tls = .init(certificate: context.resolve(certificate), key: context.resolve(key))
          options.tls?.versionMin = tls.string("versionMin", default: "1.2")
          if !["1.2", "1.3"].contains(options.tls?.versionMin) {
            tls.report("versionMin", "must be \"1.2\" or \"1.3\"")
          }
          for (name, path) in [("certificate", certificate), ("key", key)]
          where access(context.resolve(path), R_OK) != 0 {
            tls.warn(name, "names no file that can be read; a server would not start with it")
          }
        }
        reader.finish(child: tls)
      }
      return { [options] in HTTPServerTransport(options, limits: context.limits, log: context.log) }
    }
  }
#endif
