import SQLiteSupport
import SalvorModel
import ServerStoreSupport

/// Interrupts what the connections of one store do.
///
/// SQLite ends the statement that runs. What goes from one statement to the next asks `check` in between.
final class Interruption: Sendable {
  private struct State {
    var isOn = false
    var interrupters: [SQLiteInterrupter] = []
  }

  private let state = Mutex(State())

  func add(_ connection: SQLiteConnection) {
    let interrupter = connection.interrupter
    state.withLock { $0.interrupters.append(interrupter) }
  }

  func remove(_ connection: SQLiteConnection) {
    let interrupter = connection.interrupter
    state.withLock { state in state.interrupters.removeAll { $0 === interrupter } }
  }

  func interrupt() {
    let interrupters = state.withLock { state in
      state.isOn = true
      return state.interrupters
    }
    for interrupter in interrupters { interrupter.interrupt() }
  }

  /// The store is opened anew.
  func end() { state.withLock { $0.isOn = false } }

  func check() throws(SalvorError) {
    guard !state.withLock({ $0.isOn }) else {
      throw SalvorError(.cancelled, "The server is stopping; nothing of this was done. Try again later.")
    }
  }
}
