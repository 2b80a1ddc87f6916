import SQLiteSupport
import SalvorModel
import SalvorStorage

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
      (facts.oldestLogEntry, facts.oldestTombstone) = ages
    }
    return facts
  }
}

extension ServerReader {
  /// When the oldest entry of the change log and the oldest tombstone were numbered; by the first rows of their indexes.
  func logAges() throws -> (entry: Int64?, tombstone: Int64?) {
    try book { book in
      let connection = book.connection
      func time(of sequence: Int64?) throws -> Int64? {
        guard let sequence else { return nil }
        return try connection.integer(
          "SELECT time FROM salvor_commit WHERE last_seq >= ?1 ORDER BY last_seq LIMIT 1", .integer(sequence))
      }
      return (
        try time(of: connection.integer("SELECT min(seq) FROM salvor_change")),
        try time(of: connection.integer("SELECT min(seq) FROM salvor_gone"))
      )
    }
  }
}

private func fileBytes(_ path: String) -> Int64? {
  var found = stat()
  return stat(path, &found) == 0 ? Int64(found.st_size) : nil
}
