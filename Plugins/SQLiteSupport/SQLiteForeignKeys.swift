import CSQLite

extension SQLiteConnection {
  /// Whether a deferred foreign key is broken in the present transaction: its COMMIT would fail.
  public var hasUnresolvedForeignKeys: Bool {
    var current: Int32 = 0
    var highest: Int32 = 0
    let code = sqlite3_db_status(database, SQLITE_DBSTATUS_DEFERRED_FKS, &current, &highest, 0)
    return code == SQLITE_OK && current != 0
  }
}
