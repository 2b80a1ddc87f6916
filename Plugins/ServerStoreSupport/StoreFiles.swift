import SalvorModel

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
    let descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode)
    guard descriptor >= 0 else { throw failure("cannot be made", path) }
    return descriptor
  }

  /// Failures are let go: the file itself is synced.
  package static func syncDirectory(of path: String) {
    let directory = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    let place = path.contains("/") ? (directory.isEmpty ? "/" : directory) : "."
    let descriptor = open(place, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return }
    fsync(descriptor)
    close(descriptor)
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
