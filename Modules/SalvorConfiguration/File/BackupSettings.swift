/// `server.backups`.
public struct BackupSettings: Sendable, Hashable {
  /// Resolved against the configuration's folder.
  public var directory: String
  /// How many copies stay in it; older ones go.
  public var keep: Int
}
