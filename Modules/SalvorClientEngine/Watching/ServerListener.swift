import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Listens to the server's events for some groups, and begins again whenever the stream ends.
struct ServerListener: Sendable {
  let configuration: ClientConfiguration
  let groups: Set<String>
  let inbox: WatchInbox
  let broadcast: EventBroadcast
  let board: StateBoard

  /// Until the task is cancelled.
  func run() async {
    var failures = 0
    while !Task.isCancelled {
      var failure: SalvorError?
      do {
        if try await listen() { failures = 0 }
      } catch {
        failure = asSalvorError(error)
      }
      let wasListening = !inbox.listened.isEmpty
      inbox.setListened([])
      if Task.isCancelled { return }
      if wasListening { failures = 0 }
      if wasListening || failure != nil { broadcast.send(.notListening(failure)) }
      if let failure { board.listening(failure, now: configuration.clock.now()) }
      // A sync says it better, and ends the watch.
      if let failure, failure.code.exitCode == 4 { inbox.add(groups) }
      failures += 1
      try? await configuration.clock.sleep(milliseconds: delay(failures, failure))
    }
  }

  /// Until the stream ends. False: it never began to tell.
  private func listen() async throws -> Bool {
    var report = SyncReport()
    let path = try await self.path()
    let response = try await configuration.request("GET", path, [], counting: &report)
    let body = response.body
    var reader = ServerEventReader()
    var isListening = false
    do {
      while let piece = try await body.next() {
        for event in try reader.read(piece) {
          isListening = true
          take(event)
        }
      }
    } catch {
      await body.close()
      throw error
    }
    await body.close()
    return isListening
  }

  private func take(_ event: ServerEvent) {
    switch event {
    case .connected(let names, _):
      let groups = Set(names)
      inbox.setListened(groups)
      broadcast.send(.listening(groups: groups))
      board.listening(nil, now: configuration.clock.now())
    case .changed(let names, let commit):
      let groups = Set(names).intersection(groups)
      inbox.add(groups)
      broadcast.send(.changed(groups: groups, commit: commit.number))
    }
  }

  /// What has changed since this database's cursors is told at once; what this database uploads is not told to it.
  private func path() async throws -> String {
    let state = try await configuration.store.status().state
    let names = groups.sorted()
    let cursors = names.map { name in state.groups.first { $0.name == name }?.cursor?.text ?? "" }
    let list = names.map(percentEncoded).joined(separator: ",")
    return "/v1/events?remote=\(state.remoteID)&groups=\(list)&since=\(cursors.joined(separator: ","))"
  }

  /// Jitter over a doubling ceiling, so that a server that starts is not met by everybody at once; what the server asks
  /// for is waited for in full. A server that has no events for these groups is asked again now and then.
  private func delay(_ failures: Int, _ failure: SalvorError?) -> Int64 {
    let share = Int64(configuration.random.bytes(1)[0]) + 1
    let ceiling: Int64
    switch failure?.code {
    case nil, .unreachable?, .timeout?, .overloaded?, .cancelled?:
      ceiling = min(Int64(500) << Int64(min(failures, 8)), 30_000)
    default: ceiling = 60_000
    }
    return max(failure?.retryAfterMilliseconds ?? 0, 0) + ceiling * share / 256
  }
}
