import SalvorModel
import SalvorStorage
import SalvorTransport

extension SalvorClient {
  /// Stays, and synchronizes when either side changes: what applications capture here, and what the server tells of
  /// (`serverInitiated` groups). Where the server does not tell, groups are synchronized at intervals. What a person has set
  /// in `salvor_setting` is kept to, also while it changes: docs/guides, *Changes at once*.
  ///
  /// Begins with one synchronization. A failure is tried again, with jitter, unless it needs a person.
  ///
  /// - Parameters:
  ///   - groups: the synchronization groups; nil: all.
  ///   - onSync: told of each synchronization, whatever came of it.
  ///   - progress: told of each step of each synchronization.
  /// - Returns: when the task is cancelled or another user signs in, nil; else the report of the synchronization that needs a person (exit codes 2,
  ///   4 and 5).
  public func watch(
    groups: Set<String>? = nil, onSync: @escaping @Sendable (SyncReport) -> Void = { _ in },
    progress: @escaping @Sendable (SyncProgress) -> Void = { _ in }
  ) async -> SyncReport? {
    var watch = Watch(
      client: self, configuration: configuration, broadcast: broadcast, asked: groups, progress: progress,
      onSync: onSync)
    return await watch.run()
  }

  /// What happens from here on: synchronizations, whoever began them, and what a watch learns. Each call gives a sequence
  /// of its own; it ends with `close`.
  public nonisolated var events: AsyncStream<SyncEvent> { broadcast.subscribe() }

  /// The counter of the newest change captured; 0 where it cannot be told.
  fileprivate func lastCaptured() async -> Int64 {
    _ = try? await status()
    return (try? await configuration.store.captured(after: .max).counter) ?? 0
  }
}

/// One call of `watch`.
struct Watch {
  let client: SalvorClient
  let configuration: ClientConfiguration
  let broadcast: EventBroadcast
  /// Nil: all groups.
  let asked: Set<String>?
  let progress: @Sendable (SyncProgress) -> Void
  let onSync: @Sendable (SyncReport) -> Void
  private let user: Int
  /// Due when the network is not a metered one any more; nil: everything is.
  private var held: Set<String>? = []
  private let inbox: WatchInbox
  private var settings = WatchSettings()
  /// Those that are watched, as the database knows them.
  private var groups: Set<String> = []
  private var serverInitiated: Set<String> = []
  /// When each group was synchronized last. Milliseconds since 1970.
  private var synchronized: [String: Int64] = [:]
  private var settingsReadAt: Int64 = 0
  /// Since the groups were read: a SyncConfig may have come.
  private var hasSynchronized = true
  private var isFirst = true
  private var failures = 0
  private var notBefore: Int64 = 0
  /// Nobody has this database any more.
  private var ending: SalvorError?
  private var listener: (groups: Set<String>, task: Task<Void, Never>)?

  /// What the device subscribed to when the settings were read last.
  private var subscribed: ResolvedSubscriptions?

  /// Settings, subscriptions and groups are read again this often.
  private static let settingsMilliseconds: Int64 = 1000

  init(
    client: SalvorClient, configuration: ClientConfiguration, broadcast: EventBroadcast, asked: Set<String>?,
    progress: @escaping @Sendable (SyncProgress) -> Void, onSync: @escaping @Sendable (SyncReport) -> Void
  ) {
    self.progress = progress
    user = client.circumstances.users
    self.client = client
    self.configuration = configuration
    self.broadcast = broadcast
    self.asked = asked
    self.onSync = onSync
    inbox = WatchInbox(clock: configuration.clock)
  }

  mutating func run() async -> SyncReport? {
    // What is captured from here on is looked for: the first synchronization brings what was before.
    let start = await client.lastCaptured()
    let looking = Task { [configuration, inbox, broadcast] in
      await LocalLook(configuration: configuration, inbox: inbox, broadcast: broadcast).run(after: start)
    }
    var needing: SyncReport?
    while !Task.isCancelled, needing == nil, user == client.circumstances.users {
      needing = await step()
    }
    looking.cancel()
    await looking.value
    await endListening()
    return needing
  }

  /// Synchronizes what is due, or waits until something is. A report: it needs a person.
  private mutating func step() async -> SyncReport? {
    let now = configuration.clock.now()
    // The server is there again: nothing is waited for.
    if inbox.takeConnected() { notBefore = 0 }
    guard now >= notBefore else {
      await inbox.wait(milliseconds: notBefore - now)
      return nil
    }
    let due = allowed(dueGroups(now))
    if isFirst || !due.isEmpty {
      let report = await client.attemptSync(
        groups: isFirst ? asked : due == groups && asked == nil ? nil : due, progress: progress)
      if Task.isCancelled || user != client.circumstances.users { return nil }
      onSync(report)
      if [2, 4, 5].contains(report.exitCode) { return report }
      note(due, report.error)
      // It may have another remote ID now, whose uploads are not to be told to it.
      if report.outcome == .recovered { await endListening() }
    }
    await readSettings()
    if let ending {
      var report = SyncReport()
      report.fail(ending)
      onSync(report)
      return report
    }
    await listen()
    await inbox.wait(milliseconds: waitMilliseconds())
    return nil
  }

  /// What was put in, and what was not synchronized for its interval while nobody tells of its changes.
  private mutating func dueGroups(_ now: Int64) -> Set<String> {
    var due = inbox.take()
    if let asked { due.formIntersection(asked) }
    let listened = inbox.listened
    for group in groups where !listened.contains(group) {
      guard let interval = settings.intervalMilliseconds(group) else { continue }
      let last = synchronized[group] ?? now
      // A clock that was put back.
      if now - last >= interval || last > now { due.insert(group) }
    }
    return due
  }

