import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Applies a small first download while it arrives (semantics 4: it may go straight into empty tables), in one transaction that
/// is open from the first page to the last, so that no reader sees a part of it.
///
/// Its pages are kept beside, in a private temporary database. Where the transaction cannot go on, it is rolled back and they go
/// the way of all others, as if it had been theirs from the start: when it lasts longer than `lockMilliseconds`, whatever it waits for, when the
/// session ends without the download's end, when anyone else needs the connection, when a page is not for empty tables. They go on as an
/// `Arrival`, or as text in staging. A killed process loses the pages since the first.
final class ApplyAhead {
  let download: String
  private let context: StoreContext
  private let apply: DownloadApply
  private let kept: SQLiteConnection
  private let keep: SQLiteStatement
  private var position = ""
  private var rows: Int64?
  private(set) var pages = 0
  private let began: Int64
  /// A line needs more than writing into tables that were empty.
  private var isRefused = false

  /// An application waits for the write lock no longer than this, as for a turn of an arrival.
  static let lockMilliseconds: Int64 = 15

  /// Begins the transaction. Nil: this download cannot be applied ahead, and no transaction is open.
  static func begin(_ context: StoreContext, download: String) throws -> ApplyAhead? {
    let connection = context.connection
    // Versions of an earlier download would have to be forgotten first.
    guard try connection.state(.arriving) == nil,
      try connection.integer("SELECT 1 FROM salvor_staging LIMIT 1") == nil,
      try connection.integer("SELECT 1 FROM salvor_history LIMIT 1") == nil,
      try connection.groupStates(context.schema.groups).contains(where: { !$0.isSynchronized })
    else { return nil }
    // Without a place for temporary files there is only staging.
    guard let kept = try? SQLiteConnection("", key: connection.key), (try? kept.execute(keptTable)) != nil else {
      return nil
    }
    try connection.execute("BEGIN IMMEDIATE")
    do {
      let apply = try DownloadApply(context, ahead: true)
      if apply.canGoAhead { return try ApplyAhead(context, apply, kept, download) }
    } catch {
      try rollBack(connection)
      throw error
    }
    try rollBack(connection)
    return nil
  }

  private static let keptTable =
    "PRAGMA journal_mode = OFF; PRAGMA cache_size = -1024; CREATE TABLE page (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)"

  private init(_ context: StoreContext, _ apply: DownloadApply, _ kept: SQLiteConnection, _ download: String) throws {
    self.context = context
    self.apply = apply
    self.kept = kept
    self.download = download
    began = context.clock.now()
    keep = try kept.prepare("INSERT INTO page (payload) VALUES (?1)", persistent: true)
    let (clock, began) = (context.clock, began)
    apply.stream.onRow = { if clock.now() - began > Self.lockMilliseconds { throw NotInTime() } }
  }

  /// Keeps a page as it came.
  func keep(_ chunk: StagedChunk) throws {
    try chunk.bytes.withUnsafeBytes { bytes in
      try keep.bindText(1, bytes, copying: false)
      try keep.run()
    }
    position = chunk.position
    rows = chunk.rows
    pages += 1
  }

  /// Applies a page that is kept. False: the transaction cannot go on; then `giveUp`.
  func apply(_ chunk: StagedChunk) -> Bool {
    do {
      try chunk.bytes.withUnsafeBytes { try apply.read($0) }
      return true
    } catch is NotInTime {
      return false
    } catch {
      isRefused = true
      return false
    }
  }

  /// By number.
  var tablesThatComeWhole: Set<Int64> { apply.stream.comingWhole }

  /// After the last page; then commit.
  func finish(_ groups: Set<String>) throws -> ApplyReport {
    try apply.report(context.settle(apply.end(groups)))
  }

  /// Rolls back. What came goes on as an arrival, or else is staged.
  func giveUp() throws -> Arrival? {
    let connection = context.connection
    try Self.rollBack(connection)
    guard pages > 0 else { return nil }
    if !isRefused, let arrival = try arrive() { return arrival }
    try connection.transaction {
      let stage = try connection.prepare("INSERT INTO salvor_staging (payload) VALUES (?1)")
      try kept.query("SELECT payload FROM page ORDER BY id") { page in
        try page.withText(0) { try stage.bindText(1, $0, copying: false) }
        try stage.run()
        return true
      }
      try connection.setState(.stagedDownload, download)
      try connection.setState(.stagedPosition, position)
      try connection.setState(.stagedRows, rows.map { .integer($0) })
    }
    return nil
  }

  /// Until the last page is in, nothing says where the download goes on: who is killed before begins anew.
  private func arrive() throws -> Arrival? {
    guard let arrival = try Arrival.begin(context, download) else { return nil }
    do {
      var place = 0
      try kept.query("SELECT payload FROM page ORDER BY id") { page in
        place += 1
        let isLast = place == pages
        let bytes = page.withText(0) { Array($0) }
        try arrival.take(
          StagedChunk(download: download, bytes: bytes, position: isLast ? position : "", rows: isLast ? rows : nil))
        return true
      }
      return arrival
    } catch {
      try context.connection.transaction { try context.connection.clearStaged() }
      return nil
    }
  }

  private static func rollBack(_ connection: SQLiteConnection) throws {
    if connection.isInTransaction { try connection.execute("ROLLBACK") }
  }
}
