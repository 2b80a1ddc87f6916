import CSQLite

/// The SQLite library that this process runs on, for the descriptors of the stores: name and version.
public let sqliteLibrary = ["SQLite": String(cString: sqlite3_libversion())]

/// How SQLite works in this process. For programs that are Salvor's own, before their first connection; afterwards it does nothing.
///
/// - SQLite counts no memory, and takes no lock at each allocation for it. (`sqlite3_memory_used` and the heap limits count nothing then.)
/// - The journal of a statement is in memory up to 120 KiB, twice as much as by default. One statement that exceeds that puts the
///   journals of all further statements of its transaction into a file, and each row that is inserted under triggers costs six calls
///   of the system then. It must stay below 128 KiB: SQLite hands a journal that becomes a file over in one call, and one call writes no
///   more (it fails with `SQLITE_FULL` then).
public func settleSQLite() { csqlite_settle(120 << 10) }
