import CSQLite
import SalvorModel

extension SQLiteConnection {
  /// Whether the SQLite that is linked can encrypt.
  ///
  /// One without encryption passes over `PRAGMA key` without a word; one with it answers, or says that a database in
  /// memory has no key.
  public static let canEncrypt = {
    guard let probe = try? SQLiteConnection(":memory:") else { return false }
    do { return try probe.answer("PRAGMA key = 'a'") != nil } catch { return true }
  }()

  /// - Throws: `key-refused` where the SQLite that is linked cannot encrypt.
  static func proveEncryption(for path: String) throws {
    guard canEncrypt else {
      throw SalvorError(
        .keyRefused,
        "There is a key for the database, and the SQLite that is linked (\(String(cString: sqlite3_libversion()))) cannot encrypt. Link one that can (docs/guides/encryption.md), or leave the key out.",
        context: ["file": path])
    }
  }

  /// Gives the key before anything of the file is read.
  ///
  /// - Throws: `key-refused` where the key does not open the file.
  func unlock(_ key: SQLiteKey) throws {
    do {
      _ = try answer("PRAGMA key = \(key.literal)")
      // What SQLite spills from memory would be readable.
      try execute("PRAGMA temp_store = MEMORY")
      _ = try scalar("SELECT count(*) FROM sqlite_schema")
    } catch let error as SalvorError where error.code == .storageCorrupt {
      throw SalvorError(
        .keyRefused,
        "The key does not open the database: it is the key of another one, or the file is not encrypted, or damaged in its first page. Nothing was changed.",
        context: ["file": path])
    }
  }

  /// Encrypts the whole file with another key, in one transaction. No other connection may have the file open: with the old key it
  /// could read nothing any more.
  ///
  /// - Throws: `storage-busy` where another connection has the file open; `key-refused` where this connection has no key, or the
  ///   library does not do it. The file has its old key then.
  public func changeKey(to key: SQLiteKey) throws {
    guard isEncrypted else {
      throw SalvorError(
        .keyRefused,
        "The database is not encrypted: there is no key to change. docs/guides/encryption.md says how one is.",
        context: ["file": path])
    }
    clearStatementCache()
    // A write-ahead log would have pages of both keys; and no other connection may be there.
    guard try answer("PRAGMA journal_mode = DELETE") == "delete" else {
      throw SalvorError(
        .storageBusy, "Another program has the database open. End it, and change the key then.", context: ["file": path]
      )
    }
    defer { _ = try? answer("PRAGMA journal_mode = WAL") }
    do { _ = try answer("PRAGMA rekey = \(key.literal)") } catch {
      throw SalvorError(
        .keyRefused, "The SQLite that is linked did not change the key. The old one stands.", context: ["file": path])
    }
    self.key = key
  }

  /// The first value of a pragma; nil where it has none. What fails names no statement, since a key may stand in it.
  private func answer(_ pragma: String) throws -> String? {
    let statement = try prepare(pragma)
    guard try statement.step() else { return nil }
    let value = statement.values()[0].string
    while try statement.step() {}
    return value
  }
}
