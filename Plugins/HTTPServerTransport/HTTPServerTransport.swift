#if HTTPServer
  import CMicrohttpd
  import Dispatch
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport
  import Synchronization

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// The options of `listen: { module: "http" }`.
  public struct HTTPServerOptions: Sendable, Hashable {
    public struct TLS: Sendable, Hashable {
      /// PEM files.
      public var certificate: String
      public var key: String
      public init(certificate: String, key: String) {
        self.certificate = certificate
        self.key = key
      }
    }

    public var address = "127.0.0.1"
    /// 0: any free port; `start` returns which.
    public var port: UInt16 = 8484
    public var threads = 2
    public var idleTimeoutSeconds = 60
    public var tls: TLS?

    public init() {}
  }

  /// HTTP/1.1 by libmicrohttpd. Requests and responses stream, each holding one piece; a handler runs as a task, never
  /// on a thread of the library.
  public final class HTTPServerTransport: ServerTransport, ListeningAddress {
    private enum Phase {
      case idle
      case starting
      case running(ServerDaemon)
      case stopping(Task<Void, Never>)
    }

    private let options: HTTPServerOptions
    private let limits: Limits
    private let log: Log
    private let phase = Mutex(Phase.idle)

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
      if case .running(let daemon) = phase.withLock({ $0 }) {
        Task { await daemon.stop(graceMilliseconds: 0) }
      }
    }

    public var isLoopback: Bool { isLoopbackHost(options.address) }

    /// Errors: `configuration` where the address cannot be listened on (taken, not this machine's, not allowed) or the
    /// TLS files cannot be used; `usage` where it runs already.
    public func start(handler: @escaping TransportHandler) async throws -> String {
      let isIdle = phase.withLock { phase in
        guard case .idle = phase else { return false }
        phase = .starting
        return true
      }
      guard isIdle else { throw SalvorError(.usage, "This HTTP server runs already. Stop it first.") }
      let options = options
      let core = ServerCore(
        handler: handler, bodyBytesMax: limits.bodyBytesMax, idleTimeoutSeconds: options.idleTimeoutSeconds, log: log)
      do {
        let connectionsMax = limits.connectionsMax
        let daemon = try await onDispatchThread {
          try ServerDaemon(core, options: options, connectionsMax: connectionsMax)
        }
        phase.withLock { $0 = .running(daemon) }
        return daemon.url
      } catch {
        phase.withLock { $0 = .idle }
        throw error
      }
    }

    public func stop(graceMilliseconds: Int64) async {
      let stopping = phase.withLock { phase -> Task<Void, Never>? in
        switch phase {
        case .idle, .starting: return nil
        case .stopping(let task): return task
        case .running(let daemon):
          let task = Task {
            await daemon.stop(graceMilliseconds: graceMilliseconds)
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
            "tls", type: "object", default: "null", "{ certificate: FILE, key: FILE }, PEM; null: no TLS"),
        ],
        guarantees: [
          "bodies stream both ways with back-pressure", "a body over the limit is refused before it is read",
          "a response that breaks never looks complete", "a client that left is noticed within a second",
          "a stop lets requests in flight finish within its grace",
        ], libraries: ["libmicrohttpd": String(cString: MHD_get_version())]),
      product: (any ServerTransport).self
    ) { reader, context in
      var options = HTTPServerOptions()
      options.address = reader.string("address", default: options.address)
      options.port = UInt16(reader.integer("port", in: 0...65535, default: Int64(options.port)))
      options.threads = Int(reader.integer("threads", in: 1...64, default: Int64(options.threads)))
      let idle = max(1, (context.limits.idleTimeoutMilliseconds + 999) / 1000)
      options.idleTimeoutSeconds = Int(reader.integer("idleTimeoutSeconds", in: 1...86_400, default: idle))
      if reader.value("tls")?.content != .null, var tls = reader.object("tls") {
        if let certificate = tls.path("certificate"), let key = tls.path("key") {
          options.tls = .init(certificate: context.resolve(certificate), key: context.resolve(key))
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
