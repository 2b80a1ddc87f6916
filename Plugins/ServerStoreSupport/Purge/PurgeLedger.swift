import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What the ledger's name has more than the database's.
package let purgeLedgerSuffix = ".salvor-purged"

/// The file beside the database, or in a process's own folder, that a restore does not put back (semantics 10). One JSON object a line: first whose it is
/// and the key of its hashes, with how many acts have ended, then an act each. Appended to, made anew where acts end, and synced before
/// the database's transaction commits.
package struct PurgeLedger: Sendable {
  package struct Content {
    package var server: ServerID
    package var key: [UInt8]
    /// Acts that stand here no more.
    package var ended: PurgeEnd
    package var entries: [PurgeEntry]
    /// How many acts there ever were.
    package var last: Int64 { ended.count + Int64(entries.count) }
    /// Bytes that are whole lines.
    package var wholeBytes: Int
    /// The last line has no end.
    var isTorn: Bool
  }

  package let path: String
  /// Of a file that is made.
  private let mode: mode_t

  package init(path: String, mode: mode_t = 0o600) {
    self.path = path
    self.mode = mode
  }

  /// Nil: there is none. Throws `storage-corrupt` for a line that cannot be read, or does not follow the one before.
  package func read() throws -> Content? {
    guard Files.exists(path) else { return nil }
    let bytes = try Files.contents(path)
    let isTorn = bytes.last != 0x0A
    var whole = bytes.split(separator: 0x0A, omittingEmptySubsequences: false)
    let rest = whole.popLast()?.count ?? 0
    guard let head = whole.first.flatMap({ try? JSONValue(parsing: Array($0)) }),
      let server: ServerID = try? head.identifier("server"), let key = head["key"]?.string.flatMap(Self.key)
    else { throw damaged("its first line cannot be read") }
    var content = Content(
      server: server, key: key,
      ended: PurgeEnd(count: head["ended"]?.integer ?? 0, seal: head["seal"]?.string ?? ""), entries: [],
      wholeBytes: bytes.count - (isTorn ? rest : 0), isTorn: isTorn)
    var seal = content.ended.seal
    for (number, line) in whole.enumerated().dropFirst() {
      guard let entry = (try? JSONValue(parsing: Array(line))).flatMap({ PurgeEntry($0) }),
        entry.follows(seal, key: key)
      else { throw damaged("line \(number + 1) cannot be read, or lines before it are missing") }
      content.entries.append(entry)
      seal = entry.seal
    }
    return content
  }

  /// Of the last act; empty where none stands in it, nil where there is no file or its last line is not whole.
  package func lastSeal() throws -> String? {
    guard Files.exists(path) else { return nil }
    let descriptor = FileSystem.open(path, O_RDONLY)
    guard descriptor >= 0 else { throw Files.failure("cannot be read", path) }
    defer { close(descriptor) }
    // No line is longer than that.
    var buffer = [UInt8](repeating: 0, count: 1024)
    let size = lseek(descriptor, 0, SEEK_END)
    let count = pread(descriptor, &buffer, buffer.count, max(0, size - off_t(buffer.count)))
    guard count >= 0 else { throw Files.failure("cannot be read", path) }
    let lines = buffer[..<count].split(separator: 0x0A, omittingEmptySubsequences: false)
    guard lines.last?.isEmpty == true, let line = lines.dropLast().last,
      let json = try? JSONValue(parsing: Array(line))
    else { return nil }
    return json["seal"]?.string ?? ""
  }

  /// Appears whole, or not at all.
  package func write(_ server: ServerID, _ key: [UInt8], _ ended: PurgeEnd, _ entries: [PurgeEntry]) throws {
    var head: [JSONValue.Member] = [
      JSONValue.Member("server", .string(server.text)), JSONValue.Member("key", .string(hexadecimal(key))),
    ]
    if ended.count > 0 {
      head += [JSONValue.Member("ended", .integer(ended.count)), JSONValue.Member("seal", .string(ended.seal))]
    }
    try Files.replace(path, with: JSONValue.object(head).bytes + [0x0A] + lines(entries), mode: mode)
  }

  package func append(_ entries: [PurgeEntry]) throws {
    let descriptor = FileSystem.open(path, O_WRONLY | O_APPEND)
    guard descriptor >= 0 else { throw Files.failure("cannot be written", path) }
    defer { close(descriptor) }
    var before = stat()
    guard fstat(descriptor, &before) == 0 else { throw Files.failure("cannot be read", path) }
    do {
      try append(lines(entries), to: descriptor, of: path)
    } catch {
      // Half a line must not stand before the next one.
      _ = FileSystem.cut(path, to: Int(before.st_size))
      throw error
    }
  }

  package func cut(to bytes: Int) throws {
    guard FileSystem.cut(path, to: bytes) else { throw Files.failure("cannot be written", path) }
  }

  private func lines(_ entries: [PurgeEntry]) -> [UInt8] { entries.flatMap { $0.json.bytes + [0x0A] } }

  private func append(_ bytes: [UInt8], to descriptor: Int32, of path: String) throws {
    guard FileSystem.write(bytes, to: descriptor, of: path), FileSystem.sync(descriptor, of: path) else {
      throw Files.failure("cannot be written", path)
    }
  }

  func damaged(_ what: String) -> SalvorError {
    SalvorError(
      .storageCorrupt,
      "\(path), the ledger of purged rows, is damaged: \(what). The server does not start, since rows that were erased for good might come back. Put the whole file back from where it is kept.",
      context: ["file": path])
  }

  /// Of the hashes, from its 64 digits.
  static func key(_ text: String) -> [UInt8]? {
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

// `PurgeLedger` has a `read` of its own.
