#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Gives commit numbers in one serial place (docs/decisions/0106). Whoever asks seals; no process is the leader.
  ///
  /// Sequences and transaction IDs say nothing about the order in which transactions become visible. So the head's row is locked
  /// first, and then one statement, hence one snapshot, takes what is in the inbox and visible, gives it dense numbers in the
  /// order of the inbox, and stores the snapshot. A transaction is in the inbox whole or not at all. What an earlier sealing could
  /// not see is found by its snapshot: the transactions that were running then, and those that began later.
  struct Sealing {
    let connection: PostgreSQLConnection
    /// Values of an entry.
    let logWidth: Int

    struct Sealed: Hashable {
      var number: Int64
      var last: Int64
      /// Entries that got their numbers.
      var count: Int64
    }

    /// Which entries a sealing takes.
    enum Part {
      /// All that the transaction sees.
      case all
      /// Those of other transactions.
      case others
      /// Those of the transaction itself: an upload's, after the others.
      case own

      fileprivate var condition: String {
        switch self {
        case .all: "TRUE"
        case .others: "xid <> pg_current_xact_id()"
        case .own: "xid = pg_current_xact_id()"
        }
      }
    }

    /// Whether something is committed that has no number. Costs a look at the inbox's index.
    func isNeeded() throws -> Bool {
      let sealed = try connection.scalar("SELECT sealed::text FROM salvor_head")?.string
      return try connection.isThere("SELECT 1 FROM salvor_inbox WHERE \(Self.isNew(sealed)) LIMIT 1")
    }

    /// In a transaction of its own; or at the end of an upload's, which seals first the others' entries and then its own: the
    /// snapshot of a transaction says of the transaction itself that it has ended.
    ///
    /// - Parameters:
    ///   - remote: whose upload the entries are; nil: none's.
    ///   - isFirst: after each connect: transaction IDs mean nothing after a logical restore, so the inbox is taken whole.
    /// - Returns: what the head is now.
    func seal(
      _ commit: CommitID, _ part: Part = .all, incarnation: IncarnationID?, remote: RemoteID? = nil, now: Int64,
      isFirst: Bool
    ) throws -> Sealed {
      var head: (number: Int64, last: Int64, sealed: String?)?
      try connection.query("SELECT number, last_seq, sealed::text FROM salvor_head FOR UPDATE") { row in
        head = (row.int64(0), row.int64(1), row.optionalString(2))
        return false
      }
      guard let head else {
        throw SalvorError(.storageCorrupt, "salvor_head holds no row. Restore the database from a copy.")
      }
      let values = (0..<logWidth).map { ", v\($0)" }.joined()
      // A transaction's own entries are no question of a snapshot; and one that did not take what others have committed must
      // not be stored.
      let isNew = isFirst || part == .own ? "TRUE" : Self.isNew(head.sealed)
      // The snapshot stands in the text: as parameters its transactions keep the planner from the index.
      let sql = """
        WITH taken AS (DELETE FROM salvor_inbox WHERE \(isNew) AND \(part.condition)
            RETURNING id, t, op, m, h\(values)),
          numbered AS (INSERT INTO salvor_change (seq, t, op, m, h\(values))
            SELECT \(head.last) + row_number() OVER (ORDER BY id), t, op, m, h\(values) FROM taken RETURNING 1),
          counted AS (SELECT count(*) AS n FROM numbered),
          made AS (INSERT INTO salvor_commit (number, id, incarnation, remote, last_seq, time)
            SELECT \(head.number + 1), ?1, ?2, ?3, \(head.last) + n, ?4::bigint FROM counted WHERE n > 0)
        UPDATE salvor_head SET number = number + CASE WHEN n > 0 THEN 1 ELSE 0 END, last_seq = last_seq + n,
          sealed = \(part == .own ? "sealed" : "pg_current_snapshot()") FROM counted RETURNING number, last_seq, n
        """
      let statement = try connection.prepare(sql, persistent: false)
      try statement.bind([
        .text(commit.text), incarnation.map { .text($0.text) } ?? .null, remote.map { .text($0.text) } ?? .null,
        .integer(now),
      ])
      guard try statement.step() else {
        throw SalvorError(.storageCorrupt, "salvor_head holds no row. Restore the database from a copy.")
      }
      return Sealed(number: statement.int64(0), last: statement.int64(1), count: statement.int64(2))
    }

    /// The transactions that the snapshot did not show as ended; nil: all of them.
    static func isNew(_ snapshot: String?) -> String {
      // `xmin:xmax:xip,xip,…`
      guard let parts = snapshot?.split(separator: ":", omittingEmptySubsequences: false), parts.count == 3,
        let next = UInt64(parts[1])
      else { return "TRUE" }
      let running = parts[2].split(separator: ",").compactMap { UInt64($0) }
      let later = "xid >= '\(next)'::xid8"
      return running.isEmpty
        ? later : "(\(later) OR xid = ANY ('{\(running.map { "\($0)" }.joined(separator: ","))}'::xid8[]))"
    }
  }

  extension PostgreSQLConnection {
    func isThere(_ sql: String) throws -> Bool {
      let statement = try prepare(sql, persistent: false)
      return try statement.step()
    }
  }
#endif
