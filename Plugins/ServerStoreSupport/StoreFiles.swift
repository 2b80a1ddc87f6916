import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The few file operations that copies, restores and the ledger of purged rows need.
package enum Files {
  package static func exists(_ path: String) -> Bool {
    var found = stat()
    return lstat(path, &found) == 0
  }

  /// Open for reading and writing. Throws where there is one.
  package static func create(_ path: String, mode: mode_t) throws -> Int32 {
    let descriptor = FileSystem.open(path, O_RDWR | O_CREAT | O_EXCL, mode)
    guard descriptor >= 0 else { throw failure("cannot be made", path) }
    return descriptor
  }

  /// What `errno` says of a file.
  package static func failure(_ what: String, _ path: String) -> SalvorError {
    let isFull = errno == ENOSPC || errno == EDQUOT
    return SalvorError(
      isFull ? .storageFull : .storage,
      "\(path) \(what): \(String(cString: strerror(errno))). Check the directory, its permissions and the disk.",
      context: ["file": path])
  }
}
