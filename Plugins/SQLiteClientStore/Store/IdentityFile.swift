import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The small file beside the database that a restore of the database does not put back (semantics 5): it repeats the
/// remote ID and the last sequence IDs. Older than the database is normal; an ID in it that the database does not know
/// means that the database went back in time.
struct IdentityFile: Sendable, Hashable {
  var remote: RemoteID
  var previous: SequenceID?
  var current: SequenceID?
  /// The database file's own, drawn once.
  var stamp: String

  static func path(of database: String) -> String { database + ".salvor-identity" }

  var json: JSONValue {
    .object([
      .init("remote", .string(remote.text)),
      .init("previous", previous.map { .string($0.text) } ?? .null),
      .init("current", current.map { .string($0.text) } ?? .null),
      .init("stamp", .string(stamp)),
    ])
  }

  init(remote: RemoteID, previous: SequenceID?, current: SequenceID?, stamp: String) {
    self.remote = remote
    self.previous = previous
    self.current = current
    self.stamp = stamp
  }

  /// Nil where there is no file, or none that can be read: a lost identity file proves nothing.
  init?(path: String) {
    guard let bytes = readSmallFile(path), let json = try? JSONValue(parsing: bytes) else { return nil }
    guard let remote = try? json.identifier("remote", as: RemoteID.self), let stamp = try? json.string("stamp") else {
      return nil
    }
    self.init(
      remote: remote, previous: (try? json.optionalIdentifier("previous")) ?? nil,
      current: (try? json.optionalIdentifier("current")) ?? nil, stamp: stamp)
  }

  /// Writes it aside, syncs it, and renames it into place: a reader sees the old one or the new one, and after a power
  /// cut the new one stands.
  func write(to path: String) throws {
    let aside = path + ".new"
    let bytes = json.bytes + [0x0A]
    let file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    guard file >= 0 else { throw Self.failure("be written", path) }
    let written = bytes.withUnsafeBytes { systemWrite(file, $0.baseAddress, $0.count) }
    let synced = written == bytes.count && fsync(file) == 0
    let code = errno
    systemClose(file)
    guard synced else {
      errno = code
      throw Self.failure("be written", path)
    }
    guard rename(aside, path) == 0 else { throw Self.failure("be put in place", path) }
    let folder = path.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    let directory = open(path.contains("/") ? (folder.isEmpty ? "/" : folder) : ".", O_RDONLY | O_CLOEXEC)
    guard directory >= 0 else { return }
    _ = fsync(directory)
    systemClose(directory)
  }

  private static func failure(_ what: String, _ path: String) -> SalvorError {
    let code = errno
    return SalvorError(
      code == ENOSPC || code == EDQUOT ? .storageFull : .storage,
      "The identity file could not \(what): \(String(cString: strerror(code))). Check the directory and try again.",
      context: ["file": path])
  }
}

private func readSmallFile(_ path: String) -> [UInt8]? {
  let file = open(path, O_RDONLY | O_CLOEXEC)
  guard file >= 0 else { return nil }
  defer { systemClose(file) }
  var bytes = [UInt8](repeating: 0, count: 4096)
  let count = bytes.withUnsafeMutableBytes { read(file, $0.baseAddress, $0.count) }
  return count > 0 ? Array(bytes.prefix(count)) : nil
}

private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int { write(file, bytes, count) }
private func systemClose(_ file: Int32) { _ = close(file) }
