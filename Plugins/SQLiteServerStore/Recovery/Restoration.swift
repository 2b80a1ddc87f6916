import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Puts a copy in the place of a database that nobody has open.
struct Restoration {
  /// Of the database, as the server is told it: the files beside it are named after it.
  let path: String
  /// The database itself, where `path` is a symbolic link.
  let file: String
  let source: String
  /// The copy may be of another server than the database.
  let overAnotherServer: Bool
  /// Milliseconds since 1970.
  let now: Int64

  init(path: String, source: String, overAnotherServer: Bool, now: Int64) {
    self.path = path
    file = Files.followed(path)
    self.source = source
    self.overAnotherServer = overAnotherServer
    self.now = now
  }

  func run() throws -> ServerRestoration {
    try refuseItself()
    let listing = try BackupBook.listing(of: source, beside: path)
    if case .changed = listing {
      throw SalvorError(
        .usage,
        "\(source) is not as salvor server backup has written it: its SHA-256 is another. It is damaged, or something else was written there. Nothing was changed. Restore another copy; or, if this one is meant as it is, a copy of it under another name.",
        context: ["file": source])
    }
    let placed = file + ".restoring"
    Files.removeDatabase(placed)
    defer { Files.removeDatabase(placed) }
    do {
      let copy = try open(source)
      defer { copy.close() }
      try DatabaseCopy.make(from: copy, to: placed)
    } catch let error as SalvorError where error.code == .storageCorrupt {
      throw refused("it is damaged, or not a SQLite database")
    }
    let (server, head) = try identity(placed)
    let before = Files.exists(file) ? try replace(with: placed, server) : try place(placed, server)
    FileSystem.syncFolder(of: file)
    if file != path { FileSystem.syncFolder(of: path) }
    var done = ServerRestoration(
      server: server, head: head, database: path, before: before,
      remembered: remembered.flatMap { $0.server == server ? $0.commit.number : nil })
    if case .known(let isForgotten) = listing { done.isForgotten = isForgotten }
    return done
  }

  /// What the file beside the database says.
  private var remembered: SideFile.Content? {
    Files.exists(path + sideSuffix)
      ? SideFile(path + sideSuffix, mode: PrivateFile.mode(at: path + sideSuffix))?.read() : nil
  }

  private func refused(_ why: String) -> SalvorError {
    SalvorError(
      .usage, "\(source) cannot be restored: \(why). Nothing was changed. Name a file that salvor server backup made.",
      context: ["file": source])
  }

  // MARK: The copy

  private func refuseItself() throws {
    var copy = stat()
    var database = stat()
    guard stat(source, &copy) == 0 else { throw refused(String(cString: strerror(errno))) }
    guard stat(path, &database) == 0 else { return }
    if copy.st_dev == database.st_dev && copy.st_ino == database.st_ino { throw refused("it is the database itself") }
  }

  /// A file without a log beside it is read as it is, and nothing is left beside it.
  private func open(_ path: String) throws -> SQLiteConnection {
    if Files.exists(path + "-wal") || Files.exists(path + "-journal") {
      return try SQLiteConnection(path, mode: .readOnly)
    }
    let escaped = path.utf8.map { byte -> String in
      let isPlain = byte.isASCIIAlphanumeric || "/._-~".utf8.contains(byte)
      return isPlain ? String(UnicodeScalar(byte)) : "%" + hexadecimal([byte])
    }
    return try SQLiteConnection("file:\(escaped.joined())?immutable=1", mode: .readOnly)
  }

  private func identity(_ path: String) throws -> (ServerID, Commit) {
    let copy = try SQLiteConnection(path, mode: .readOnly)
    defer { copy.close() }
    guard try copy.tableShape("salvor_server") != nil, try copy.tableShape("salvor_commit") != nil,
      let id = try copy.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string.flatMap({ ServerID($0) })
    else { throw refused("it is not the database of a Salvor server") }
    let format = try copy.integer("SELECT value FROM salvor_server WHERE key = 'format'") ?? 0
    guard format <= ServerDDL.format else { throw refused("a later version of Salvor wrote it (format \(format))") }
    return (id, try CommitLog.state(copy).head)
  }

  // MARK: The database

  /// There is no database: a log without one must not be taken for the copy's.
  private func place(_ placed: String, _ server: ServerID) throws -> String? {
    try requireServer(server, nil)
    // Where nothing remembers what there was, the copy itself has to know that it was put back.
    if remembered?.server != server { try noteUnremembered(placed) }
    try setLedgerAside(freeName(), server)
    for suffix in ["-wal", "-shm", "-journal"] { unlink(file + suffix) }
    guard rename(placed, file) == 0 else { throw Files.failure("cannot be written", file) }
    return nil
  }

  private func replace(with placed: String, _ server: ServerID) throws -> String {
    let before = freeName()
    // Opening a damaged database throws its log away.
    let logs = ["-wal", "-journal"]
    for suffix in logs { link(file + suffix, before + suffix) }
    var keepsLogs = false
    defer { if !keepsLogs { for suffix in logs { unlink(before + suffix) } } }
    let lock = try lockedDatabase()
    defer { lock?.close() }
    try requireServer(server, lock)
    keepsLogs = lock == nil
    if let lock { try note(placed, inPlaceOf: lock) }
    try takeOverRights(placed)
    try setLedgerAside(before, server)
    // The name always stands for one of the two databases: whoever starts meanwhile makes no new one.
    guard link(file, before) == 0 || rename(file, before) == 0 else { throw Files.failure("cannot be kept", file) }
    if lock == nil { for suffix in logs + ["-shm"] { unlink(file + suffix) } }
    guard rename(placed, file) == 0 else {
      let error = Files.failure("cannot be written", file)
      if !Files.exists(file) { rename(before, file) }
      throw error
    }
    return before
  }

