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
      var system = statvfs()
      if statvfs(options.path, &system) == 0 {
        facts.freeBytes = Int64(clamping: UInt64(system.f_bavail) * UInt64(system.f_frsize))
      }
    }
    // A database that cannot be read now has its sizes at least.
    if let ages = try? await reading({ try await $0.logAges() }) {
      (facts.oldestLogEntry, facts.oldestTombstone) = (ages.entry, ages.tombstone)
    }
    return facts
  }
}

extension ServerReader {
  func logAges() throws -> LogAges { try book { try LogAges($0.connection) } }
}

private func fileBytes(_ path: String) -> Int64? {
  var found = stat()
  return stat(path, &found) == 0 ? Int64(found.st_size) : nil
}
