#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What this process has seen of the database's history, and whether a connection still reaches it (semantics 6).
  ///
  /// Every new connection is looked at, and one that is open every `lookMilliseconds`. Where a failover, a recovery to a point in
  /// time or a restored dump has put another history in the database's place, nothing is read or written any more until the store
  /// has opened it anew.
  final class HistoryWatch: Sendable {
    private struct State {
      /// Nil: nothing is open, or the database is being opened.
      var facts: HistoryFacts?
      var hasParted = false
      /// When somebody last looked; milliseconds since 1970.
      var looked: Int64 = 0
    }

    static let lookMilliseconds: Int64 = 10_000

    private let state = Mutex(State())
    /// Remembers over restarts; nil: no folder was named.
    private let side: SideFile?

    init(stateDirectory: String?) {
      side = stateDirectory.flatMap { SideFile($0 + "/postgresql" + sideSuffix) }
    }

    /// Nil: nothing is open.
    var present: HistoryFacts? { state.withLock { $0.facts } }

    var hasParted: Bool { state.withLock { $0.hasParted } }

    /// Throws where a folder was named in which nothing can be remembered.
    func check(_ folder: String?) throws {
      guard let folder, side == nil else { return }
      throw SalvorError(
        .configuration, "stateDirectory: no file can be made in \(folder). Make the folder, for this process alone.",
        context: ["path": folder])
    }

    /// What an earlier process of this folder has seen last.
    var remembered: SideFile.Content? { side?.read() }

    /// The database is open.
    func begin(_ facts: HistoryFacts, at now: Int64) {
      state.withLock { $0 = State(facts: facts, hasParted: false, looked: now) }
      // The commit stays the one that was seen: whether it is missing is told until there is a new one.
      if var content = side?.read(), content.place != facts.place {
        content.place = facts.place
        side?.write(content)
      }
    }

    /// Another server of the cluster was promoted over this one.
    func part() { state.withLock { if $0.facts != nil { $0.hasParted = true } } }

    /// Somebody has seen this commit, after its transaction had ended.
    func note(_ commit: Commit, _ opening: ServerOpening) {
      let isNew = state.withLock { state in
        guard state.facts != nil, (state.facts?.head?.number ?? -1) < commit.number else { return false }
        state.facts?.head = commit
        state.facts?.incarnation = opening.incarnation
        return true
      }
      guard isNew, commit.number > 0 else { return }
      var content = SideFile.Content(server: opening.serverID, incarnation: opening.incarnation, commit: commit)
      content.place = present?.place
      side?.write(content)
    }

    /// Whether it is time to look at a connection that is open.
    func isDue(at now: Int64) -> Bool {
      state.withLock { state in
        guard state.facts != nil, !state.hasParted, now - state.looked >= Self.lookMilliseconds else { return false }
        state.looked = now
        return true
      }
    }

    /// Throws `storage-busy` where the connection reaches another history than the one that is open.
    func look(_ connection: PostgreSQLConnection) throws {
      guard let before = state.withLock({ $0.facts }) else { return }
      let (finding, now) = try before.finding(in: connection)
      switch finding {
      case .same:
        state.withLock { state in
          // Somebody may have opened it anew meanwhile, or seen more.
          guard state.facts?.system == now.system, let head = now.head,
            (state.facts?.head?.number ?? -1) < head.number
          else { return }
          state.facts?.head = head
          state.facts?.incarnation = now.incarnation
        }
      case .standby:
        throw SalvorError(
          .storageBusy, "The database is a standby now and takes no writes. Name all hosts in url, or promote it.")
      case .overtaken:
        part()
        throw now.overtaken(by: before.timeline ?? 0)
      case .copy, .continued, .restored:
        part()
        throw Self.parted
      }
    }

    static var parted: SalvorError {
      SalvorError(
        .storageBusy, "Another history stands in the database's place. The server opens it anew; try again.")
    }

    /// The facts of before, and from here on none: connections are made as they come.
    func beginAnew() -> HistoryFacts? {
      state.withLock { state in
        defer { state.facts = nil }
        return state.facts
      }
    }

    /// It could not be opened: it is tried again.
    func giveUp(_ facts: HistoryFacts?) {
      state.withLock { ($0.facts, $0.hasParted) = (facts, true) }
    }

    /// The store was closed.
    func end() { state.withLock { $0 = State() } }
  }

  extension HistoryFacts {
    /// Where a process remembers that it was, in its file.
    var place: SideFile.Place? { timeline.map { SideFile.Place(system: system, timeline: $0) } }
  }

  /// The hosts that `url` names. libpq takes the first one that takes writes: an old primary that is started again comes before the one that
  /// was promoted over it.
  actor OtherHosts {
    private let queue = ConnectionQueue("hosts")
    nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    private let settings: ConnectionSettings

    init(_ settings: ConnectionSettings) { self.settings = settings }

    /// The timeline of one that was promoted over the one that was reached; nil: none that answers within two seconds.
    func promoted(over facts: HistoryFacts) -> Int64? {
      for host in (try? settings.hosts()) ?? [] {
        guard let connection = try? PostgreSQLConnection(host) else { continue }
        defer { connection.close() }
        guard let other = try? HistoryFacts(connection), facts.isOvertaken(by: other.timeline, of: other.system) else {
          continue
        }
        return other.timeline
      }
      return nil
    }
  }
#endif
