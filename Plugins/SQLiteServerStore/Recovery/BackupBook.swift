import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The copies of the database that were made: a line of each in the database, and the same in a file beside it, which a
/// restore does not put back.
struct BackupBook {
  static let table = """
    CREATE TABLE IF NOT EXISTS salvor_backup (
      id TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL, commit_id TEXT NOT NULL, time INTEGER NOT NULL,
      path TEXT NOT NULL, digest TEXT NOT NULL, forgotten INTEGER) WITHOUT ROWID;
    """
  /// What the file's name has more than the database's.
  static let suffix = ".salvor-backups"

  let connection: SQLiteConnection
  /// Nil: the database is in memory.
  let file: String?

  init(_ connection: SQLiteConnection, database: String?) {
    self.connection = connection
    file = database.map { $0 + Self.suffix }
  }

  /// A copy was made at `path`: it is whole and durable.
  func note(copyAt path: String, now: Int64) throws {
    let copy = try SQLiteConnection(path, mode: .readOnly)
    defer { copy.close() }
    let head = try CommitLog.state(copy).head
    let digest = try Self.digest(of: path)
    let absolute = Self.absolute(path)
    let id = String(SalvorStorage.digest(Array("\(absolute) \(now) \(digest)".utf8)).prefix(8))
    let backup = RecordedBackup(id: id, commit: head, time: now, path: absolute, digest: digest)
    try connection.execute(Self.table)
    try keep(backup)
    try append(backup.json)
  }

  /// Newest first.
  func all() throws -> [RecordedBackup] {
    // The first copy was made before there was such a table.
    let query = "SELECT id, number, commit_id, time, path, digest, forgotten FROM salvor_backup"
    let rows = try connection.tableShape("salvor_backup") == nil ? [] : try connection.rows(query)
    let known = rows.compactMap { row -> RecordedBackup? in
      guard let commit = row[2].string.flatMap({ CommitID($0) }) else { return nil }
      return RecordedBackup(
        id: row[0].string ?? "", commit: Commit(number: row[1].integer ?? 0, id: commit), time: row[3].integer ?? 0,
        path: row[4].string ?? "", digest: row[5].string ?? "", isForgotten: row[6].integer != nil)
    }
    let (found, forgotten) = try lines()
    let others = found.filter { found in !known.contains { $0.id == found.id } }
    return (known + others).map { backup in
      var backup = backup
      if forgotten.contains(backup.id) { backup.isForgotten = true }
      return backup
    }.sorted { ($1.time, $1.id) < ($0.time, $0.id) }
  }

  /// False: there is no such copy, or it is forgotten.
  func forget(_ id: String, now: Int64) throws -> Bool {
    guard let backup = try all().first(where: { $0.id == id }), !backup.isForgotten else { return false }
    try connection.execute(Self.table)
    try keep(backup)
    try connection.run("UPDATE salvor_backup SET forgotten = ?2 WHERE id = ?1", .text(id), .integer(now))
    try append(["forget": .string(id)])
    return true
  }

  private func keep(_ backup: RecordedBackup) throws {
    try connection.run(
      """
      INSERT OR IGNORE INTO salvor_backup (id, number, commit_id, time, path, digest) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
      """, .text(backup.id), .integer(backup.commit.number), .text(backup.commit.id.text), .integer(backup.time),
      .text(backup.path), .text(backup.digest))
  }

  // MARK: The file

  /// What the file beside the database says of a copy.
  enum Listing {
    case unlisted
    /// `backup` has written another file there last.
    case changed
    case known(isForgotten: Bool)
  }

  static func listing(of path: String, beside database: String) throws -> Listing {
    let absolute = absolute(path)
    let (backups, forgotten) = try lines(of: database + suffix)
    guard let last = backups.filter({ $0.path == absolute }).max(by: { $0.time < $1.time }) else { return .unlisted }
    return try digest(of: path) == last.digest ? .known(isForgotten: forgotten.contains(last.id)) : .changed
  }

  private func lines() throws -> (backups: [RecordedBackup], forgotten: Set<String>) { try Self.lines(of: file) }

  private static func lines(of file: String?) throws -> (backups: [RecordedBackup], forgotten: Set<String>) {
    guard let file, Files.exists(file) else { return ([], []) }
    guard let stream = fopen(file, "r") else { throw Files.failure("cannot be read", file) }
    defer { fclose(stream) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while case let count = fread(&buffer, 1, buffer.count, stream), count > 0 { bytes += buffer[..<count] }
    var found: [RecordedBackup] = []
    var forgotten: Set<String> = []
    for line in bytes.split(separator: 0x0A) {
      guard let json = try? JSONValue(parsing: Array(line)) else { continue }
      if let id = json["forget"]?.string { forgotten.insert(id) }
      if let backup = RecordedBackup(json) { found.append(backup) }
    }
    return (found, forgotten)
  }

  private func append(_ json: JSONValue) throws {
    guard let file else { return }
    let descriptor = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, PrivateFile.mode(at: file))
    guard descriptor >= 0 else { throw Files.failure("cannot be written", file) }
    defer { close(descriptor) }
    let line = json.bytes + [0x0A]
    guard write(descriptor, line, line.count) == line.count, fsync(descriptor) == 0 else {
      throw Files.failure("cannot be written", file)
    }
  }

  private static func digest(of path: String) throws -> String {
    guard let stream = fopen(path, "r") else { throw Files.failure("cannot be read", path) }
    defer { fclose(stream) }
    let hasher = ContentHasher()
    var buffer = [UInt8](repeating: 0, count: 1 << 20)
    while case let count = fread(&buffer, 1, buffer.count, stream), count > 0 {
      buffer.withUnsafeBytes { hasher.update(UnsafeRawBufferPointer(rebasing: $0.prefix(count))) }
    }
    return hexadecimal(hasher.digest())
  }

  private static func absolute(_ path: String) -> String {
    guard let resolved = realpath(path, nil) else { return path }
    defer { free(resolved) }
    return String(cString: resolved)
  }
}
