// The session extension: its declarations are hidden unless these are set as they were when the library was built.
#define SQLITE_ENABLE_SESSION 1
#define SQLITE_ENABLE_PREUPDATE_HOOK 1
#include <sqlite3.h>

// What the importer cannot see: a cast macro and variadic functions.
static inline sqlite3_destructor_type csqlite_transient(void) { return SQLITE_TRANSIENT; }
static inline sqlite3_destructor_type csqlite_static(void) { return SQLITE_STATIC; }
static inline int csqlite_enable_trigger(sqlite3 *db, int on, int *result) {
  return sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, on, result);
}
static inline int csqlite_config_defensive(sqlite3 *db, int on) {
  return sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, on, (int *)0);
}
static inline int csqlite_double_quoted_text(sqlite3 *db, int on) {
  return sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DDL, on, (int *)0);
}
// Of the whole process, before its first connection: SQLite counts no memory, and takes no lock for it; what a statement may have to
// take back is in memory up to so many bytes.
static inline void csqlite_settle(int journalBytes) {
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, journalBytes);
}
