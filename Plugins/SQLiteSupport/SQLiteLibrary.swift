import CSQLite

/// The SQLite library that this process runs on, for the descriptors of the stores: name and version.
public let sqliteLibrary = ["SQLite": String(cString: sqlite3_libversion())]

/// SQLite counts no memory in this process, and takes no lock at each allocation for it. For programs that are Salvor's own,
/// before their first connection; afterwards it does nothing. (`sqlite3_memory_used` and the heap limits count nothing then.)
public func countNoSQLiteMemory() { _ = csqlite_count_no_memory() }
