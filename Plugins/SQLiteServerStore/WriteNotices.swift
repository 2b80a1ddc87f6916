import SQLiteSupport
import SalvorStorage

/// Every commit, by whatever program, is written to the write-ahead log first.
extension SQLiteServerStore: WriteNoticingServerStore {
  nonisolated public func writes() -> AsyncStream<Void>? {
    options.isFile ? FileWrites.stream(of: options.path + "-wal") : nil
  }
}
