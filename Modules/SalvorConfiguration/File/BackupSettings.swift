/// `server.backups`.
public struct BackupSettings: Sendable, Hashable {
  /// Resolved against the configuration's folder.
  public var directory: String
  public var keep: Int
}
