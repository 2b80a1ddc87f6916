import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Makes checked copies of a database, and puts them back. An actor, so that a long copy blocks nobody else.
actor DatabaseCopy {
  private let queue = SQLiteQueue("server.copy")
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

  /// Copies the database at `path` while other connections read and write it.
  func make(of path: String, to target: String, busyTimeoutMilliseconds: Int64) throws {
    let source = try SQLiteConnection(
      path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: busyTimeoutMilliseconds))
    defer { source.close() }
    try Self.make(from: source, to: target)
  }

  func restore(_ restoration: Restoration) throws -> ServerRestoration { try restoration.run() }

  /// Appears at `target` as one whole file, checked and durable, or not at all. An existing file is refused.
  static func make(from source: SQLiteConnection, to target: String) throws {
    guard !Files.exists(target) else { throw exists(target) }
    let partial = target + ".partial"
    Files.removeDatabase(partial)
    defer { Files.removeDatabase(partial) }
    let descriptor = try Files.create(partial)
    defer { close(descriptor) }
    try copy(from: source, to: partial)
    guard fsync(descriptor) == 0 else { throw Files.failure("cannot be written", partial) }
    // A link never replaces a file that has come to be there meanwhile.
    if link(partial, target) != 0 {
      guard errno != EEXIST else { throw exists(target) }
      guard rename(partial, target) == 0 else { throw Files.failure("cannot be written", target) }
    }
    Files.syncDirectory(of: target)
  }

  private static func copy(from source: SQLiteConnection, to path: String) throws {
    let copy = try SQLiteConnection(path, mode: .readWrite)
    defer { copy.close() }
    // It is synced once, as a whole.
    try copy.pragma("synchronous", "OFF")
    try source.backup(into: copy)
    // One file that stands on its own: no write-ahead log beside it.
    try copy.pragma("journal_mode", "DELETE")
    let finding = try copy.scalar("PRAGMA quick_check(1)")?.string
    guard finding == "ok" else {
      throw SalvorError(
        .storageCorrupt,
        "The copy does not pass SQLite's quick_check (\(finding ?? "no answer")); it was removed. Check the database itself.",
        context: ["file": path])
    }
  }

  private static func exists(_ path: String) -> SalvorError {
    SalvorError(
      .usage, "\(path) exists already; nothing was written. Choose another name, or move it away.",
      context: ["file": path])
  }
}

/// The few file operations that copying and restoring need.
enum Files {
  static func exists(_ path: String) -> Bool {
    var found = stat()
    return lstat(path, &found) == 0
  }

  static func create(_ path: String) throws -> Int32 {
    let descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, PrivateFile.mode(at: path))
    guard descriptor >= 0 else { throw failure("cannot be made", path) }
    return descriptor
  }

  static func removeDatabase(_ path: String) {
    for suffix in ["", "-journal", "-wal", "-shm"] { unlink(path + suffix) }
  }

  static func syncDirectory(of path: String) {
    let directory = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    let place = path.contains("/") ? (directory.isEmpty ? "/" : directory) : "."
    let descriptor = open(place, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return }
    fsync(descriptor)
    close(descriptor)
  }

  static func failure(_ what: String, _ path: String) -> SalvorError {
    let isFull = errno == ENOSPC || errno == EDQUOT
    return SalvorError(
      isFull ? .storageFull : .storage,
      "\(path) \(what): \(String(cString: strerror(errno))). Check the directory, its permissions and the disk.",
      context: ["file": path])
  }
}
