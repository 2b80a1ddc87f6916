import SalvorModel

/// Waits for `signal` as long as a step of a case may take, and says in a failure what did not come.
func awaited<Value: Sendable>(
  _ signal: Signal<Value>, _ what: String, file: String = #fileID, line: Int = #line
) async throws -> Value {
  try await ContractPatience.$duration.withValue(ContractPatience.duration * 0.8) {
    try await patiently(what, file: file, line: line) { await signal.value }
  }
}

/// Runs `body`, and throws `ContractFailure` where it takes longer than `ContractPatience.duration`. A body that is
/// given up goes on as a task without an owner: only a broken module gets there.
func patiently<Value: Sendable>(
  _ what: String, file: String = #fileID, line: Int = #line, _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
  let first = Signal<Result<Value, any Error>>()
  let work = Task {
    do {
      first.send(.success(try await body()))
    } catch {
      first.send(.failure(error))
    }
  }
  let limit = ContractPatience.duration
  let clock = Task {
    if (try? await Task.sleep(for: limit)) != nil {
      first.send(.failure(ContractFailure("\(what): did not end within \(limit)", file: file, line: line)))
    }
  }
  let result = await first.value
  clock.cancel()
  work.cancel()
  return try result.get()
}

/// A value that is sent once and waited for by anybody.
final class Signal<Value: Sendable>: Sendable {
  private struct State {
    var value: Value?
    var waiting: [CheckedContinuation<Value, Never>] = []
  }
  private let state = Mutex(State())

  func send(_ value: Value) {
    let waiting = state.withLock { state in
      guard state.value == nil else { return [CheckedContinuation<Value, Never>]() }
      state.value = value
      defer { state.waiting = [] }
      return state.waiting
    }
    for continuation in waiting { continuation.resume(returning: value) }
  }

  var isSent: Bool { state.withLock { $0.value != nil } }

  var value: Value {
    get async {
      await withCheckedContinuation { continuation in
        let value = state.withLock { state in
          if state.value == nil { state.waiting.append(continuation) }
          return state.value
        }
        if let value { continuation.resume(returning: value) }
      }
    }
  }
}

extension Signal where Value == Void {
  func send() { send(()) }
}
