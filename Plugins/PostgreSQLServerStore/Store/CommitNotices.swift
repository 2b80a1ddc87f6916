#if PostgreSQL
  import Dispatch
  import SalvorModel
  import SalvorStorage

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// Whichever process numbers a commit tells all of them (`Sealing.tell`).
  extension PostgreSQLServerStore: WriteNoticingServerStore {
    /// PostgreSQL passes on what a transaction tells when it is committed.
    public var tellsBeforeItIsVisible: Bool { false }

    /// What other programs commit is told when the first process has looked and numbered it, not before.
    public func writes() -> AsyncStream<Void>? {
      let (stream, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
      let notices = CommitNotices(options.settings, continuation)
      continuation.onTermination = { _ in notices.end() }
      notices.begin()
      return stream
    }
  }

  /// A connection of its own that listens for commits, and is made again where it was lost.
  ///
  /// A pooler that hands connections out by transaction (PgBouncer) tells nothing: then processes find commits by looking, and this
  /// ends.
  final class CommitNotices: Sendable {
    /// Of all Salvor schemas of a database: what is told is the name of one.
    static let channel = "salvor_commit"
    /// So long the end of the stream may go unnoticed, and so long a lost connection is left alone.
    private static let pauseMilliseconds: Int32 = 500

    private let settings: ConnectionSettings
    private let continuation: AsyncStream<Void>.Continuation
    private let isEnded = Mutex(false)

    init(_ settings: ConnectionSettings, _ continuation: AsyncStream<Void>.Continuation) {
      self.settings = settings
      self.continuation = continuation
    }

    /// On a thread of its own, which waits at the socket.
    func begin() {
      DispatchQueue(label: "salvor.postgresql.notices").async {
        while !self.isEnded.withLock({ $0 }) {
          try? self.listen()
          usleep(UInt32(Self.pauseMilliseconds) * 1000)
        }
      }
    }

    func end() { isEnded.withLock { $0 = true } }

    /// Until the connection is lost, or nobody wants to know.
    private func listen() throws {
      let connection = try PostgreSQLConnection(settings)
      defer { connection.close() }
      guard !connection.isPooled else { return end() }
      try connection.execute("LISTEN \(Self.channel)")
      // What was committed meanwhile was told to nobody.
      continuation.yield()
      while let socket = connection.socket, !isEnded.withLock({ $0 }) {
        var waiting = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        guard poll(&waiting, 1, Self.pauseMilliseconds) > 0 else { continue }
        guard let told = connection.notifications() else { return }
        if told.contains(settings.schema) { continuation.yield() }
      }
    }
  }
#endif
