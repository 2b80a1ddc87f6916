import SalvorModel
import SalvorStorage
import SalvorTransport

/// Who listens for changes, and the one watch for all of them.
///
/// While anybody listens, a task asks the store which groups have changed: after each upload at once, and every
/// `eventLookMilliseconds`, since other programs write in the tables, too; sooner where the store hears of a write. Nobody
/// listens: nothing is asked.
final class EventHub: Sendable {
  private struct State {
    /// In the order in which they came, by number.
    var listeners: [Int: EventListener] = [:]
    var lastNumber = 0
    /// The commit up to which everybody was told; nil: nobody has begun to listen yet.
    var told: Commit?
    var watch: Task<Void, Never>?
    var wake: AsyncStream<Void>.Continuation?
    var isStopped = false
  }

  private let store: any ServerStore
  private let limits: Limits
  private let clock: any Clock
  private let random: any RandomSource
  private let log: Log
  private let listenersMax: Int
  private let state = Mutex(State())
  /// How often there was something to tell.
  let rounds = ServerMetrics.Counter()

  /// Streams of one remote ID; a further one ends the oldest. (A device whose network was cut comes back.)
  static let listenersOfRemoteMax = 4

  init(_ configuration: ServerConfiguration) {
    store = configuration.store
    limits = configuration.limits
    clock = configuration.clock
    random = configuration.random
    log = configuration.log
    // The others are for syncs.
    listenersMax = min(limits.eventListenersMax, limits.connectionsMax / 2)
  }

  /// Begins a stream for `groups`.
  ///
  /// - Parameter cursors: for each group what the listener knows; nil: it asks for what comes.
  func listen(groups: [String], remote: RemoteID?, cursors: [Commit?]) async throws -> ByteStream {
    let (number, listener) = try add(groups, remote)
    do {
      let found = try await store.changedGroups(since: cursors.compactMap { $0 })
      // What came after this answer was found, and before the watch's last look, is told again; who knows it, knows it.
      state.withLock { state in
        if state.told.map({ $0.number > found.head.number }) ?? true { state.told = found.head }
      }
      listener.begin(floors: cursors.map { $0?.number }, found)
    } catch {
      remove(number)
      throw error
    }
    return ByteStream(next: { await listener.next() }, close: { [self] in remove(number) })
  }

  private func add(_ groups: [String], _ remote: RemoteID?) throws -> (Int, EventListener) {
    let now = clock.now()
    // Not all of those that came together end together.
    let spread = limits.eventStreamMilliseconds / 8
    let share = random.bytes(2)
    let early = spread * (Int64(share[0]) << 8 | Int64(share[1])) / 65536
    let listener = EventListener(
      groups: groups, remote: remote, now: now, endsAt: now + limits.eventStreamMilliseconds - early)
    let (number, oldest) = try state.withLock { state -> (Int, EventListener?) in
      guard !state.isStopped else {
        throw SalvorError(.overloaded, "The server is stopping. Try again later.")
      }
      guard state.listeners.count < listenersMax else {
        throw SalvorError(
          .tooManyListeners,
          "\(listenersMax) devices listen for changes (eventListenersMax, and at most half of connectionsMax). Poll, and try again later.",
          context: ["limit": "\(listenersMax)"], retryAfterMilliseconds: 60_000)
      }
      let own = remote.map { remote in state.listeners.filter { $0.value.remote == remote } } ?? [:]
      let oldest = own.count >= Self.listenersOfRemoteMax ? own.min { $0.key < $1.key }?.value : nil
      state.lastNumber += 1
      state.listeners[state.lastNumber] = listener
      startWatch(&state)
      return (state.lastNumber, oldest)
    }
    oldest?.end()
    return (number, listener)
  }

  private func remove(_ number: Int) {
    state.withLock { state in
      state.listeners[number] = nil
      if state.listeners.isEmpty { endWatch(&state) }
    }
  }

  /// An upload was processed.
  func notice() { state.withLock { _ = $0.wake?.yield() } }

  /// Ends every stream, now and from here on.
  func stop() {
    let listeners = state.withLock { state in
      state.isStopped = true
      endWatch(&state)
      return Array(state.listeners.values)
    }
    for listener in listeners { listener.end() }
  }

  var count: Int { state.withLock { $0.listeners.count } }

  /// Whether anything is asked of the store.
  var isWatching: Bool { state.withLock { $0.watch != nil } }

  // MARK: The watch

  private func startWatch(_ state: inout State) {
    guard state.watch == nil else { return }
    let (wakes, wake) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    state.wake = wake
    let noticing = store as? any WriteNoticingServerStore
    let (writes, pauses) = (noticing?.writes(), noticing?.tellsBeforeItIsVisible == false ? [0] : Self.pauses)
    state.watch = Task { [weak self, clock, limits] in
      let ticks = Task {
        while (try? await clock.sleep(milliseconds: limits.eventLookMilliseconds)) != nil { wake.yield() }
      }
      let notices = writes.map { writes in Task { await Self.pass(on: writes, to: wake, pauses) } }
      for await _ in wakes { await self?.look() }
      ticks.cancel()
      notices?.cancel()
    }
  }

  /// A write is told of before it is committed: looks are taken soon after, at pauses that grow as long as the disk may take.
  private static let pauses = [0, 1, 1, 2, 4, 8, 16]

  private static func pass(
    on writes: AsyncStream<Void>, to wake: AsyncStream<Void>.Continuation, _ pauses: [Int]
  ) async {
    for await _ in writes {
      for pause in pauses {
        if pause > 0, (try? await Task.sleep(for: .milliseconds(pause))) == nil { return }
        wake.yield()
      }
    }
  }

  private func endWatch(_ state: inout State) {
    state.wake?.finish()
    state.watch?.cancel()
    (state.watch, state.wake, state.told) = (nil, nil, nil)
  }

  /// Asks what has changed, and tells it.
  private func look() async {
    let now = clock.now()
    let found = await findChanges()
    if found != nil { rounds.add(1) }
    for listener in state.withLock({ Array($0.listeners.values) }) {
      if let found { listener.tell(found) }
      listener.keepAlive(now: now, after: limits.eventKeepAliveMilliseconds)
    }
  }

  /// Nil: there is nothing to tell.
  private func findChanges() async -> GroupChanges? {
    guard let told = state.withLock({ $0.told }) else { return nil }
    do {
      let found = try await store.changedGroups(since: [told])
      state.withLock { state in
        // The watch may have ended meanwhile.
        if state.told != nil { state.told = found.head }
      }
      return found.changes?.isEmpty == true ? nil : found
    } catch {
      log("Looking for changes to tell listeners of failed: \(asSalvorError(error))")
      return nil
    }
  }
}
