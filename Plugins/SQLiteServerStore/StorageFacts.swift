import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension SQLiteServerStore: ObservableServerStore {
  /// Sizes in bytes, of the database file, its log and the free space of the disk; none for a database in memory. Never
  /// throws: what cannot be read is nil.
  public func observation() async -> StorageObservation {
    var facts = StorageObservation()
    if options.isFile {
      facts.databaseBytes = fileBytes(options.path)
      facts.journalBytes = fileBytes(options.path + "-wal") ?? 0
      facts.freeBytes = freeBytes
    }
    // A database that cannot be read now has its sizes at least.
    if let ages = try? await reading({ try await $0.logAges() }) {
      (facts.oldestLogEntry, facts.oldestTombstone) = (ages.entry, ages.tombstone)
    }
    return facts
  }
}

extension SQLiteServerStore {
  /// What is left on the disk of the database; nil: it cannot be read.
  private var freeBytes: Int64? {
    var system = statvfs()
    guard statvfs(options.path, &system) == 0 else { return nil }
    return Int64(clamping: UInt64(system.f_bavail) * UInt64(system.f_frsize))
  }

  /// Less than this, and a small upload no longer fits beside the write-ahead log's own growth.
  private static let roomMin: Int64 = 256 << 10

  func checkRoom() throws {
    guard options.isFile, let free = freeBytes, free < Self.roomMin else { return }
    throw SalvorError(
      .overloaded,
      "The disk of the server's database is full: \(free / 1024) KiB are left. Nothing is accepted until there is room; nothing is lost.",
      retryAfterMilliseconds: 30_000)
  }
}

extension ServerReader {
  func logAges() throws -> LogAges { try book { try LogAges($0.connection) } }
}

private func fileBytes(_ path: String) -> Int64? {
  var found = stat()
  return stat(path, &found) == 0 ? Int64(found.st_size) : nil
}
