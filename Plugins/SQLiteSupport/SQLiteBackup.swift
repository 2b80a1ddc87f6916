import CSQLite
import SalvorModel

extension SQLiteConnection {
  /// Copies the whole database into `target` through SQLite's backup API: other connections may go on reading and
  /// writing meanwhile. What `target` held is replaced.
  ///
  /// - Parameters:
  ///   - pagesPerStep: pages between two looks at `interrupted`; negative: all at once.
  ///   - whenLocked: called when nobody else can write into `target` any more, and before its first page is replaced. Other connections
  ///     read it then as it was (write-ahead log). What it throws ends the copy, and `target` is as it was.
  public func backup(
    into target: SQLiteConnection, pagesPerStep: Int32 = -1, interrupted: () -> Bool = { false },
    whenLocked: () throws -> Void = {}
  ) throws {
    guard let backup = sqlite3_backup_init(target.database, "main", database, "main") else {
      throw SalvorError.sqlite(sqlite3_extended_errcode(target.database), target.database, file: target.path)
    }
    var waited = 0
    var isLocked = false
    while true {
      if interrupted() {
        sqlite3_backup_finish(backup)
        throw SalvorError(.cancelled, "The copy of \(path) was interrupted; \(target.path) is not complete: remove it.")
      }
      // A step of no pages locks the target.
      let code = sqlite3_backup_step(backup, isLocked ? pagesPerStep : 0)
      if code == SQLITE_DONE { break }
      if code == SQLITE_BUSY || code == SQLITE_LOCKED, waited < 100 {
        waited += 1
        sqlite3_sleep(50)
        continue
      }
      guard code == SQLITE_OK else {
        sqlite3_backup_finish(backup)
        throw SalvorError.sqlite(code, target.database, file: target.path)
      }
      if isLocked { continue }
      do { try whenLocked() } catch {
        sqlite3_backup_finish(backup)
        throw error
      }
      isLocked = true
    }
    let code = sqlite3_backup_finish(backup)
    guard code == SQLITE_OK else { throw SalvorError.sqlite(code, target.database, file: target.path) }
  }
}