  /// The copy knows what it takes the place of. What cannot be read is found by the next start, by the file beside.
  private func note(_ placed: String, inPlaceOf before: SQLiteConnection) throws {
    let copy = try SQLiteConnection(placed, mode: .readWrite)
    defer { copy.close() }
    let find = "SELECT value FROM salvor_server WHERE key = 'id'"
    guard (try? before.scalar(find)) == (try copy.scalar(find)), try before.tableShape("salvor_commit") != nil else {
      return
    }
    try completeLedger(before)
    try RestoreOpening(connection: copy).begin(inPlaceOf: before, remembered, now: now)
  }

  private func noteUnremembered(_ placed: String) throws {
    let copy = try SQLiteConnection(placed, mode: .readWrite)
    defer { copy.close() }
    try RestoreOpening(connection: copy).beginUnremembered(now: now)
  }

  /// The copy of another server takes the place of a database only where somebody says so: every device of that database would be told
  /// `server-replaced`.
  private func requireServer(_ server: ServerID, _ before: SQLiteConnection?) throws {
    var present = remembered?.server
    if let before, try before.tableShape("salvor_server") != nil {
      let find = "SELECT value FROM salvor_server WHERE key = 'id'"
      present = try before.scalar(find)?.string.flatMap { ServerID($0) } ?? present
    }
    guard !overAnotherServer, let present, present != server else { return }
    throw SalvorError(
      .usage,
      "\(source) is a copy of another server's database: its server ID is \(server), and \(path) is of the server \(present). Nothing was changed. Restore a copy of this server (salvor server backups lists them). If the other server is to take this place, say --another-server: every device of this one is told server-replaced then.",
      context: ["file": source])
  }

  /// What another server's ledger says is of no row here.
  private func setLedgerAside(_ before: String, _ server: ServerID) throws {
    guard overAnotherServer, let found = try? PurgeLedger(besides: path).read(), found.server != server else { return }
    let ledger = path + purgeLedgerSuffix
    guard rename(ledger, path + before.dropFirst(file.count) + purgeLedgerSuffix) == 0 else {
      throw Files.failure("cannot be kept", ledger)
    }
  }

  /// What was erased stays so after the restore by the ledger alone: it has at least what this database knows.
  private func completeLedger(_ before: SQLiteConnection) throws {
    guard try before.tableShape("salvor_purge") != nil else { return }
    let book = try PurgeBook(before)
    let ledger = PurgeLedger(besides: path)
    let known = try book.last().count
    if known > 0, try ledger.read()?.last ?? 0 < known,
      let server = try before.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string.flatMap({
        ServerID($0)
      })
    {
      try book.bring(ledger, server)
    }
  }

  private func freeName() -> String {
    var seconds = time_t(now / 1000)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    var text = [CChar](repeating: 0, count: 32)
    strftime(&text, text.count, "%Y%m%dT%H%M%SZ", &parts)
    let name = file + ".before-restore-" + String(decoding: text.prefix { $0 != 0 }.map(UInt8.init), as: UTF8.self)
    if !Files.exists(name) { return name }
    return (2...).lazy.map { "\(name)-\($0)" }.first { !Files.exists($0) } ?? name
  }

  /// The database with its log moved into it, for this connection alone. Nil: it is too damaged to be opened, and nobody
  /// else has it open.
  private func lockedDatabase() throws -> SQLiteConnection? {
    do {
      let connection = try SQLiteConnection(path, mode: .readWrite, busyTimeoutMilliseconds: 500)
      // A connection that is open in this mode keeps the mode from being left.
      guard try connection.pragma("journal_mode", "DELETE")?.string == "delete" else { throw inUse }
      try connection.execute("BEGIN EXCLUSIVE")
      return connection
    } catch let error as SalvorError where error.code == .storageBusy {
      throw inUse
    } catch let error as SalvorError where error.code == .storageCorrupt {
      if try isLockedByAnother() { throw inUse }
      return nil
    }
  }

  private var inUse: SalvorError {
    SalvorError(
      .storageBusy,
      "\(path) is in use: a server, or another program, has it open. Nothing was changed. Stop it, then restore.",
      context: ["file": path])
  }

  /// Whether another process holds one of SQLite's locks, which are all in these bytes of the file.
  private func isLockedByAnother() throws -> Bool {
    let descriptor = openFile(path)
    guard descriptor >= 0 else { throw Files.failure("cannot be opened", path) }
    defer { close(descriptor) }
    var lock = flock()
    lock.l_type = Int16(F_WRLCK)
    lock.l_whence = Int16(SEEK_SET)
    lock.l_start = 0x4000_0000
    lock.l_len = 512
    guard fcntl(descriptor, F_GETLK, &lock) == 0 else { return false }
    return lock.l_type != Int16(F_UNLCK)
  }

  /// The copy belongs to whom the database belongs to.
  private func takeOverRights(_ placed: String) throws {
    var database = stat()
    guard stat(path, &database) == 0 else { return }
    _ = chown(placed, database.st_uid, database.st_gid)
    guard chmod(placed, database.st_mode & 0o7777) == 0 else { throw Files.failure("cannot be written", placed) }
  }
}

private func openFile(_ path: String) -> Int32 { open(path, O_RDWR | O_CLOEXEC) }

extension UInt8 {
  fileprivate var isASCIIAlphanumeric: Bool {
    (0x30...0x39).contains(self) || (0x41...0x5A).contains(self) || (0x61...0x7A).contains(self)
  }
}

extension DatabaseCopy {
  func restore(_ restoration: Restoration) throws -> ServerRestoration { try restoration.run() }
}
