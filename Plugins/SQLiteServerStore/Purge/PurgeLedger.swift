import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorWire
import ServerStoreSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What the ledger's name has more than the database's.
let purgeLedgerSuffix = ".salvor-purged"

/// The file beside the database that a restore does not put back (semantics 10). One JSON object a line: first whose it is
/// and the key of its hashes, then an act each. Only appended to, and synced before the database's transaction commits.
struct PurgeLedger {
  struct Content {
    var server: ServerID
    var key: [UInt8]
    var entries: [PurgeEntry]
    /// Bytes that are whole lines.
    var wholeBytes: Int
    /// The last line has no end.
    var isTorn: Bool
  }

  let path: String

  /// Nil: there is none. Throws `storage-corrupt` for a line that cannot be read, or does not follow the one before.
  func read() throws -> Content? {
    guard Files.exists(path) else { return nil }
    let bytes = try contents()
    let isTorn = bytes.last != 0x0A
    var whole = bytes.split(separator: 0x0A, omittingEmptySubsequences: false)
    let rest = whole.popLast()?.count ?? 0
    guard let head = whole.first.flatMap({ try? JSONValue(parsing: Array($0)) }),
      let server: ServerID = try? head.identifier("server"), let key = head["key"]?.string.flatMap(bytesOf)
    else { throw damaged("its first line cannot be read") }
    var content = Content(
      server: server, key: key, entries: [], wholeBytes: bytes.count - (isTorn ? rest : 0), isTorn: isTorn)
    var seal = ""
    for (number, line) in whole.enumerated().dropFirst() {
      guard let entry = (try? JSONValue(parsing: Array(line))).flatMap({ PurgeEntry($0) }),
        entry.follows(seal, key: key)
      else { throw damaged("line \(number + 1) cannot be read, or lines before it are missing") }
      content.entries.append(entry)
      seal = entry.seal
    }
    return content
  }

  /// Appears whole, or not at all.
  func write(_ server: ServerID, _ key: [UInt8], _ entries: [PurgeEntry]) throws {
    let placed = path + ".new"
    unlink(placed)
    let descriptor = try Files.create(placed)
    defer { close(descriptor) }
    let head: JSONValue = ["server": .string(server.text), "key": .string(hexadecimal(key))]
    try append(head.bytes + [0x0A] + lines(entries), to: descriptor)
    guard rename(placed, path) == 0 else { throw Files.failure("cannot be written", path) }
    Files.syncDirectory(of: path)
  }

  func append(_ entries: [PurgeEntry]) throws {
    let descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC)
    guard descriptor >= 0 else { throw Files.failure("cannot be written", path) }
    defer { close(descriptor) }
    var before = stat()
    guard fstat(descriptor, &before) == 0 else { throw Files.failure("cannot be read", path) }
    do {
      try append(lines(entries), to: descriptor)
    } catch {
      // Half a line must not stand before the next one.
      ftruncate(descriptor, before.st_size)
      throw error
    }
  }

  func cut(to bytes: Int) throws {
    guard truncate(path, off_t(bytes)) == 0 else { throw Files.failure("cannot be written", path) }
  }

  private func lines(_ entries: [PurgeEntry]) -> [UInt8] { entries.flatMap { $0.json.bytes + [0x0A] } }

  private func append(_ bytes: [UInt8], to descriptor: Int32) throws {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { writeBytes(descriptor, $0.baseAddress, $0.count) }
      guard count > 0 else { throw Files.failure("cannot be written", path) }
      rest = rest.dropFirst(count)
    }
    guard fsync(descriptor) == 0 else { throw Files.failure("cannot be written", path) }
  }

  private func contents() throws -> [UInt8] {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw Files.failure("cannot be read", path) }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = readBytes(descriptor, &buffer, buffer.count)
      guard count >= 0 else { throw Files.failure("cannot be read", path) }
      if count == 0 { return bytes }
      bytes += buffer[..<count]
    }
  }

  func damaged(_ what: String) -> SalvorError {
    SalvorError(
      .storageCorrupt,
      "\(path), the ledger of purged rows, is damaged: \(what). The server does not start, since rows that were erased for good might come back. Put the whole file back from where it is kept.",
      context: ["file": path])
  }

  private func bytesOf(_ text: String) -> [UInt8]? {
    let digits = Array(text.utf8)
    guard digits.count == 64 else { return nil }
    var bytes: [UInt8] = []
    for place in stride(from: 0, to: 64, by: 2) {
      guard let byte = UInt8(String(decoding: digits[place..<place + 2], as: UTF8.self), radix: 16) else { return nil }
      bytes.append(byte)
    }
    return bytes
  }
}

// `PurgeLedger` has a `read` and a `write` of its own.
private func writeBytes(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  write(descriptor, bytes, count)
}
private func readBytes(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer, _ count: Int) -> Int {
  read(descriptor, bytes, count)
}
