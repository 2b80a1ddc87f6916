import SalvorModel
import SalvorWire

/// What a device's database does for recovery (semantics 9). A store without it synchronizes; a recovery then ends as
/// `manual`.
public protocol RecoveringClientStore: ClientStore {
  /// Where an application opens it, for hooks and reports; empty where it is not a file.
  nonisolated var location: String { get }

  /// For each group where its fetch starts, from what the server says is shared: the group's cursor, or the shared commit
  /// before it; nil where neither is kept by the server (`trimmed`), the group came whole after the shared commit, or a table has come into it
  /// since (`GroupState.hasMovedTables`).
  func recoveryStarts(shared: Commit?, trimmed: Int64) async throws -> [GroupStart]

  /// The keys of rows whose bases changed after their group's start, without those of groups that have none, after the
  /// place given (0: from the first), at most `limit` of them. Nil: there are none left.
  func changedKeys(after starts: [GroupStart], place: Int64, limit: Int) async throws -> (
    queries: [RowQuery], place: Int64
  )?

  /// The tables of these groups whose bases are compared with the server before their next download: those with
  /// `download: "key-set"`, and unproven ones, which are `isFed`. Without those of groups that were never synchronized:
  /// their rows come whole.
  func tablesToCompare(groups: Set<String>) async throws -> [TableDigest]

  /// Count and digest of the bases of a table.
  func digest(of table: String) async throws -> TableDigest

  /// Compares the bases of one table with the server's ranges that follow the key `after` (nil: the first page). Answers
  /// with the keys and digests of the rows of each range that differs.
  func differences(from page: RangePage, after: Key?, of table: String) async throws -> [RowQuery]

  /// Makes what is staged the bases, and the rest as the order says; one transaction. Staging is empty then, and requests of
  /// an upload under way wait again, with their IDs.
  ///
  /// A row that the server says it does not have (`lost`): with `absence` lost its base is kept as an archive entry
  /// (`kept`, reason `lost-on-server`); where a request changes it or references it, it becomes a request again, made
  /// from the base; a request that only deletes such rows goes to the archive (`kept`, reason `row-gone`), but for an offered delete,
  /// which stays an offer. An unsynced
  /// change of a row that the server deleted goes there, too (`kept`, reason `row-deleted`).
  ///
  /// Throws `mass-deletion`, naming the tables, where more than `removedShareMax` of a table's rows would go.
  func recover(_ order: RecoveryOrder) async throws -> RecoveryReport

  /// Keeps a download payload for the next rehearsal, outside the database: in order.
  func keepForRehearsal(_ payload: [UInt8]) async throws

  /// Payloads that were kept for a rehearsal which did not come.
  func forgetRehearsal() async throws

  /// What `recover` would answer with the payloads staged that were kept for it; nothing is changed, and what is staged
  /// stays. The payloads are forgotten.
  func rehearse(_ order: RecoveryOrder) async throws -> RecoveryReport

  /// What the payloads that were kept for a rehearsal say otherwise than the bases. Lines without a version are the server's
  /// answers to a comparison; rows of which a line has one have changed since, and are left out. The payloads are forgotten.
  ///
  /// - Parameter order: repairs the rows that differ and have no outstanding requests, as `recover` does; nil: nothing is
  ///   changed.
  /// - Throws: `inconsistent-download` where a table comes whole.
  func examine(repairing order: RecoveryOrder?) async throws -> Examination

  /// How many rows of a table outstanding requests change.
  func dirtyRows(of table: String) async throws -> Int64

  /// How many rows only this device has: requests that wait or were refused made them. Writes nothing.
  func rowsMadeHere() async throws -> Int64

  /// Recoveries, newest first.
  func recoveries(limit: Int) async throws -> [RecoveryReport]

  /// The lines of a recovery's report, in order, after the one with this place (0: from the first).
  func recoveryItems(_ id: String, after place: Int64, limit: Int) async throws -> [RecoveryItem]

  /// The journal: a small document beside the database, replaced as a whole and durable when this returns. Works without
  /// `open`.
  func journal() async throws -> [UInt8]?
  /// Replaces the journal; nil removes it. Durable when this returns.
  func setJournal(_ bytes: [UInt8]?) async throws
  /// The journal cannot be read: it is put beside under another name, which this answers with (empty: it is no file), and
  /// there is none then.
  func setJournalAside() async throws -> String

  /// Makes a whole copy that is checked before this returns; the same ID replaces itself.
  func makeCopy(id: String, reason: String) async throws -> Backup
  /// Puts a database that cannot be read any more among the backups, and closes the store: the next `open` makes a new
  /// one. Works without `open`.
  func setAside(id: String, reason: String) async throws -> Backup
  /// Newest first. Works without `open`.
  func backups() async throws -> [Backup]
  /// False: there is none.
  func deleteBackup(_ id: String) async throws -> Bool
  /// Puts the database back to what it was. The next sync finds it rewound and recovers it. The application's connections
  /// live on. Throws `not-found`.
  ///
  /// Nothing that the database holds is lost by it: a whole copy of it is made first under `copyID`, and is the answer. Nil: what
  /// came after the backup is in the archive (before-images). A database that is damaged, and so could not be opened, is set aside
  /// under `copyID`, and a whole copy takes its place.
  func restoreBackup(_ id: String, copyID: String) async throws -> Backup?
}

extension RecoveringClientStore {
  /// For stores whose journal is no file.
  public func setJournalAside() async throws -> String {
    try await setJournal(nil)
    return ""
  }
}
