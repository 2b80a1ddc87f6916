import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension SQLiteClientStore: MigratingClientStore {
  // MARK: Migrations of the application's own

  /// Returns when the pause began, in milliseconds since 1970; a second call returns the time of the first. Errors:
  /// `session-in-use` while a session is under way, in any process.
  public func pauseCapture() throws -> Int64 {
    let context = try openedEvenPaused()
    if let since = try context.connection.pausedSince() { return since }
    return try alone {
      let time = clock.now()
      try context.connection.transaction {
        // What was written without triggers before the pause is not the migration's.
        try straighten(context)
        try CapturePause(context: context).begin(at: time)
      }
      try settleSchema(context)
      return time
    }
  }

  /// Errors: `usage` where capture is not paused, `session-in-use` while a session is under way, in any process.
  public func resumeCapture() throws -> CaptureResumption {
    let context = try openedEvenPaused()
    let connection = context.connection
    guard try connection.pausedSince() != nil else {
      throw SalvorError(.usage, "Capture is not paused.")
    }
    return try alone {
      let opening = Opening(connection: connection, random: random, clock: clock)
      let (resumed, resumption) = try connection.transaction { try opening.resume(context) }
      self.context = resumed
      try settleSchema(resumed)
      return resumption
    }
  }

  /// With no session under way, in any process. What is committed outlives a power cut: an application goes on from it.
  func alone<Result>(_ body: () throws -> Result) throws -> Result {
    guard lock?.isTaken != true else {
      throw SalvorError(
        .sessionInUse, "This database is being synchronized: wait for it and try again.", retryAfterMilliseconds: 1000)
    }
    try lock?.take()
    defer { lock?.release() }
    try context?.connection.pragma("synchronous", "FULL")
    defer { _ = try? context?.connection.pragma("synchronous", "NORMAL") }
    return try body()
  }

  private func settleSchema(_ context: StoreContext) throws {
    uploadPlan = nil
    quiet = nil
    checkedSchema = try context.connection.schemaVersion()
  }

  // MARK: Detaching

  /// What `detach` would discard and remove. Changes nothing.
  public func planDetachment() throws -> DetachmentPlan {
    let status = try status()
    let connection = try opened().connection
    var plan = DetachmentPlan(
      queued: status.queued, inError: status.inError, displaced: status.displaced, kept: status.kept,
      objects: try connection.integer("SELECT count(*) FROM sqlite_schema WHERE \(Self.isOurs)") ?? 0,
      files: filesBeside.filter { access($0, F_OK) == 0 },
      backups: isFile ? Int64(try backupFolder.all().count) : 0)
    plan.aside = try connection.integer("SELECT count(*) FROM salvor_aside") ?? 0
    return plan
  }

  /// Removes Salvor's objects and the files beside the database, and closes the store. Rows and backups stay. Errors:
  /// `usage` where `discarding` is false and the server does not have every request, or client-only rows are kept aside,
  /// `session-in-use` while a session is under way.
  public func detach(discarding: Bool) throws -> DetachmentPlan {
    let plan = try planDetachment()
    guard discarding || plan.unsynced > 0 || plan.aside == 0 else {
      throw SalvorError(
        .usage,
        "\(plan.aside) rows of client-only tables are kept aside, since the rows that they reference are gone: they would be lost. Read them in salvor_aside, or discard them.",
        context: ["aside": "\(plan.aside)"])
    }
    guard discarding || plan.unsynced == 0 else {
      throw SalvorError(
        .usage,
        "The server does not have \(plan.unsynced) requests of this database: \(plan.queued) wait, \(plan.inError) are in error, \(plan.displaced) displaced, \(plan.kept) kept. Sync, settle the archive, or discard them.",
        context: ["unsynced": "\(plan.unsynced)"])
    }
    let connection = try opened().connection
    try alone {
      connection.clearStatementCache()
      // Before: nobody is to find a database without it that was detached. It is void until then.
      if isFile { try DetachmentMark(database: path).write() }
      try connection.transaction(.exclusive) {
        for kind in ["view", "trigger", "index", "table"] {
          for row in try connection.rows(
            "SELECT name FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL AND \(Self.isOurs)", .text(kind))
          {
            if let name = row[0].string {
              try connection.execute("DROP \(kind.uppercased()) IF EXISTS \(quoted(name))")
            }
          }
        }
      }
    }
    close()
    for path in filesBeside { _ = FileSystem.remove(path) }
    return plan
  }

  private static let isOurs = "name LIKE 'salvor\\_%' ESCAPE '\\'"

  private var filesBeside: [String] {
    isFile ? [IdentityFile.path(of: path), SessionLock.path(of: path), journalPath] : []
  }
}
