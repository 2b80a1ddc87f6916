#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Whether a table's rows and the change log are of the same moment (docs/decisions/0172). A dump of some of the tables that is put
  /// back, or the rows of one moment beside the schema `salvor` of another, leaves a history that looks whole.
  ///
  /// Of the keys that were changed last `salvor_proof` has what their rows were: a digest each, written down while devices come.
  /// A key that the log or the inbox has a newer entry of proves nothing any more.
  struct RowProof {
    let connection: PostgreSQLConnection
    let table: ServerTable

    /// So many keys of each table.
    private static let keys = 100
    /// So far back the log is looked through for them.
    private static let entries: Int64 = 1000

    private var t: Int64 { table.number }
    private var slots: String { (0..<table.keyCount).map { "v\($0)" }.joined(separator: ", ") }

    private func sameKey(_ one: String, _ other: String) -> String {
      "\(one).t = \(t) AND " + (0..<table.keyCount).map { "\(one).v\($0) = \(other).v\($0)" }.joined(separator: " AND ")
    }

    /// What the digests are of: a table that was altered, or comes whole to everybody, proves nothing by those of before.
    private func shape() throws -> Value {
      let version = try connection.integer("SELECT current_setting('server_version_num')::bigint / 10000") ?? 0
      let columns = zip(table.columns.map(\.name), table.types).map { "\($0) \($1)" }
      return .text(Array(digest(Array("\(version) \(table.generation) \(columns)".utf8)).utf8))
    }

    /// Of the row `x`; NULL: it is not there.
    private var rowDigest: String {
      let values = zip(table.columns, table.types).map { column, type in
        let value = "x.\(quoted(column.name))"
        return "coalesce(md5(\(type == "bytea" ? value : "\(value)::text")), '-')"
      }
      return "CASE WHEN \(isThere) THEN md5(\(balanced(values, by: "||"))) END"
    }

    private var isThere: String { "x.\(quoted(table.table.primaryKey[0])) IS NOT NULL" }

    /// Writes down what was changed after the entry `proven`, of the tables of which that is to be done.
    ///
    /// - Returns: the last entry.
    static func note(
      _ connection: PostgreSQLConnection, _ tables: [ServerTable], after proven: Int64,
      of isToBeProven: (ServerTable) throws -> Bool
    ) throws -> Int64 {
      let last = try connection.integer("SELECT max(seq) FROM salvor_change") ?? 0
      guard last > proven else { return proven }
      let first = max(proven, last - entries)
      let changed = Set(
        try connection.rows("SELECT DISTINCT t FROM salvor_change WHERE seq > ?1", .integer(first)).map {
          $0[0].integer
        })
      for table in tables where try changed.contains(table.number) && isToBeProven(table) {
        try RowProof(connection: connection, table: table).note(after: first)
      }
      return last
    }

    /// One statement sees the rows and the log at one moment.
    private func note(after first: Int64) throws {
      try connection.run(
        """
        INSERT INTO salvor_proof (seq, t, shape, digest, \(slots))
          SELECT e.seq, \(t), ?1, \(rowDigest), \((0..<table.keyCount).map { "e.v\($0)" }.joined(separator: ", "))
          FROM (SELECT DISTINCT ON (\(slots)) seq, \(slots) FROM salvor_change
            WHERE seq > ?2 AND t = \(t) AND op > \(LogOperation.touch) ORDER BY \(slots), seq DESC) e
          LEFT JOIN \(table.sql) x ON \(table.keyMatches("x", log: "e"))
        """, try shape(), .integer(first))
      try connection.run(
        """
        DELETE FROM salvor_proof p WHERE p.t = \(t) AND (
          p.seq < (SELECT min(seq) FROM (SELECT seq FROM salvor_proof WHERE t = \(t) ORDER BY seq DESC LIMIT \(Self.keys)) n)
          OR EXISTS (SELECT 1 FROM salvor_proof n WHERE \(sameKey("n", "p")) AND n.seq > p.seq))
        """)
    }

    /// How many of the keys that were changed last have other rows than the log says.
    ///
    /// - Parameter tellsDeletes: a deleted key that is there is one, too. Triggers of each row may tell a key's delete after its
    ///   insert, where a statement gave the key to another row.
    func disagreeing(tellsDeletes: Bool) throws -> Int64 {
      let proven = try connection.integer(
        """
        SELECT count(*) FROM salvor_proof p LEFT JOIN \(table.sql) x ON \(table.keyMatches("x", log: "p"))
        WHERE p.t = \(t) AND p.shape = ?1 AND p.digest IS DISTINCT FROM \(rowDigest)
          AND p.seq >= (SELECT min(seq) FROM salvor_change) - 1
          AND NOT EXISTS (SELECT 1 FROM salvor_change n WHERE \(sameKey("n", "p")) AND n.seq > p.seq)
          AND NOT EXISTS (SELECT 1 FROM salvor_inbox n WHERE \(sameKey("n", "p")))
        """, try shape())
      // What has no number yet says at least whether its row is there.
      let isDeleted = "e.op = \(LogOperation.delete)"
      let differs = tellsDeletes ? "(\(isDeleted)) = (\(isThere))" : "NOT (\(isDeleted)) AND NOT (\(isThere))"
      let unnumbered = try connection.integer(
        """
        SELECT count(*) FROM (SELECT DISTINCT ON (\(slots)) op, \(slots)
          FROM (SELECT id, op, \(slots) FROM salvor_inbox WHERE t = \(t) ORDER BY id DESC LIMIT \(Self.keys)) i
          ORDER BY \(slots), id DESC) e
        LEFT JOIN \(table.sql) x ON \(table.keyMatches("x", log: "e")) WHERE \(differs)
        """)
      return (proven ?? 0) + (unnumbered ?? 0)
    }
  }
#endif
