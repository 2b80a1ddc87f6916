import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The folder beside the database where copies and before-images are kept: a file of data and a description of each. A
/// backup is there when its description is.
struct BackupFolder {
  let path: String
  /// Of the database, and so of its copies.
  private let key: SQLiteKey?

  init(database: String, key: SQLiteKey?) {
    path = database + ".salvor-backups"
    self.key = key
  }

  /// What is written beside each file of data.
  struct Description {
    var backup: Backup
    /// Grows with each backup: the order.
    var number: Int64
    /// Before-images: the highest counter when they were made.
    var counter: Int64
    /// Before-images: the newest commit that was known when the recovery was done, -1 for none; nil: not written down.
    var commit: Int64?
    /// Before-images: the server's incarnations that were known before the recovery; nil: not written down.
    var incarnations: [String]?
    /// Before-images: the newest commit that a group's cursor was at before the recovery, 0 for none; nil: not written down.
    var newest: Int64?
  }

  // MARK: Files

  /// IDs are anybody's; file names are not.
  private func name(_ id: String) -> String {
    id.utf8.map { byte -> String in
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x5F: String(UnicodeScalar(byte))
      default: "%" + hexadecimal([byte])
      }
    }.joined()
  }

  func data(_ id: String, _ content: Backup.Content) -> String {
    path + "/" + name(id) + (content == .copy ? ".db" : ".changeset")
  }

  private func description(_ id: String) -> String { path + "/" + name(id) + ".json" }

  func make() throws {
    guard FileSystem.makeFolder(path, PrivateFile.mode(at: path) == 0o600 ? 0o700 : 0o770) else {
      throw DurableFile.failure("folder of backups", "be made", path)
    }
    FileSystem.syncFolder(of: path)
  }

  /// Oldest first.
  func all() throws -> [Description] {
    guard let directory = opendir(path) else { return [] }
    defer { closedir(directory) }
    var found: [Description] = []
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      guard name.hasSuffix(".json"), let bytes = DurableFile.read(path + "/" + name),
        let description = try? Description(JSONValue(parsing: bytes), in: self)
      else { continue }
      found.append(description)
    }
    return found.sorted { $0.number < $1.number }
  }

  func find(_ id: String) throws -> Description? { try all().first { $0.backup.id == id } }

  func write(_ description: Description) throws {
    let json: JSONValue = [
      "id": .string(description.backup.id), "time": .integer(description.backup.time),
      "content": .string(description.backup.content.rawValue), "reason": .string(description.backup.reason),
      "bytes": .integer(description.backup.bytes), "number": .integer(description.number),
      "counter": .integer(description.counter), "commit": description.commit.map(JSONValue.integer) ?? .null,
      "incarnations": description.incarnations.map { .array($0.map(JSONValue.string)) } ?? .null,
      "newest": description.newest.map(JSONValue.integer) ?? .null,
    ]
    try DurableFile.write(json.bytes + [0x0A], to: self.description(description.backup.id), "backup's description")
  }

  /// Description first: what is left of a removal that was cut is no backup.
  func remove(_ id: String) throws {
    try DurableFile.remove(description(id), "backup")
    for content in Backup.Content.allCases { try DurableFile.remove(data(id, content), "backup") }
  }

  func size(_ path: String) -> Int64 {
    var found = stat()
    return stat(path, &found) == 0 ? Int64(found.st_size) : 0
  }

  func nextNumber() throws -> Int64 { (try all().last?.number ?? 0) + 1 }

  // MARK: Copies

  /// Copies the database through a connection of its own, so that it may be made within a transaction that has not
  /// written yet: it holds what that transaction began with. Checked and durable when this returns.
  func copy(_ database: String, id: String, reason: String, time: Int64) throws -> Backup {
    try make()
    let target = data(id, .copy)
    let aside = target + ".new"
    removeDatabase(aside)
    defer { removeDatabase(aside) }
    try writeCopy(database, to: aside)
    try DurableFile.sync(aside, "copy")
    let number = try nextNumber()
    // The same ID replaces itself: for a moment there is none, never a wrong one.
    try remove(id)
    guard FileSystem.rename(aside, to: target) else { throw DurableFile.failure("copy", "be put in place", target) }
    FileSystem.syncFolder(of: target)
    let backup = Backup(id: id, time: time, content: .copy, reason: reason, bytes: size(target), path: target)
    try write(Description(backup: backup, number: number, counter: 0))
    return backup
  }

  /// A backup's copy as a file of its own. Errors: `storage-corrupt` where it is damaged.
  func place(_ backup: Backup, at target: String) throws {
    removeDatabase(target)
    do { try writeCopy(backup.path, to: target) } catch let error as SalvorError where error.code == .storageCorrupt {
      throw SalvorError(
        .storageCorrupt, "The backup is a damaged file that was set aside: it cannot be put back. Take another one.",
        context: ["file": backup.path])
    }
    try DurableFile.sync(target, "copy")
  }

  private func writeCopy(_ database: String, to path: String) throws {
    let source = try SQLiteConnection(database, mode: .readWrite, key: key)
    let copy = try SQLiteConnection(path, key: key)
    defer {
      source.close()
      copy.close()
    }
    // It is synced once, as a whole.
    try copy.pragma("synchronous", "OFF")
    try source.backup(into: copy)
    // One file that stands on its own: no write-ahead log beside it.
    try copy.pragma("journal_mode", "DELETE")
    let finding = try copy.scalar("PRAGMA quick_check(1)")?.string
    guard finding == "ok" else {
      throw SalvorError(
        .storageCorrupt, "The copy does not pass SQLite's quick_check: the database itself is damaged. Recover it.",
        context: ["file": database])
    }
    // Who puts it back has a database that went back in time.
    try copy.transaction {
      try copy.setState(.wentBack, .integer(1))
      for table in BlobStaging.stagingTables { try copy.run("DELETE FROM \(table)") }
      try copy.clearStaged()
    }
  }

  private func removeDatabase(_ path: String) {
    for suffix in ["", "-journal", "-wal", "-shm"] { _ = FileSystem.remove(path + suffix) }
  }
}

extension BackupFolder.Description {
  fileprivate init(_ json: JSONValue, in folder: BackupFolder) throws {
    let id = try json.string("id")
    guard let content = Backup.Content(rawValue: try json.string("content")) else {
      throw SalvorError(.malformed, "A backup's description names no content that is known.")
    }
    backup = Backup(
      id: id, time: try json.integer("time"), content: content, reason: try json.string("reason"),
      bytes: try json.integer("bytes"), path: folder.data(id, content))
    number = try json.integer("number")
    counter = try json.integer("counter")
    commit = json["commit"]?.integer
    incarnations = json["incarnations"]?.array?.compactMap(\.string)
    newest = json["newest"]?.integer
  }
}
