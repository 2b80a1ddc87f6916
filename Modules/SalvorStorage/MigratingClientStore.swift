import SalvorModel

/// A device's database that the application migrates by itself, or takes for its own again (semantics 3). A store without
/// this synchronizes all the same.
public protocol MigratingClientStore: ClientStore {
  /// Takes Salvor's triggers away, and keeps aside what the synchronized tables hold: from here to `resumeCapture` the
  /// application may do with its tables what it likes. Everything but `status` and `close` throws `capture-paused`
  /// meanwhile. Costs a copy of the synchronized tables. Paused already: only says since when.
  ///
  /// - Returns: when the pause began, in milliseconds since 1970.
  func pauseCapture() async throws -> Int64

  /// Brings capture in line with the tables as they are: what they have more and the schema names is taken, a renamed table
  /// or column is followed by its declared rule, and every row that is another than it was is a captured change. One
  /// transaction.
  ///
  /// Throws `schema-refused` with every difference named that the schema does not allow, and `usage` where capture is not
  /// paused; it stays as it was then.
  func resumeCapture() async throws -> CaptureResumption

  /// What `detach` would remove, and what would be lost with it. Writes nothing.
  func planDetachment() async throws -> DetachmentPlan

  /// Leaves plain tables with the rows that they show, and nothing of Salvor's in the file or beside it, but for the backups
  /// that recoveries made. The store is closed then.
  ///
  /// - Parameter discarding: false throws `usage` while there are requests that the server does not have.
  func detach(discarding: Bool) async throws -> DetachmentPlan
}

/// What the application's migration did, as `resumeCapture` found it.
public struct CaptureResumption: Sendable, Hashable {
  /// Rows that became queued inserts.
  public var inserts: Int64 = 0
  /// Rows that became queued updates.
  public var updates: Int64 = 0
  /// Rows that became queued deletes.
  public var deletes: Int64 = 0
  /// Tables and columns that Salvor added since the schema names them, as `table` and `table.column`.
  public var added: [String] = []
  /// The migration changed nothing that is synchronized.
  public init() {}
}

/// What taking Salvor out of a database removes.
public struct DetachmentPlan: Sendable, Hashable {
  /// Requests that wait, or whose outcome is not known. Their changes stay in the tables.
  public var queued: Int64
  /// Requests that were refused or are blocked. Their changes stay in the tables.
  public var inError: Int64
  /// Requests that the tables do not show: their changes are lost.
  public var displaced: Int64
  /// What recoveries kept in the archive, and the tables do not show: it is lost.
  public var kept: Int64
  /// Rows of client-only tables that wait for the row that they reference, out of their tables: they are lost.
  public var aside: Int64 = 0
  /// Salvor's tables, views and triggers.
  public var objects: Int64
  /// The paths of those beside the database: they are removed.
  public var files: [String]
  /// How many backups of recoveries there are: they stay.
  public var backups: Int64

  /// All parts given.
  public init(
    queued: Int64, inError: Int64, displaced: Int64, kept: Int64, objects: Int64, files: [String], backups: Int64
  ) {
    self.queued = queued
    self.inError = inError
    self.displaced = displaced
    self.kept = kept
    self.objects = objects
    self.files = files
    self.backups = backups
  }

  /// Requests that nobody would know of any more.
  public var unsynced: Int64 { queued + inError + displaced + kept }
}
