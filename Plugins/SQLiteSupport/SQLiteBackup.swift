import CSQLite
import SalvorModel

extension SQLiteConnection {
  /// Copies the whole database into `target` through SQLite's backup API: other connections may go on reading and
  /// writing meanwhile. What `target` held is replaced.
  ///
  /// - Parameter pagesPerStep: pages between two looks at `interrupted`; negative: all at once.
  public func backup(
    into target: SQLiteConnection, pagesPerStep: Int32 = -1, interrupted: () -> Bool = { false }
  ) throws {
    guard let backup = sqlite3_backup_init(target.database, "main", database, "main") else {
      throw SalvorError.sqlite(sqlite3_extended_errcode(target.database), target.database, file: target.path)
    }
    var waited = 0
    while true {
      if interrupted() {
        sqlite3_backup_finish(backup)
        throw SalvorError(.cancelled, "The copy of \(path) was interrupted; \(target.path) is not complete: remove it.")
      }
      let code = sqlite3_backup_step(backup, pagesPerStep)
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
    }
    let code = sqlite3_backup_finish(backup)
    guard code == SQLITE_OK else { throw SalvorError.sqlite(code, target.database, file: target.path) }
  }
}
