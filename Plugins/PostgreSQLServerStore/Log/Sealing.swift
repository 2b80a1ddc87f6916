#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Gives the entries of the inbox their numbers in one serial place (docs/decisions/0106). Whoever asks seals; no process is the
  /// leader.
  ///
  /// Sequences and transaction IDs say nothing about the order in which transactions become visible. So the head is locked first,
  /// and the transaction's one snapshot is taken after it (`begin`). Then one statement takes what is in the inbox and visible,
  /// gives it dense numbers in the order of the inbox, and stores the snapshot. A transaction is in the inbox whole or not at all.
  /// What an earlier sealing could not see is found by its snapshot: the transactions that were running then, and those that
  /// began later. What Salvor writes itself, while it holds the head, has its number at once, and never is in the inbox. `CommitLog` makes
  /// commits of what has numbers.
  struct Sealing {
    let connection: PostgreSQLConnection

    /// Begins a transaction that holds the head, and sees one snapshot of what is committed until then. LOCK TABLE takes none
    /// (PostgreSQL's manual says so of it), so nothing is committed between the lock and the snapshot that was numbered by others.
    func begin() throws -> String {
      """
      BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = \(connection.settings.headTimeout);
      LOCK TABLE \(head) IN EXCLUSIVE MODE; SET LOCAL lock_timeout = \(min(connection.settings.lockTimeout, connection.settings.heldLockTimeout));
      SET LOCAL salvor.numbers = 'on'; SET CONSTRAINTS ALL IMMEDIATE
      """
    }

    /// In a trigger's function, which runs with the rights of its owner: the transaction is one of `begin`. Whoever is not the owner may say
    /// so, too, and is not believed.
    static let numbersItself =
      "pg_catalog.current_setting('salvor.numbers', true) = 'on' AND session_user = current_user"

    /// Whether the triggers' functions believe this connection.
    func ownsTriggers() throws -> Bool {
      try connection.integer(
        """
        SELECT NOT EXISTS (SELECT 1 FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
          WHERE p.pronamespace = to_regnamespace(?1) AND starts_with(p.proname::text, 'salvor_') AND r.rolname <> session_user)
        """, .text(Array(quoted(connection.settings.schema).utf8))) == 1
    }

    /// What the transaction writes from here on is another program's.
    func leaveToOthers() throws {
      try connection.execute("SET LOCAL salvor.numbers = 'off'")
      connection.numbered = nil
    }

    private var head: String { "\(quoted(connection.settings.schema)).salvor_head" }

    /// Whether something is committed that has no number. Costs a look at the inbox's index.
    func isNeeded() throws -> Bool {
      try isNeeded(connection.scalar("SELECT sealed::text FROM salvor_head")?.string)
    }

    private func isNeeded(_ sealed: String?) throws -> Bool {
      try connection.once("SELECT 1 FROM salvor_inbox WHERE \(Self.isNew(sealed)) LIMIT 1").first != nil
    }

    /// Numbers what others have committed. In a transaction of `begin`, before it writes.
    ///
    /// - Parameter isFirst: after each connect: transaction IDs mean nothing after a logical restore, so the inbox is taken whole.
    /// - Returns: how many entries got their numbers, and the last one that had one before.
    @discardableResult
    func numberOthers(isFirst: Bool) throws -> (count: Int64, before: Int64) {
      let head = try connection.rows("SELECT sealed::text, (SELECT max(seq) FROM salvor_change) FROM salvor_head").first
      let (sealed, before) = (head?[0].string, head?[1].integer ?? 0)
      guard try isFirst || sealed == nil || isNeeded(sealed) else { return (0, before) }
      // The snapshot stands in the text: as parameters its transactions keep the planner from the index.
      let taken = try connection.once(
        """
        WITH \(try numbering(isFirst ? "TRUE" : Self.isNew(sealed)))
        UPDATE salvor_head SET sealed = pg_current_snapshot() FROM counted RETURNING n
        """)
      guard let count = taken.first?[0].flatMap({ Int64($0) }) else {
        throw SalvorError(.storageCorrupt, "salvor_head holds no row. Restore the database from a copy.")
      }
      return (count, before)
    }

    /// Numbers what this transaction has written since it was last asked, and that has none: where another role owns the triggers'
    /// functions than the one that writes.
    func numberOwn() throws {
      let last = connection.numbered ?? 0
      let found = try connection.integer(
        "WITH \(try numbering("xid = pg_current_xact_id() AND id > ?1")) SELECT last FROM counted", .integer(last))
      if let found { connection.numbered = max(last, found) }
    }

    /// Listeners of every process look once this transaction has committed (`CommitNotices`), where it has numbered anything.
    func tell(since before: Int64) throws {
      _ = try connection.rows(
        "SELECT pg_notify(?1, ?2)::text WHERE (SELECT max(seq) FROM salvor_change) > ?3", .text(CommitNotices.channel),
        .text(connection.settings.schema), .integer(before))
    }

    private func numbering(_ condition: String) throws -> String {
      """
      taken AS (DELETE FROM salvor_inbox WHERE \(condition) RETURNING *),
        numbered AS (INSERT INTO salvor_change (seq, t, op, m, h\(try values()))
          SELECT coalesce((SELECT max(seq) FROM salvor_change), 0) + row_number() OVER (ORDER BY id), t, op, m, h\(try values())
          FROM taken RETURNING 1),
        counted AS (SELECT (SELECT count(*) FROM numbered) AS n, (SELECT max(id) FROM taken) AS last)
      """
    }

    private func values() throws -> String {
      (0..<connection.logWidth).map { ", v\($0)" }.joined()
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
