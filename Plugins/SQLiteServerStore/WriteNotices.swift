import SQLiteSupport
import SalvorStorage

/// Every commit, by whatever program, is written to the write-ahead log first.
extension SQLiteServerStore: WriteNoticingServerStore {
  /// An element comes soon after a write to the database's log file, by whatever program; several writes may give one.
  /// Nil: the database has no file or no log yet, or the system does not tell of writes.
  nonisolated public func writes() -> AsyncStream<Void>? {
    options.isFile ? FileWrites.stream(of: options.path + "-wal") : nil
  }
}
