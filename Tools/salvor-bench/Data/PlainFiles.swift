import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Files of databases that nobody has open.
extension PlainDatabase {
  /// Removes a database with what SQLite and Salvor keep beside it: `NAME-wal`, `NAME.salvor-identity` and the like.
  static func remove(_ path: String) { for file in family(path) { removeAny(file) } }

  /// Copies a database with all that stands beside it; what was at the target is gone.
  static func copyFamily(_ path: String, to target: String) throws {
    remove(target)
    for file in family(path) where !isDirectory(file) {
      try copyFile(file, to: target + file.dropFirst(path.count))
    }
  }

  /// Puts an older copy in the place of a database, as an operator does: what Salvor keeps beside it stays.
  static func putBack(_ copy: String, to path: String) throws {
    for log in ["-wal", "-shm"] { unlink(path + log) }
    try copyFile(copy, to: path)
  }

  static func copyFile(_ path: String, to target: String) throws {
    guard let from = fopen(path, "rb"), let to = fopen(target, "wb") else {
      throw SalvorError(.failed, "\(path) cannot be copied to \(target).")
    }
    defer {
      fclose(from)
      fclose(to)
    }
    var piece = [UInt8](repeating: 0, count: 1 << 20)
    while true {
      let count = fread(&piece, 1, piece.count, from)
      if count == 0 { return }
      guard fwrite(piece, 1, count, to) == count else {
        throw SalvorError(.storageFull, "\(target) cannot be written.")
      }
    }
  }

  static func removeAll(in directory: String) {
    for name in names(in: directory) { removeAny("\(directory)/\(name)") }
  }

  private static func family(_ path: String) -> [String] {
    let cut = path.lastIndex(of: "/") ?? path.startIndex
    let name = String(path[cut...].dropFirst())
    return names(in: String(path[..<cut])).filter { $0 == name || $0.hasPrefix(name + "-") || $0.hasPrefix(name + ".") }
      .map { "\(path[..<cut])/\($0)" }
  }

  private static func names(in directory: String) -> [String] {
    guard let handle = opendir(directory) else { return [] }
    defer { closedir(handle) }
    var names: [String] = []
    while let entry = readdir(handle) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) {
        String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
      }
      if name != "." && name != ".." { names.append(name) }
    }
    return names
  }

  /// A file, or a folder of backups.
  private static func removeAny(_ path: String) {
    guard isDirectory(path) else {
      unlink(path)
      return
    }
    removeAll(in: path)
    rmdir(path)
  }

  private static func isDirectory(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }
}
