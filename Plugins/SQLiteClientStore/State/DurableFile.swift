import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Small files beside the database that are replaced as a whole.
enum DurableFile {
  /// Told of each file and folder when it is synced.
  @TaskLocal static var watcher: (@Sendable (_ path: String) -> Void)?

  /// Writes it aside, syncs it, and renames it into place: a reader sees the old one or the new one, and after a power
  /// cut the new one stands.
  ///
  /// - Parameter what: as the error names it, e.g. "identity file".
  static func write(_ bytes: [UInt8], to path: String, _ what: String) throws {
    let aside = path + ".new"
    let file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, PrivateFile.mode(at: path))
    guard file >= 0 else { throw failure(what, "be written", path) }
    let isWritten = writeAll(file, bytes) && isSynced(file, aside)
    let code = errno
    systemClose(file)
    guard isWritten else {
      errno = code
      throw failure(what, "be written", path)
    }
    guard rename(aside, path) == 0 else { throw failure(what, "be put in place", path) }
    syncDirectory(of: path)
  }

  /// A file that is not there is removed already.
  static func remove(_ path: String, _ what: String) throws {
    guard unlink(path) == 0 || errno == ENOENT else { throw failure(what, "be removed", path) }
    syncDirectory(of: path)
  }

  static func move(_ path: String, to other: String, _ what: String) throws {
    guard rename(path, other) == 0 else { throw failure(what, "be set aside", path) }
    syncDirectory(of: path)
  }

  /// Nil where there is no file, or none that can be read.
  static func read(_ path: String) -> [UInt8]? {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { systemClose(file) }
    var found: [UInt8] = []
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = bytes.withUnsafeMutableBytes { systemRead(file, $0.baseAddress, $0.count) }
      if count < 0 && errno == EINTR { continue }
      guard count >= 0 else { return nil }
      if count == 0 { return found }
      found += bytes.prefix(count)
    }
  }

  /// Makes what was written to a file, and its name, outlive a power cut.
  static func sync(_ path: String, _ what: String) throws {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { throw failure(what, "be opened", path) }
    let isSynced = isSynced(file, path)
    let code = errno
    systemClose(file)
    guard isSynced else {
      errno = code
      throw failure(what, "be synced", path)
    }
    syncDirectory(of: path)
  }

  private static func writeAll(_ file: Int32, _ bytes: [UInt8]) -> Bool {
    bytes.withUnsafeBytes { buffer in
      var offset = 0
      while offset < buffer.count {
        let count = systemWrite(file, buffer.baseAddress?.advanced(by: offset), buffer.count - offset)
        if count < 0 && errno == EINTR { continue }
        guard count > 0 else { return false }
        offset += count
      }
      return true
    }
  }

  static func syncDirectory(of path: String) {
    let folder = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    let directory = open(path.contains("/") ? (folder.isEmpty ? "/" : folder) : ".", O_RDONLY | O_CLOEXEC)
    guard directory >= 0 else { return }
    _ = isSynced(directory, folder)
    systemClose(directory)
  }

  private static func isSynced(_ file: Int32, _ path: String) -> Bool {
    guard fsync(file) == 0 else { return false }
    watcher?(path)
    return true
  }

  static func failure(_ what: String, _ verb: String, _ path: String) -> SalvorError {
    let code = errno
    return SalvorError(
      code == ENOSPC || code == EDQUOT ? .storageFull : .storage,
      "The \(what) could not \(verb): \(String(cString: strerror(code))). Check the directory and try again.",
      context: ["file": path])
  }
}

private func systemRead(_ file: Int32, _ bytes: UnsafeMutableRawPointer?, _ count: Int) -> Int {
  read(file, bytes, count)
}
private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int { write(file, bytes, count) }
private func systemClose(_ file: Int32) { _ = close(file) }
