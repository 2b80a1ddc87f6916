import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// The clients by their numbers. A number is never given twice, so that one that is used after its end is known.
enum Clients {
  private struct State {
    var open: [UInt64: OpenClient] = [:]
    var last: UInt64 = 0
  }
  private static let state = Mutex(State())

  static func add(_ client: OpenClient) -> UInt64 {
    state.withLock { state in
      state.last += 1
      state.open[state.last] = client
      return state.last
    }
  }

  static func find(_ number: UInt64) throws -> OpenClient {
    if let client = state.withLock({ $0.open[number] }) { return client }
    throw SalvorError(
      .usage,
      wasGiven(number) ? "This client was closed. Open another one." : "There is no such client: salvor_open gives one."
    )
  }

  static func wasGiven(_ number: UInt64) -> Bool { state.withLock { number > 0 && number <= $0.last } }

  /// Nil: it is closed, or was never open.
  static func present(_ number: UInt64) -> OpenClient? { state.withLock { $0.open[number] } }

  static func remove(_ number: UInt64) { state.withLock { _ = $0.open.removeValue(forKey: number) } }
}

/// The credential that a caller gives, and may give anew.
final class Token: Sendable {
  private let state: Mutex<String>

  init(_ text: String) { state = Mutex(text) }

  var text: String {
    get { state.withLock { $0 } }
    set { state.withLock { $0 = newValue } }
  }
}

/// A client with the calls that run, what is told to whom, and its watch.
final class OpenClient: Sendable {
  private struct State {
    var calls: [Int: Task<Reply, Never>] = [:]
    var lastCall = 0
    var watch: Task<Void, Never>?
    var closing: Task<Void, Never>?
    var telling: [Task<Void, Never>] = []
    /// What the server is told of who sends, where the caller gives it; nil: the configuration says it.
    var token: Token?
  }

  let client: SalvorClient
  let teller = Teller()
  private let state = Mutex(State())

  init(_ client: SalvorClient, token: Token?) {
    self.client = client
    state.withLock { $0.token = token }
  }

  // MARK: Calls

  /// Begins a call, which ends with the client at the latest.
  func begin(_ work: @escaping @Sendable () async -> Reply) throws -> Task<Reply, Never> {
    try state.withLock { state in
      guard state.closing == nil else { throw SalvorError(.usage, "This client is being closed. Open another one.") }
      state.lastCall += 1
      let number = state.lastCall
      let task = Task.detached { [self] in
        let reply = await work()
        self.ended(number)
        return reply
      }
      state.calls[number] = task
      return task
    }
  }

  private func ended(_ number: Int) { state.withLock { _ = $0.calls.removeValue(forKey: number) } }

  /// Ends what runs at its next safe place.
  func cancel() { for call in state.withLock({ Array($0.calls.values) }) { call.cancel() } }

  // MARK: Watching

  /// Events and states go to the callbacks from here on, until the client is closed.
  func startTelling() {
    let (events, states) = (client.events, client.states)
    let telling = [
      Task.detached { [teller] in for await event in events { teller.tell(event.json) } },
      Task.detached { [teller] in
        for await state in states { teller.tell(["event": "state", "state": state.json]) }
      },
    ]
    state.withLock { $0.telling = telling }
  }

  func watch(_ groups: Set<String>?) throws {
    try state.withLock { state in
      guard state.closing == nil else { throw SalvorError(.usage, "This client is being closed. Open another one.") }
      guard state.watch == nil else {
        throw SalvorError(.usage, "This client is watching already. End that with salvor_unwatch first.")
      }
      state.watch = Task.detached { [self] in
        let report = await client.watch(groups: groups)
        // Another watch may follow from the callback on.
        self.state.withLock { $0.watch = nil }
        teller.tell(["event": "watch-ended", "report": report?.json ?? .null])
      }
    }
  }

  func unwatch() async {
    let watch = state.withLock { $0.watch }
    watch?.cancel()
    await watch?.value
  }

  // MARK: Credentials

  func give(_ token: String) throws {
    guard let held = state.withLock({ $0.token }) else {
      throw SalvorError(
        .usage,
        "This client has its credentials of the configuration. Give salvor_open the option \"token\" for another.")
    }
    held.text = token
  }

  /// Another user's database and credentials; the former user's stay where a file is refused.
  func change(to principal: String, database: String, token: Token?) async throws {
    let credentials =
      token.map { token in { @Sendable in Credentials(token: token.text) } }
      ?? { @Sendable in Credentials(["principal": principal]) }
    try await client.switch(to: ClientUser(principal: principal, database: database, credentials: credentials))
    state.withLock { $0.token = token }
  }

  // MARK: The end

  /// Ends what runs, and then the client. Each caller waits until that is done.
  func close() async {
    let closing = state.withLock { state in
      if let closing = state.closing { return closing }
      let calls = Array(state.calls.values)
      let watch = state.watch
      let telling = state.telling
      let task = Task.detached { [client] in
        for call in calls { call.cancel() }
        watch?.cancel()
        for call in calls { _ = await call.value }
        await watch?.value
        await client.close()
        for task in telling { await task.value }
      }
      state.closing = task
      return task
    }
    await closing.value
  }
}
