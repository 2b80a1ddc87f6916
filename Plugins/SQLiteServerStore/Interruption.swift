import SQLiteSupport
import SalvorModel
import SalvorStorage
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
    var hasParted = false
    var newest: Commit?
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

  /// The file that is open now is the database, and this is its newest commit. Nothing is looked at where there is no file.
  func watchFile(_ newest: Commit?) {
    state.withLock { ($0.file, $0.hasParted, $0.newest) = (FileIdentity(path), false, newest) }
  }

  /// The file lacks commits that this process has seen in it: another copy was put into it while it was open. Nothing is read or
  /// written until the store has reopened it.
  var hasParted: Bool { state.withLock { $0.hasParted } }

  /// The newest commit that was seen in the file; nil: none.
  var newest: Commit? { state.withLock { $0.newest } }

  func see(_ commit: Commit) { state.withLock { $0.newest = commit } }

  /// Marks it so, and gives what to throw.
  func part(_ message: String? = nil) -> SalvorError {
    state.withLock { $0.hasParted = true }
    return message.map { SalvorError(.storage, $0) } ?? Self.parted
  }

  private static var parted: SalvorError {
    SalvorError(
      .storageBusy, "Another copy was put into the server's database. The server reopens it; try again.",
      retryAfterMilliseconds: 500)
  }

  /// Another file, or none, stands in the database's place.
  var isMoved: Bool { state.withLock { $0.file }.map { FileIdentity(path) != $0 } ?? false }

  /// Throws where the file has another history now, and where another file, or none, stands in the database's place: somebody moved or removed it under the running server. What
  /// these connections wrote then would be in a file that nobody finds, and a connection that is opened now would read another one.
  func checkFile() throws(SalvorError) {
    guard !hasParted else { throw Self.parted }
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
