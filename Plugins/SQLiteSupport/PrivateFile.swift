#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The rights of files that Salvor makes: databases, copies, what stands beside them. They are private from the first
/// moment, whatever the umask says. SQLite gives its own files (`-wal`, `-shm`, `-journal`) the rights of their database.
///
/// A group reads and writes, too, where the directory is one for a group: where new files get the directory's group
/// (`chmod g+s`). The rights of a file that is there are nobody's but its owner's to change.
public enum PrivateFile {
  /// For a new file at `path`.
  public static func mode(at path: String) -> mode_t {
    var found = stat()
    guard stat(directory(of: path), &found) == 0, found.st_mode & S_ISGID != 0 else { return 0o600 }
    return 0o660
  }

  /// Makes an empty file, which is an empty database, unless there is one. What goes wrong shows when it is opened.
  static func make(_ path: String) {
    guard !path.isEmpty, path != ":memory:", !path.hasPrefix("file:") else { return }
    let mode = mode(at: path)
    let descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode)
    guard descriptor >= 0 else { return }
    // The umask may have taken the group's rights.
    if mode != 0o600 { _ = fchmod(descriptor, mode) }
    close(descriptor)
  }

  private static func directory(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}
