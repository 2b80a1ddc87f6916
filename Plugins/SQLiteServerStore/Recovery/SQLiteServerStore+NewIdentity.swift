import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

extension SQLiteServerStore {
  /// For a copy that is to be a server of its own. Errors: `storage-busy` where another connection has the file open,
  /// `usage` for a database in memory and for a file that is no server's database; nothing was changed then.
  public func adoptNewID() async throws -> ServerRenaming {
    guard options.isFile else {
      throw SalvorError(.usage, "A database in memory is no copy of another one. Name a file as the storage's path.")
    }
    let path = options.path
    let new = ServerID(from: options.random)
    let connection = try SQLiteConnection(path, mode: .readWrite, busyTimeoutMilliseconds: 500)
    defer { connection.close() }
    do {
      // A connection that is open in this mode keeps the mode from being left.
      guard try connection.pragma("journal_mode", "DELETE")?.string == "delete" else { throw Self.inUse(path) }
      let before = try connection.transaction(.exclusive) {
        guard let before = try NewIdentity.present(connection) else {
          throw SalvorError(
            .usage, "\(path) is not the database of a Salvor server. Nothing was changed.", context: ["file": path])
        }
        try NewIdentity.begin(new, connection)
        return before
      }
      try NewIdentity.complete(connection, path)
      return ServerRenaming(before: before, now: new, database: path)
    } catch let error as SalvorError where error.code == .storageBusy {
      throw Self.inUse(path)
    }
  }

  private static func inUse(_ path: String) -> SalvorError {
    SalvorError(
      .storageBusy, "\(path) is in use: a server, or another program, has it open. Nothing was changed. Stop it first.",
      context: ["file": path])
  }
}
