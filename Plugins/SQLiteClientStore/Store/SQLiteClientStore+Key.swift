import SQLiteSupport
import SalvorModel
import SalvorStorage

extension SQLiteClientStore: EncryptedClientStore {
  /// The new key counts from the next opening on as well. Errors: `session-in-use` while a session is under way, in any
  /// process; `key-refused` where the text is no key or the database is not encrypted; `storage-busy` where another
  /// program has the file open.
  public func changeKey(to key: String) throws {
    let new = try SQLiteKey(key)
    let connection = try opened().connection
    try alone {
      try giveUpAhead()
      uploadPlan = nil
      quiet = nil
      try connection.changeKey(to: new)
    }
    makeKey = { key }
  }

  /// A connection to the file, with its key where it has one.
  func connect() throws -> SQLiteConnection {
    let key = try makeKey.map { try SQLiteKey($0()) }
    if key == nil, isFile, IdentityFile(path: IdentityFile.path(of: path))?.isEncrypted == true {
      throw SalvorError(
        .keyRefused, "The database is encrypted: give its key (client.storage.key).", context: ["file": path])
    }
    return try SQLiteConnection(path, key: key, for: "client-store")
  }
}
