import CSQLite

/// The SQLite library that this process runs on, for the descriptors of the stores: name and version.
public let sqliteLibrary = ["SQLite": String(cString: sqlite3_libversion())]
