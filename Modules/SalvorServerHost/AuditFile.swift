import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The acts of operators, one JSON object a line, in a file beside the database: a restored database does not forget them.
/// Appended to by the server and by the command line alike; nothing in it is ever changed.
package struct AuditFile: AuditTrail {
  package let path: String
  /// As much of the file's end is read for one answer.
  private static let readBytesMax = 4 << 20

  package init(path: String) { self.path = path }

  /// Nil where the storage is no file, and has no place for one.
  package init?(of store: any ServerStore) {
    let prefix = (store as? any FileDatabase)?.databaseFile ?? (store as? any FilesBesideDatabase)?.besidePrefix
    guard let prefix else { return nil }
    path = prefix + ".audit.jsonl"
  }

  package func append(_ record: AuditRecord) throws {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw failure("cannot be opened") }
    defer { close(descriptor) }
    // One write: lines of two processes do not mix.
    let line = record.json.bytes + [0x0A]
    guard line.withUnsafeBytes({ write(descriptor, $0.baseAddress, $0.count) }) == line.count, fsync(descriptor) == 0
    else { throw failure("cannot be written") }
  }

  package func newest(limit: Int, before: Int64?) throws -> [AuditRecord] {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    if descriptor < 0, errno == ENOENT { return [] }
    guard descriptor >= 0 else { throw failure("cannot be read") }
    defer { close(descriptor) }
    let size = Int(lseek(descriptor, 0, SEEK_END))
    let start = max(0, size - Self.readBytesMax)
    lseek(descriptor, off_t(start), SEEK_SET)
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while bytes.count < Self.readBytesMax {
      let count = read(descriptor, &buffer, buffer.count)
      if count < 0 && errno == EINTR { continue }
      guard count > 0 else { break }
      bytes += buffer[..<count]
    }
    // The first line may be the end of one; a last one without its end is being written.
    var lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false)
    if start > 0 { lines.removeFirst() }
    var found: [AuditRecord] = []
    for line in lines.reversed() where found.count < limit {
      guard !line.isEmpty, let json = try? JSONValue(parsing: Array(line)), let record = AuditRecord(json) else {
        continue
      }
      if let before, record.time >= before { continue }
      found.append(record)
    }
    return found
  }

  private func failure(_ what: String) -> SalvorError {
    SalvorError(
      .storage, "The list of operators' acts \(path) \(what): \(String(cString: strerror(errno))).",
      context: ["file": path])
  }
}
