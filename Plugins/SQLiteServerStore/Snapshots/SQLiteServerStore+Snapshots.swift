import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport
import SnapshotFiles

extension SQLiteServerStore: SnapshotServerStore {
  public func changes(since commit: Commit, limit: Int64) async throws -> Int64? {
    @Sendable func count(_ connection: any StoreConnection) throws -> Int64? {
      try FeedPageMaker.changes(connection, since: commit, limit: limit)
    }
    if let answer = try await reading({ reader in try await reader.book { try count($0.connection) } }) {
      return answer
    }
    return try await writer.book { try count($0.connection) }
  }

  /// Nil: beside the database file, as `NAME-snapshots`. Errors: `configuration` where `path` is nil and the database
  /// has no file.
  public func snapshotFolder(at path: String?) throws -> any SnapshotFolder {
    guard let path = path ?? databaseFile.map({ $0 + "-snapshots" }) else {
      throw SalvorError(
        .configuration, "A database in memory has no place for snapshots. Name a folder: server.snapshots.path.")
    }
    return try SnapshotDirectory(path)
  }
}
