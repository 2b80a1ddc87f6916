import CSQLite

/// The SQLite library that this process runs on, for the descriptors of the stores: name and version.
public let sqliteLibrary = ["SQLite": String(cString: sqlite3_libversion())]

/// How SQLite works in this process. For programs that are Salvor's own, before their first connection; afterwards it does nothing.
///
/// - SQLite counts no memory, and takes no lock at each allocation for it. (`sqlite3_memory_used` and the heap limits count nothing then.)
/// - The journal of a statement is in memory up to 192 KiB, three times as much as by default. One statement that exceeds that puts the
///   journals of all further statements of its transaction into a file, and each row that is inserted under triggers costs six calls
///   of the system then. A few rows split a dozen pages of indexes, never fifty.
public func settleSQLite() { csqlite_settle(192 << 10) }
