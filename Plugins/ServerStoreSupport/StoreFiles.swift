import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The few file operations that copies, restores and the ledger of purged rows need.
package enum Files {
  package static func exists(_ path: String) -> Bool {
    var found = stat()
    return lstat(path, &found) == 0
  }

  /// The file itself, where `path` is a symbolic link to one; else `path`.
  package static func followed(_ path: String) -> String {
    var found = stat()
    guard lstat(path, &found) == 0, found.st_mode & S_IFMT == S_IFLNK, let real = realpath(path, nil) else {
      return path
    }
    defer { free(real) }
    return String(cString: real)
  }

  /// Open for reading and writing. Throws where there is one.
  package static func create(_ path: String, mode: mode_t) throws -> Int32 {
    let descriptor = FileSystem.open(path, O_RDWR | O_CREAT | O_EXCL, mode)
    guard descriptor >= 0 else { throw failure("cannot be made", path) }
    return descriptor
  }

  /// The whole file.
  package static func contents(_ path: String) throws -> [UInt8] {
    let descriptor = FileSystem.open(path, O_RDONLY)
    guard descriptor >= 0 else { throw failure("cannot be read", path) }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = readBytes(descriptor, &buffer, buffer.count)
      guard count >= 0 else { throw failure("cannot be read", path) }
      if count == 0 { return bytes }
      bytes += buffer[..<count]
    }
  }

  /// The file appears whole, or stays as it was.
  package static func replace(_ path: String, with bytes: [UInt8], mode: mode_t) throws {
    let placed = path + ".new"
    _ = FileSystem.remove(placed)
    let descriptor = try create(placed, mode: mode)
    defer { close(descriptor) }
    guard FileSystem.write(bytes, to: descriptor, of: placed), FileSystem.sync(descriptor, of: placed) else {
      throw failure("cannot be written", placed)
    }
    guard FileSystem.rename(placed, to: path) else { throw failure("cannot be written", path) }
    FileSystem.syncFolder(of: path)
  }

  /// What `errno` says of a file.
  package static func failure(_ what: String, _ path: String) -> SalvorError {
    let isFull = errno == ENOSPC || errno == EDQUOT
    return SalvorError(
      isFull ? .storageFull : .storage,
      "\(path) \(what): \(String(cString: strerror(errno))). Check the directory, its permissions and the disk.",
      context: ["file": path])
  }
}

private func readBytes(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer, _ count: Int) -> Int {
  read(descriptor, bytes, count)
}
