import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A file that cannot be read any more (semantics 9, *corrupt file*).
extension SQLiteClientStore {
  /// Renames the file with its write-ahead log into the folder of backups: whoever can read something of it still may.
  public func setAside(id: String, reason: String) async throws -> Backup { try setAsideNow(id: id, reason: reason) }

  func setAsideNow(id: String, reason: String) throws -> Backup {
    guard isFile else { throw SalvorError(.usage, "A database in memory has no file to set aside.") }
    closeNow()
    let folder = backupFolder
    try folder.make()
    let target = folder.data(id, .copy)
    for suffix in ["-wal", "-shm"] { _ = FileSystem.rename(path + suffix, to: target + suffix) }
    guard FileSystem.rename(path, to: target) else {
      throw DurableFile.failure("damaged database", "be set aside", target)
    }
    FileSystem.syncFolder(of: path)
    FileSystem.syncFolder(of: target)
    let backup = Backup(
      id: id, time: clock.now(), content: .copy, reason: reason, bytes: folder.size(target), path: target)
    try folder.write(BackupFolder.Description(backup: backup, number: try folder.nextNumber(), counter: 0))
    return backup
  }
}
