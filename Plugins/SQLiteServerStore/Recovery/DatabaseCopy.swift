import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

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
    FileSystem.syncFolder(of: target)
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

extension Files {
  static func create(_ path: String) throws -> Int32 { try create(path, mode: PrivateFile.mode(at: path)) }

  static func removeDatabase(_ path: String) {
    for suffix in ["", "-journal", "-wal", "-shm"] { unlink(path + suffix) }
  }
}
