import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Copies and before-images (semantics 9, *Backup before anything is touched*).
extension SQLiteClientStore {
  var backupFolder: BackupFolder { BackupFolder(database: path, key: context?.connection.key) }

  /// Errors: `usage` for a database in memory.
  public func makeCopy(id: String, reason: String) throws -> Backup {
    guard isFile else { throw SalvorError(.usage, "A database in memory has no copies. Give it a file.") }
    return try backupFolder.copy(path, id: id, reason: reason, time: clock.now())
  }

  /// Newest first, without before-images of recoveries that this database has not been through. Empty for a database in
  /// memory.
  public func backups() throws -> [Backup] {
    guard isFile else { return [] }
    return try backupFolder.all().reversed().filter { try isOfThis($0) }.map(\.backup)
  }

  /// Before-images of a recovery that this database has not been through put nothing back.
  private func isOfThis(_ description: BackupFolder.Description) throws -> Bool {
    guard description.backup.content == .beforeImages, let connection = context?.connection else { return true }
    return try connection.integer(
      "SELECT 1 FROM salvor_recovery WHERE id = ?1", .text(description.backup.id)) != nil
  }

  /// False where no backup has this ID.
  public func deleteBackup(_ id: String) throws -> Bool {
    guard isFile, try backupFolder.find(id) != nil else { return false }
    try backupFolder.remove(id)
    return true
  }

  /// Before-images hold lines of Salvor's own tables, too, so that a row which the server has erased for good cannot be taken out of one.
  func forgetImages(_ context: StoreContext) throws {
    guard try context.connection.state(.imagesDue) != nil else { return }
    if isFile {
      for found in try backupFolder.all() where found.backup.content == .beforeImages {
        try backupFolder.remove(found.backup.id)
      }
    }
    try context.connection.transaction { try context.connection.setState(.imagesDue, Value?.none) }
  }

  /// A copy takes the place of the whole content, which is copied first; before-images undo their recovery and those that came after it,
  /// and what was changed since is in the archive. Nil: nothing had to be copied.
  /// A database that is damaged, so that it cannot be opened or copied, is set aside under `copyID`, and the copy takes its place.
  /// Errors: `not-found` where no backup has this ID, `storage-corrupt` where the copy is damaged; `usage` where a later recovery has no
  /// before-images, or where before-images were to be put into a damaged database.
  public func restoreBackup(_ id: String, copyID: String) throws -> Backup? {
    guard isFile, let description = try backupFolder.find(id), try isOfThis(description) else {
      _ = try opened()
      throw SalvorError(.notFound, "There is no backup with this ID. List the backups.")
    }
    if context == nil, try isDamaged() { return try restoreOverDamaged(description.backup, copyID) }
    let context = try opened()
    uploadPlan = nil
    quiet = nil
    switch description.backup.content {
    case .copy:
      do { return try restoreCopy(description.backup, copyID) } catch let error as SalvorError
        where error.code == .storageCorrupt && error.context["file"] != description.backup.path
      {
        return try restoreOverDamaged(description.backup, copyID)
      }
    case .beforeImages:
      try restoreImages(id, context)
      return nil
    }
  }

  /// Nobody can open the file as a database.
  private func isDamaged() throws -> Bool {
    do {
      let connection = try connect()
      defer { connection.close() }
      return try connection.scalar("PRAGMA quick_check(1)")?.string != "ok"
    } catch let error as SalvorError where error.code == .storageCorrupt { return true }
  }

  /// No connection can write into a damaged file: it is renamed, and whoever has it open has to open the new one.
  private func restoreOverDamaged(_ backup: Backup, _ asideID: String) throws -> Backup {
    guard backup.content == .copy else {
      throw SalvorError(
        .usage,
        "The database is damaged, and before-images need it as it was. Restore a backup whose content is a copy, or make a new database: salvor recover --strategy recreate.",
        context: ["file": path])
    }
    let placed = path + ".salvor-restoring"
    defer { for suffix in ["", "-journal", "-wal", "-shm"] { _ = FileSystem.remove(placed + suffix) } }
    let folder = BackupFolder(database: path, key: try makeKey.map { try SQLiteKey($0()) })
    try folder.place(backup, at: placed)
    let before = try setAsideNow(id: asideID, reason: "damaged, before backups restore \(backup.id)")
    try DurableFile.move(placed, to: path, "backup")
    if let setup = try? openedSetup() { _ = try open(setup) }
    return before
  }

  /// The copy's pages are written into the file as one transaction: other connections see it, or nothing yet. Nothing is written
  /// between the copy of what was there and that transaction.
  private func restoreCopy(_ backup: Backup, _ copyID: String) throws -> Backup {
    let setup = try openedSetup()
    let connection = try opened().connection
    connection.clearStatementCache()
    let copy = try SQLiteConnection(backup.path, mode: .readOnly, key: connection.key)
    defer { copy.close() }
    guard try copy.scalar("PRAGMA quick_check(1)")?.string == "ok" else {
      throw SalvorError(
        .storageCorrupt, "The backup is a damaged file that was set aside: it cannot be put back. Take another one.",
        context: ["file": backup.path])
    }
    var before: Backup?
    try copy.backup(
      into: connection,
      whenLocked: { before = try makeCopy(id: copyID, reason: "before backups restore \(backup.id)") })
    try reopen(setup, connection)
    try connection.transaction { try opened().noteLogChange() }
    guard let before else {
      throw SalvorError(.failed, "No copy was made of the database before \(backup.id) was put back.")
    }
    return before
  }

  /// A recovery is undone with those that came after it.
  private func restoreImages(_ id: String, _ context: StoreContext) throws {
    let connection = context.connection
    let number = try connection.integer("SELECT number FROM salvor_recovery WHERE id = ?1", .text(id)) ?? 0
    let later = try connection.rows(
      "SELECT id FROM salvor_recovery WHERE number >= ?1 ORDER BY number DESC", .integer(number)
    ).compactMap { $0[0].string }
    let known = try backupFolder.all()
    let descriptions = try later.map { recovery in
      guard
        let found = known.first(where: { $0.backup.id == recovery && $0.backup.content == .beforeImages })
      else {
        throw SalvorError(
          .usage,
          "The recovery \(recovery) came after \(id) and cannot be undone: its before-images are not there. Restore a copy."
        )
      }
      return found
    }
    let images = BeforeImages(context: context, folder: backupFolder, database: path)
    try connection.transaction { try images.putBack(descriptions) }
    for description in descriptions { try backupFolder.remove(description.backup.id) }
  }
}
