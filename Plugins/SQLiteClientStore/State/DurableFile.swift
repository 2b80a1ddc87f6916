import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Small files beside the database that are replaced as a whole.
enum DurableFile {
  /// Writes it aside, syncs it, and renames it into place: a reader sees the old one or the new one, and after a power
  /// cut the new one stands.
  ///
  /// - Parameter what: as the error names it, e.g. "identity file".
  static func write(_ bytes: [UInt8], to path: String, _ what: String) throws {
    let aside = path + ".new"
    let file = FileSystem.open(aside, O_WRONLY | O_CREAT | O_TRUNC, PrivateFile.mode(at: path))
    guard file >= 0 else { throw failure(what, "be written", path) }
    let isWritten = FileSystem.write(bytes, to: file, of: aside) && FileSystem.sync(file, of: aside)
    let code = errno
    systemClose(file)
    guard isWritten else {
      errno = code
      throw failure(what, "be written", path)
    }
    guard FileSystem.rename(aside, to: path) else { throw failure(what, "be put in place", path) }
    FileSystem.syncFolder(of: path)
  }

  /// A file that is not there is removed already.
  static func remove(_ path: String, _ what: String) throws {
    guard FileSystem.remove(path) else { throw failure(what, "be removed", path) }
    FileSystem.syncFolder(of: path)
  }

  static func move(_ path: String, to other: String, _ what: String) throws {
    guard FileSystem.rename(path, to: other) else { throw failure(what, "be set aside", path) }
    FileSystem.syncFolder(of: path)
  }

  /// Nil where there is no file, or none that can be read.
  static func read(_ path: String) -> [UInt8]? {
    let file = FileSystem.open(path, O_RDONLY)
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
    let file = FileSystem.open(path, O_RDONLY)
    guard file >= 0 else { throw failure(what, "be opened", path) }
    let isSynced = FileSystem.sync(file, of: path)
    let code = errno
    systemClose(file)
    guard isSynced else {
      errno = code
      throw failure(what, "be synced", path)
    }
    FileSystem.syncFolder(of: path)
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
private func systemClose(_ file: Int32) { _ = close(file) }
