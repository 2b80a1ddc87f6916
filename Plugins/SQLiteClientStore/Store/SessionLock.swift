import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// One session at a time, over all processes that have the database open: a lock that the system takes back when the
/// process ends, however it ends.
final class SessionLock {
  private let path: String
  private var file: Int32 = -1

  init(database: String) { path = Self.path(of: database) }

  static func path(of database: String) -> String { database + ".salvor-lock" }

  deinit { release() }

  /// Throws `session-in-use` where another store holds it. Taking it twice is once.
  func take() throws {
    guard file < 0 else { return }
    let opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, PrivateFile.mode(at: path))
    guard opened >= 0 else {
      throw SalvorError(
        .storage, "The lock file could not be opened: \(String(cString: strerror(errno))). Check the directory.",
        context: ["file": path])
    }
    guard flock(opened, LOCK_EX | LOCK_NB) == 0 else {
      _ = close(opened)
      throw SalvorError(
        .sessionInUse, "Another process or store is synchronizing this database: wait for it and try again.",
        context: ["file": path], retryAfterMilliseconds: 1000)
    }
    file = opened
  }

  var isTaken: Bool { file >= 0 }

  func release() {
    guard file >= 0 else { return }
    // Not by closing alone: a process that is being started may hold a copy of the descriptor for a moment.
    _ = flock(file, LOCK_UN)
    _ = close(file)
    file = -1
  }
}
