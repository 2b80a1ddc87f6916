import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
  private let systemRead = Glibc.read
  private let systemWrite = Glibc.write
  private let systemOpen: @Sendable (String, Int32) -> Int32 = { Glibc.open($0, $1) }
  private let systemClose = Glibc.close
#elseif canImport(Darwin)
  import Darwin
  private let systemRead = Darwin.read
  private let systemWrite = Darwin.write
  private let systemOpen: @Sendable (String, Int32) -> Int32 = { Darwin.open($0, $1) }
  private let systemClose = Darwin.close
#endif

/// A file that is read or written piece by piece. What goes wrong is named with the file.
final class OpenFile: @unchecked Sendable {
  static let pieceBytes = 256 << 10
  let path: String
  let descriptor: Int32

  /// Nil: there is none.
  init?(reading path: String) throws {
    descriptor = systemOpen(path, O_RDONLY | O_CLOEXEC)
    self.path = path
    guard descriptor >= 0 else {
      if errno == ENOENT { return nil }
      throw Self.failure("read", path)
    }
  }

  /// Private from the first moment; made where it is not there.
  init(writing path: String) throws {
    descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, PrivateFile.mode(at: path))
    self.path = path
    guard descriptor >= 0 else { throw Self.failure("written", path) }
  }

  deinit { _ = systemClose(descriptor) }

  var size: Int64 {
    var found = stat()
    return fstat(descriptor, &found) == 0 ? Int64(found.st_size) : 0
  }

  func seek(to offset: Int64) { _ = lseek(descriptor, off_t(offset), SEEK_SET) }

  func truncate(to offset: Int64) throws {
    guard ftruncate(descriptor, off_t(offset)) == 0 else { throw Self.failure("cut", path) }
  }

  /// Empty at the end.
  func read(upTo count: Int = OpenFile.pieceBytes) throws -> [UInt8] {
    try [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      while true {
        let got = systemRead(descriptor, buffer.baseAddress, count)
        if got < 0, errno == EINTR { continue }
        guard got >= 0 else { throw Self.failure("read", path) }
        filled = got
        return
      }
    }
  }

  func write(_ bytes: [UInt8]) throws {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { systemWrite(descriptor, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw Self.failure("written", path) }
      rest = rest.dropFirst(count)
    }
  }

  func sync() throws { guard fsync(descriptor) == 0 else { throw Self.failure("written", path) } }

  /// To the end, or `count` bytes.
  func pieces(count: Int64 = .max, atMost pieceBytes: Int = OpenFile.pieceBytes) -> BytePieces {
    let left = Mutex(count)
    return { [self] in
      let most = left.withLock { Int(clamping: min(Int64(pieceBytes), $0)) }
      guard most > 0 else { return nil }
      let bytes = try read(upTo: most)
      left.withLock { $0 -= Int64(bytes.count) }
      return bytes.isEmpty ? nil : bytes
    }
  }

  static func failure(_ verb: String, _ path: String) -> SalvorError {
    let code = errno
    return SalvorError(
      code == ENOSPC || code == EDQUOT ? .storageFull : .storage,
      "\(path) cannot be \(verb): \(String(cString: strerror(code))).", context: ["file": path])
  }
}

enum FileSystem {
  /// A file that is not there is removed already.
  static func remove(_ path: String) throws {
    guard unlink(path) == 0 || errno == ENOENT else { throw OpenFile.failure("removed", path) }
  }

  static func move(_ path: String, to other: String) throws {
    guard rename(path, other) == 0 else { throw OpenFile.failure("put in place", path) }
  }

  static func makeFolder(_ path: String) throws {
    guard mkdir(path, 0o700) == 0 || errno == EEXIST else { throw OpenFile.failure("made", path) }
  }

  static func size(_ path: String) -> Int64? {
    var found = stat()
    return stat(path, &found) == 0 ? Int64(found.st_size) : nil
  }

  /// Names alone; none where there is no such folder.
  static func names(in folder: String) -> [String] {
    guard let open = opendir(folder) else { return [] }
    defer { closedir(open) }
    var names: [String] = []
    while let entry = readdir(open) {
      names.append(
        withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
    }
    return names
  }

  /// Nil: nobody knows.
  static func freeBytes(at path: String) -> Int64? {
    var system = statvfs()
    guard statvfs(path, &system) == 0 else { return nil }
    return Int64(clamping: UInt64(system.f_bavail) * UInt64(system.f_frsize))
  }

  /// The folder that a file is in, and the file's name.
  static func parts(of path: String) -> (folder: String, name: String) {
    guard let slash = path.lastIndex(of: "/") else { return (".", path) }
    return (slash == path.startIndex ? "/" : String(path[..<slash]), String(path[path.index(after: slash)...]))
  }

  static func readAll(_ path: String, limit: Int) throws -> [UInt8]? {
    guard let file = try OpenFile(reading: path), file.size <= Int64(limit) else { return nil }
    var bytes: [UInt8] = []
    while bytes.count <= limit {
      let piece = try file.read()
      if piece.isEmpty { break }
      bytes += piece
    }
    return bytes
  }

  /// Written aside and renamed into place: a reader sees the old one or the new one.
  static func write(_ bytes: [UInt8], to path: String) throws {
    let aside = path + ".new"
    do {
      let file = try OpenFile(writing: aside)
      try file.truncate(to: 0)
      try file.write(bytes)
      try file.sync()
      try move(aside, to: path)
    } catch {
      try? remove(aside)
      throw error
    }
  }
}
