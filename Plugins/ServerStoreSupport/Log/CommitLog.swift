import SalvorModel
import SalvorStorage

/// Numbers what the change log holds: the entries after the newest commit's last one become the next commit, whoever
/// wrote them. All of it runs inside the caller's immediate transaction, so numbers are given in one serial place.
package final class CommitLog {
  package let connection: any StoreConnection
  package let catalog: Catalog
  /// Of the commits that are made from here on.
  package private(set) var incarnation: IncarnationID
  private let random: any RandomSource
  private let clock: any Clock
  private let expansion: ScopeExpansion
  /// What the store has to do before entries are numbered.
  private let prepare: () throws -> Void

  package struct State {
    package var head: Commit
    /// The last entry that has a number.
    var headSequence: Int64
    /// The last entry.
    package var lastSequence: Int64
    /// Others have committed what is no entry yet.
    var hasUnnumbered = false
    package var isSealed: Bool { headSequence >= lastSequence && !hasUnnumbered }
  }

  package init(
    _ connection: any StoreConnection, catalog: Catalog, incarnation: IncarnationID, random: any RandomSource,
    clock: any Clock, prepare: @escaping () throws -> Void = {}
  ) {
    self.prepare = prepare
    self.connection = connection
    self.catalog = catalog
    self.incarnation = incarnation
    self.random = random
    self.clock = clock
    expansion = ScopeExpansion(connection, catalog)
  }

  package static func state(_ connection: any StoreConnection) throws -> State { try state(connection) { _ in } }

  /// By one statement, with what else it is to say of the same moment: `columns` come first, of one row at most, which `join` adds.
  static func state(
    _ connection: any StoreConnection, with columns: [String] = [], join: String = "", _ values: [Value] = [],
    _ read: (any StoreStatement) -> Void
  ) throws -> State {
    try connection.numberWritten()
    let first = columns.count
    // Who has begun to number meanwhile is done soon.
    for _ in 0..<100 {
      var state: State?
      var isThere = false
      try connection.query(
        """
        SELECT \(columns.map { $0 + ", " }.joined())c.number, c.id, c.last_seq, (SELECT max(seq) FROM salvor_change)\(
          connection.unnumberedColumns)
        FROM (SELECT number, id, last_seq FROM salvor_commit ORDER BY number DESC LIMIT 1) c \(join)
        """, values
      ) { row in
        guard let id = CommitID(row.string(first + 1)) else { return false }
        isThere = true
        guard let hasUnnumbered = try connection.hasUnnumbered(row, from: first + 4) else { return false }
        let last = row.int64(first + 2)
        state = State(
          head: Commit(number: row.int64(first), id: id), headSequence: last,
          lastSequence: row.isNull(first + 3) ? last : row.int64(first + 3), hasUnnumbered: hasUnnumbered)
        read(row)
        return false
      }
      if let state { return state }
      guard isThere else {
        throw SalvorError(.storageCorrupt, "salvor_commit holds no commit. Restore the database from a copy.")
      }
    }
    throw SalvorError(.storageBusy, "Others number what was changed without a pause. Try again.")
  }

  /// Numbers what other programs have committed. Call it in an immediate transaction.
  package func sweep() throws -> Commit {
    let before = try Self.state(connection)
    guard !before.isSealed else { return before.head }
    try prepare()
    try expansion.expand(after: before.headSequence, to: Self.state(connection).lastSequence)
    return try seal(remote: nil) ?? before.head
  }

  /// Makes the entries without a number the next commit. Nil: there are none.
  func seal(remote: RemoteID?) throws -> Commit? {
    let state = try Self.state(connection)
    guard !state.isSealed else { return nil }
    try joinPresentIncarnation()
    let commit = Commit(number: state.head.number + 1, id: CommitID(from: random))
    try connection.run(
      "INSERT INTO salvor_commit (number, id, incarnation, remote, last_seq, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
      .integer(commit.number), .text(commit.id.text), .text(incarnation.text),
      remote.map { .text($0.text) } ?? .null, .integer(state.lastSequence), .integer(clock.now()))
    try connection.run(
      "INSERT INTO salvor_incarnation (id, first_commit) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
      .text(incarnation.text), .integer(commit.number))
    return commit
  }

  /// The commits of an incarnation follow one another (semantics 6): where another process that has the database open has made one since this one's last, a
  /// command of the operator's say, all go on with its incarnation (decision 242).
  private func joinPresentIncarnation() throws {
    let newest = try connection.scalar("SELECT incarnation FROM salvor_commit ORDER BY number DESC LIMIT 1")?.string
    guard let newest = newest.flatMap({ IncarnationID($0) }), newest != incarnation,
      try connection.scalar("SELECT 1 FROM salvor_incarnation WHERE id = ?1", .text(incarnation.text)) != nil
    else { return }
    incarnation = newest
  }

  /// Whether somebody's rows may have left their scope by the entries without a number.
  func mayTakeAway() throws -> Bool {
    let state = try Self.state(connection)
    return try expansion.mayTakeAway(after: state.headSequence, to: state.lastSequence)
  }

  /// Follows the moves between scopes that an upload's own entries made: what moved by them belongs to the next commit.
  func expandOwn(after first: Int64, to last: Int64) throws {
    try expansion.expand(after: first, to: last)
  }

  /// Tells the sender of an upload which of the rows that it wrote it may no longer see.
  func noteHidden(after first: Int64, to last: Int64, from remote: RemoteID, _ principal: Principal) throws {
    for table in catalog.tables {
      guard let filter = ScopeFilter(table, ReadScope(principal), catalog) else { continue }
      var hidden: [Key] = []
      try connection.query(
        """
        SELECT DISTINCT \(table.logKey("e")) FROM salvor_change e
        \(connection.dialect.orderedJoin) \(table.sql) x ON \(table.keyMatches("x", log: "e"))
        WHERE e.seq > ? AND e.seq <= ? AND e.t = \(table.number) AND (\(filter.sql { "x.\(quoted($0))" })) IS NOT TRUE
        """, [.integer(first), .integer(last)] + filter.values
      ) {
        hidden.append($0.values())
        return true
      }
      for key in hidden { try noteDifference(table, key, from: remote) }
    }
  }

  /// Appends an entry that says: the sender of the last upload holds something else than this row. It is told so also
  /// where it may not see the row; to others the row is no newer by it.
  func noteDifference(_ table: ServerTable, _ key: [Value], from remote: RemoteID) throws {
    let entry = try append(LogOperation.differs, table, key)
    let names = key.indices.map { "v\($0)" }.joined(separator: ", ")
    let values = key.indices.map { "?\($0 + 3)" }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO salvor_gone (seq, t, deleted, remote, \(names)) VALUES (?\(key.count + 3), ?1, 1, ?2, \(values))",
      [.integer(table.number), .text(remote.text)] + key + [.integer(entry ?? 0)])
  }

  /// Appends an entry of a row that an upload changed and changed back: none of its columns is another than before.
  func noteChangedBack(_ table: ServerTable, _ key: [Value]) throws {
    try append(LogOperation.update, table, key, changed: 0)
  }

  /// Appends the entry of a delete that found no row: the server had lost it.
  ///
  /// - Parameter isSeen: its sender had seen the row. Else the entry gives the delete a commit, and says nothing of the row to anybody.
  func noteGone(_ table: ServerTable, _ key: [Value], isSeen: Bool) throws {
    if isSeen { try append(LogOperation.delete, table, key) } else { try noteChangedBack(table, key) }
  }

  /// Its number.
  @discardableResult
  private func append(_ operation: Int64, _ table: ServerTable, _ key: [Value], changed: Int64? = nil) throws -> Int64?
  {
    let names = key.indices.map { "v\($0)" }.joined(separator: ", ")
    let values = key.indices.map { "?\($0 + 4)" }.joined(separator: ", ")
    return try connection.integer(
      connection.dialect.insertingNumbered(
        "INSERT INTO salvor_change (t, op, m, \(names)) VALUES (?1, ?2, ?3, \(values))", id: "seq"),
      [.integer(table.number), .integer(operation), changed.map { .integer($0) } ?? .null] + key)
  }
}