  /// Those of them that the network is for; the others wait for another network.
  private mutating func allowed(_ due: Set<String>) -> Set<String> {
    guard client.circumstances.isMetered, let allowed = configuration.meteredGroups else {
      defer { held = held == nil && groups.isEmpty ? nil : [] }
      return due.union(held ?? groups)
    }
    // A first synchronization is of all groups.
    held = isFirst ? nil : held?.union(due.subtracting(allowed))
    return due.intersection(allowed)
  }

  private mutating func note(_ due: Set<String>, _ error: SalvorError?) {
    let now = configuration.clock.now()
    if let error {
      failures += 1
      inbox.add(due)
      notBefore = now + delay(error)
    } else {
      for group in due { synchronized[group] = now }
      isFirst = false
      hasSynchronized = true
      failures = 0
      notBefore = 0
    }
  }

  /// Jitter over a doubling ceiling, or what the server asked for.
  private func delay(_ error: SalvorError) -> Int64 {
    let ceiling = min(Int64(1000) << Int64(min(failures, 6)), 60_000)
    let share = Int64(configuration.random.bytes(1)[0]) + 1
    return max(error.retryAfterMilliseconds ?? 0, 0) + ceiling * share / 256
  }

  private mutating func readSettings() async {
    let now = configuration.clock.now()
    guard now - settingsReadAt >= Self.settingsMilliseconds || now < settingsReadAt else { return }
    let read: DeviceSettings
    do {
      read = try await configuration.store.deviceSettings()
    } catch {
      ending = (error as? SalvorError).flatMap { $0.code == .detached ? $0 : nil }
      return
    }
    if hasSynchronized {
      guard let state = try? await configuration.store.status().state else { return }
      let known = state.groups.filter { asked?.contains($0.name) ?? true }
      // One that came with a SyncConfig: its rows are fetched once, and what changes after that is told.
      inbox.add(Set(known.filter { !$0.isSynchronized && !groups.contains($0.name) }.map(\.name)))
      groups = Set(known.map(\.name))
      serverInitiated = state.serverInitiated
      for group in groups where synchronized[group] == nil { synchronized[group] = now }
      hasSynchronized = false
    }
    settings = WatchSettings(read.settings)
    settingsReadAt = now
    if let wanted = try? await configuration.resolvedSubscriptions().subscriptions { await noteSubscriptions(wanted) }
  }

  /// Groups whose subscriptions have changed are due: a person's choice, or the value of a personalization key.
  private mutating func noteSubscriptions(_ wanted: ResolvedSubscriptions) async {
    guard wanted != subscribed, let states = try? await configuration.store.status().state.groups,
      let tables = try? await configuration.store.history().tables
    else { return }
    subscribed = wanted
    let schema = Schema(tables: tables)
    let changed = states.filter { state in
      groups.contains(state.name) && state.isSynchronized
        && wanted.only(schema.subscriptionTargets(ofGroup: state.name)) != state.subscriptions
    }
    inbox.add(Set(changed.map(\.name)))
  }

  /// Listens for the groups that are to be listened for; a first synchronization comes before that.
  private mutating func listen() async {
    let telling = groups.intersection(serverInitiated)
    let wanted: Set<String> = isFirst ? [] : telling.filter(settings.isServerInitiated)
    guard wanted != listener?.groups ?? [] else { return }
    await endListening()
    guard !wanted.isEmpty else { return }
    let listening = ServerListener(
      configuration: configuration, groups: wanted, inbox: inbox, broadcast: broadcast, board: client.board)
    listener = (wanted, Task { await listening.run() })
  }

  private mutating func endListening() async {
    listener?.task.cancel()
    // Its last word comes before the next one's first.
    await listener?.task.value
    listener = nil
  }

  /// Until a group's interval is over, or the settings are to be read again.
  private func waitMilliseconds() -> Int64 {
    let now = configuration.clock.now()
    var until = now + Self.settingsMilliseconds
    if notBefore > now { until = min(until, notBefore) }
    let listened = inbox.listened
    for group in groups where !listened.contains(group) {
      guard let interval = settings.intervalMilliseconds(group), let last = synchronized[group] else { continue }
      until = min(until, last + interval)
    }
    return max(until - now, 1)
  }
}

/// Looks for what applications write into the database: often while they write, seldom while they do not.
private struct LocalLook {
  let configuration: ClientConfiguration
  let inbox: WatchInbox
  let broadcast: EventBroadcast

  private static let busyMilliseconds: Int64 = 4
  private static let quietMilliseconds: Int64 = 200
  /// After a change, for so long it is looked often.
  private static let busyForMilliseconds: Int64 = 5_000

  /// Until the task is cancelled.
  func run(after start: Int64) async {
    var counter = start
    var busyUntil: Int64 = 0
    while !Task.isCancelled {
      let now = configuration.clock.now()
      // While the database is not open, as within some recoveries, there is nothing to see.
      if let found = try? await configuration.store.captured(after: counter) {
        if !found.groups.isEmpty {
          broadcast.send(.captured(groups: found.groups))
          inbox.add(found.groups)
          busyUntil = now + Self.busyForMilliseconds
        }
        counter = found.counter
      }
      let pause = now < busyUntil ? Self.busyMilliseconds : Self.quietMilliseconds
      try? await configuration.clock.sleep(milliseconds: pause)
    }
  }
}
