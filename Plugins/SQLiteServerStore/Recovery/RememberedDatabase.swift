import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A database that the file beside it remembers (semantics 6).
struct RememberedDatabase {
  let path: String

  /// Throws where the database is gone and the file beside it stayed: a new one in its place would be another server for every device, and
  /// what is in the copies would be forgotten for a wrong path or a disk that is not mounted (decision 191).
  func requireThere() throws {
    var database = stat()
    if stat(path, &database) == 0, database.st_size > 0 { return }
    let beside = path + sideSuffix
    guard Files.exists(beside), let content = SideFile(beside, mode: PrivateFile.mode(at: beside))?.read() else {
      return
    }
    throw SalvorError(
      .storage,
      "\(path) is not there, or is empty, and \(beside) remembers it: the database of the server \(content.server), up to commit \(content.commit.number). No new one was made. Put it back: salvor server restore FILE. If a new database is meant, whose devices all begin anew, remove \(beside) first.",
      context: ["file": path])
  }
}
