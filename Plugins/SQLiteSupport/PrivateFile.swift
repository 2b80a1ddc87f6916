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

  /// The file that `path` leads to, where its last part is a symbolic link: what stands beside a database is found by whatever name it is
  /// opened. SQLite puts its own files there, too. The file need not be there. `path` itself where there is no link.
  public static func followingLinks(_ path: String) -> String {
    var path = path
    // As many as the kernel follows: a circle of links is refused when the file is opened.
    for _ in 0..<40 {
      var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
      let count = readlink(path, &buffer, buffer.count)
      guard count > 0, count < buffer.count else { return path }
      let target = String(decoding: buffer[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self)
      let folder = directory(of: path)
      path = target.hasPrefix("/") ? target : folder == "." ? target : "\(folder == "/" ? "" : folder)/\(target)"
    }
    return path
  }

  private static func directory(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}
