import SQLiteSupport
import SalvorModel
import ServerStoreSupport

/// Interrupts what the connections of one store do, and keeps them from a file that is not the database any more.
///
/// SQLite ends the statement that runs. What goes from one statement to the next asks `check` in between.
final class Interruption: Sendable {
  private struct State {
    var isOn = false
    var interrupters: [SQLiteInterrupter] = []
    var file: FileIdentity?
    var hasSaidMoved = false
  }

  private let path: String
  private let log: Log

  private let state = Mutex(State())

  /// - Parameter path: of the database; it is looked at from `watchFile` on.
  init(_ path: String, log: Log) {
    self.path = path
    self.log = log
  }

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

  /// The file that is open now is the database. Nothing is looked at where there is no file.
  func watchFile() { state.withLock { $0.file = FileIdentity(path) } }

  /// Another file, or none, stands in the database's place.
  var isMoved: Bool { state.withLock { $0.file }.map { FileIdentity(path) != $0 } ?? false }

  /// Throws where another file, or none, stands in the database's place: somebody moved or removed it under the running server. What
  /// these connections wrote then would be in a file that nobody finds, and a connection that is opened now would read another one.
  func checkFile() throws(SalvorError) {
    let isThere = !isMoved
    let isNews = state.withLock { state in
      defer { state.hasSaidMoved = !isThere }
      return !isThere && !state.hasSaidMoved
    }
    if isNews {
      log.error(
        "The database file \(path) was moved, removed or replaced while the server has it open. Nothing is accepted until it is back, or the server is started again. To put a copy in its place, stop the server and run salvor server restore FILE."
      )
    }
    guard isThere else {
      throw SalvorError(
        .overloaded,
        "The server's database file was moved or replaced while the server was running. Its operator has to start it again; nothing is lost.",
        retryAfterMilliseconds: 30_000)
    }
  }

  /// The store is opened anew.
  func end() { state.withLock { $0.isOn = false } }

  func check() throws(SalvorError) {
    guard !state.withLock({ $0.isOn }) else {
      throw SalvorError(.cancelled, "The server is stopping; nothing of this was done. Try again later.")
    }
  }
}
