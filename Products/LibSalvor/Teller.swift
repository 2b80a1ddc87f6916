import Dispatch
import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// `void (*)(void *context, const char *event)`.
public typealias Callback = @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>?) -> Void

/// Tells callers what happens, one event at a time and in order, on a thread that does nothing else: a callback may
/// call every function, and may take its time.
final class Teller: Sendable {
  private struct Listener: @unchecked Sendable {
    let callback: Callback
    /// The caller's own, handed back untouched.
    let context: UnsafeMutableRawPointer?
  }

  private struct State {
    var listeners: [UInt64: Listener] = [:]
    var last: UInt64 = 0
    var events: [JSONValue] = []
    var lost = 0
    var isTelling = false
    var isFinished = false
  }

  /// A callback that takes longer than events come loses the oldest, and is told so.
  private static let eventsMax = 1000
  private static let onCallback = DispatchSpecificKey<Bool>()
  private let state = Mutex(State())
  private let queue = DispatchQueue(label: "salvor.events")

  init() { queue.setSpecific(key: Teller.onCallback, value: true) }

  /// This thread runs a callback, of this client or of another one.
  static var isInCallback: Bool { DispatchQueue.getSpecific(key: onCallback) == true }

  func add(_ callback: @escaping Callback, _ context: UnsafeMutableRawPointer?) -> UInt64 {
    let listener = Listener(callback: callback, context: context)
    return state.withLock { state in
      state.last += 1
      state.listeners[state.last] = listener
      return state.last
    }
  }

  func remove(_ number: UInt64) throws {
    let isKnown = state.withLock { state in
      state.listeners.removeValue(forKey: number) != nil || number > 0 && number <= state.last
    }
    guard isKnown else { throw SalvorError(.usage, "There is no such subscription: salvor_subscribe gives one.") }
    settle()
  }

  /// When this returns, no callback runs that began before. One that asks for it itself is not waited for.
  func settle() { if !Teller.isInCallback { queue.sync {} } }

  func tell(_ event: JSONValue) {
    let begins = state.withLock { state in
      guard !state.isFinished, !state.listeners.isEmpty else { return false }
      state.events.append(event)
      if state.events.count > Teller.eventsMax {
        state.events.removeFirst()
        state.lost += 1
      }
      defer { state.isTelling = true }
      return !state.isTelling
    }
    if begins { queue.async { [self] in tellAll() } }
  }

  /// Nobody is told anything more, what waits included.
  func finish() {
    state.withLock { state in
      state.isFinished = true
      state.listeners = [:]
      state.events = []
    }
  }

  private func tellAll() {
    while let (event, numbers) = next() {
      let text = event.text
      for number in numbers {
        // One that was taken away by the callback before it is not called any more.
        guard let listener = state.withLock({ $0.listeners[number] }) else { continue }
        text.withCString { listener.callback(listener.context, $0) }
      }
    }
  }

  private func next() -> (JSONValue, [UInt64])? {
    state.withLock { state in
      if state.lost > 0 {
        defer { state.lost = 0 }
        return (["event": "lost", "count": .integer(Int64(state.lost))], state.listeners.keys.sorted())
      }
      guard !state.events.isEmpty else {
        state.isTelling = false
        return nil
      }
      return (state.events.removeFirst(), state.listeners.keys.sorted())
    }
  }
}

extension SyncEvent {
  var json: JSONValue {
    func names(_ groups: Set<String>) -> JSONValue { .array(groups.sorted().map(JSONValue.string)) }
    return switch self {
    case .listening(let groups): ["event": "listening", "groups": names(groups)]
    case .notListening(let error): ["event": "not-listening", "error": error?.json ?? .null]
    case .changed(let groups, let commit):
      ["event": "changed", "groups": names(groups), "commit": .integer(commit)]
    case .captured(let groups): ["event": "captured", "groups": names(groups)]
    case .noted(let notes): ["event": "noted", "notes": .array(notes.map(JSONValue.string))]
    case .rowsChanged(let changes): ["event": "rows-changed", "changes": .array(changes.map(\.json))]
    case .synchronized(let report): ["event": "synchronized", "report": report.json]
    case .failed(let report): ["event": "failed", "report": report.json]
    }
  }
}

extension SyncState {
  var json: JSONValue {
    switch self {
    case .idle: ["name": "idle"]
    case .connected: ["name": "connected"]
    case .synchronizing(let progress): ["name": "synchronizing", "progress": progress?.json ?? .null]
    case .offline(let since): ["name": "offline", "since": .integer(since)]
    case .waitingForUser(let error): ["name": "waiting-for-user", "error": error.reply()]
    case .recoveryRequired(let reason):
      ["name": "recovery-required", "reason": reason.map(JSONValue.string) ?? .null]
    }
  }
}

extension SyncProgress {
  var json: JSONValue {
    var members: [JSONValue.Member] = []
    func add(_ name: String, _ value: JSONValue) { members.append(.init(name, value)) }
    switch self {
    case .uploading: add("step", "uploading")
    case .downloading(let bytes):
      add("step", "downloading")
      add("bytes", .integer(bytes))
    case .receiving: add("step", "receiving")
    case .fetching(_, let all):
      add("step", "fetching")
      add("of", .integer(all))
    case .comparing(let table, _, let all):
      add("step", "comparing")
      add("table", .string(table))
      add("of", .integer(all))
    case .applying: add("step", "applying")
    case .waiting(let code, let message, let milliseconds):
      add("step", "waiting")
      add("error", .string(code.rawValue))
      add("message", .string(message))
      add("milliseconds", .integer(milliseconds))
    }
    if let rows { add("rows", .integer(rows)) }
    // In thousandths: not every reader of JSON takes a fraction alike.
    if let share { add("permille", .integer(Int64(share * 1000))) }
    return .object(members)
  }
}
