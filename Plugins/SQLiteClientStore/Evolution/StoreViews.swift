import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The views that people read with any SQLite library (docs/reference/remote-database.md).
enum StoreViews {
  /// Made anew at each opening, since they follow the captured tables.
  static func make(_ catalog: CaptureCatalog, on connection: SQLiteConnection) throws {
    let views = [
      ("salvor_status", status), ("salvor_queue", queue(catalog)), ("salvor_error_archive", archive(catalog)),
      ("salvor_row_state", rowState(catalog)),
    ]
    for (name, select) in views {
      let sql = "CREATE VIEW \(name) AS \(select)"
      let found = try connection.scalar("SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?1", .text(name))
      if found?.string == sql { continue }
      let other = try connection.scalar(
        "SELECT type FROM sqlite_schema WHERE type <> 'view' AND name = ?1 COLLATE NOCASE", .text(name))
      if let type = other?.string {
        throw SalvorError(
          .schemaRefused,
          "The database has a \(type) of the application's that is named \(name), and Salvor shows its own state under that name. Rename it: names that begin with salvor_ are Salvor's."
        )
      }
      try connection.execute("DROP VIEW IF EXISTS \(name); \(sql)")
    }
  }

  private static let status = """
    SELECT (SELECT value FROM salvor_state WHERE name = 'remote') AS remote_id,
      (SELECT value FROM salvor_state WHERE name = 'principal') AS principal,
      (SELECT value FROM salvor_state WHERE name = 'schemaVersion') AS schema_version,
      (SELECT value FROM salvor_state WHERE name = 'previous') AS previous,
      (SELECT value FROM salvor_state WHERE name = 'current') AS current,
      (SELECT count(*) FROM salvor_log WHERE op IN \(StoreContext.changeOperations))
        - (SELECT count(*) FROM salvor_outstanding s JOIN salvor_log g ON g.seq BETWEEN s.first AND s.last
            WHERE s.\(OutstandingTable.inError) AND g.op IN \(StoreContext.changeOperations)) AS queued_changes,
      (SELECT count(*) FROM salvor_outstanding WHERE \(OutstandingTable.inError)) AS in_error,
      (SELECT count(*) FROM salvor_outstanding WHERE state = 'displaced') AS displaced,
      (SELECT count(*) FROM salvor_outstanding WHERE state = 'kept') AS kept,
      (SELECT value FROM salvor_state WHERE name = 'uploadSince') AS upload_since,
      (SELECT value FROM salvor_state WHERE name = 'uploadFailures') AS upload_failures,
      (SELECT value FROM salvor_state WHERE name = 'uploadError') AS upload_error,
      (SELECT value FROM salvor_state WHERE name = 'pausedSince') AS capture_paused_since,
      (SELECT group_concat(text, char(10)) FROM (SELECT text FROM salvor_note ORDER BY id)) AS notes
    """

  private static let stamp =
    "coalesce((SELECT stamp FROM salvor_outstanding p WHERE p.first = l.first), (SELECT stamp FROM salvor_stamp WHERE first_seq <= l.first ORDER BY first_seq DESC LIMIT 1)) || '-' || l.first"

  /// Each change of the log with its request's first counter and state.
  private static func changes(_ catalog: CaptureCatalog) -> String {
    """
    SELECT g.seq, g.t, \(operation) AS operation, \(key(catalog, "g")) AS key, coalesce(\(sorted), g.seq) AS first
    FROM salvor_log g WHERE g.op IN \(StoreContext.changeOperations)
    """
  }

  /// The same, with groups that closed since Salvor looked at the file: what stands between their markers. `opened` is the marker's
  /// counter. The windows go over what is not sorted yet alone (`RequestSorting`).
  private static func changesWithNewGroups(_ catalog: CaptureCatalog) -> String {
    let (open, close) = (LogOperation.open.rawValue, LogOperation.close.rawValue)
    let columns = (["seq", "t", "op"] + (0..<max(1, catalog.tables.map(\.keyCount).max() ?? 1)).map { "v\($0)" })
      .joined(separator: ", ")
    let done = "coalesce((SELECT value FROM salvor_state WHERE name = 'rangesUpTo'), 0)"
    return """
      SELECT g.seq, g.t, \(operation) AS operation, \(key(catalog, "g")) AS key, g.opened,
        coalesce(\(sorted), (SELECT min(c.seq) FROM salvor_log c WHERE c.seq > g.opened AND c.op IN \(StoreContext.changeOperations)), g.seq) AS first
      FROM (
        SELECT \(columns), NULL AS opened FROM salvor_log WHERE seq <= \(done)
        UNION ALL
        SELECT \(columns), CASE WHEN marker < (SELECT max(seq) FROM salvor_log WHERE seq > \(done) AND op = \(close))
            AND (SELECT m.op FROM salvor_log m WHERE m.seq = n.marker) = \(open) THEN marker END AS opened
        FROM (SELECT \(columns), max(CASE WHEN op IN (\(open), \(close)) THEN seq END) OVER (ORDER BY seq) AS marker FROM salvor_log WHERE seq > \(done)) n
      ) g WHERE g.op IN \(StoreContext.changeOperations)
      """
  }

  /// The first counter of the request of several changes that a change is in.
  private static let sorted =
    "(SELECT r.first FROM salvor_outstanding r WHERE r.first = (SELECT max(first) FROM salvor_outstanding WHERE first <= g.seq) AND r.last >= g.seq)"

  private static let operation =
    "CASE WHEN g.op = 1 THEN 'insert' WHEN g.op IN (2, 11) THEN 'update' ELSE 'delete' END"

  /// A key of one column as it is; of several, their values as SQL literals.
  private static func key(_ catalog: CaptureCatalog, _ alias: String) -> String {
    let composite = catalog.tables.filter { $0.keyCount > 1 }
    if composite.isEmpty { return "\(alias).v0" }
    let cases = composite.map { table in
      let parts = (0..<table.keyCount).map { "quote(\(alias).v\($0))" }.joined(separator: " || ', ' || ")
      return "WHEN \(table.number) THEN \(parts)"
    }
    return "CASE \(alias).t \(cases.joined(separator: " ")) ELSE \(alias).v0 END"
  }

  private static func queue(_ catalog: CaptureCatalog) -> String {
    """
    SELECT \(stamp) AS id, (SELECT name FROM salvor_table WHERE id = l.t) AS "table", l.key AS "key", l.operation AS operation,
      coalesce((SELECT state FROM salvor_outstanding s WHERE s.first = l.first),
        CASE WHEN l.seq <= (SELECT value FROM salvor_state WHERE name = 'uploadLast')
            AND NOT EXISTS (SELECT 1 FROM salvor_outstanding e WHERE e.first = l.first AND e.apart = 1)
          THEN (SELECT value FROM salvor_state WHERE name = 'uploadState') ELSE 'queued' END) AS state,
      coalesce((SELECT tag FROM salvor_outstanding r WHERE r.first = l.first), (SELECT v0 FROM salvor_log m WHERE m.seq = l.opened)) AS tag,
      l.seq AS counter,
      \(noted)
    FROM (\(changesWithNewGroups(catalog))) l ORDER BY l.seq
    """
  }

  /// When the request was made, and how often it was refused.
  private static let noted = """
    coalesce((SELECT since FROM salvor_outstanding n WHERE n.first = l.first),
        (SELECT at FROM salvor_met WHERE first_seq <= l.first ORDER BY first_seq DESC LIMIT 1)) AS since,
      coalesce((SELECT attempts FROM salvor_outstanding n WHERE n.first = l.first), 0) AS attempts
    """

  private static func archive(_ catalog: CaptureCatalog) -> String {
    """
    SELECT \(stamp) AS id, (SELECT name FROM salvor_table WHERE id = l.t) AS "table", l.key AS "key", l.operation AS operation,
      s.state, s.reason, s.status, s.message, s.blocked_by, s.at, \(perTable(catalog, "l.t", before)) AS "before",
      (SELECT v.after FROM salvor_error_value v WHERE v.seq = l.seq) AS "after", l.seq AS counter, s.tag,
      \(noted)
    FROM (\(changes(catalog))) l JOIN salvor_outstanding s ON s.first = l.first AND s.\(OutstandingTable.inError) JOIN salvor_log g ON g.seq = l.seq
    UNION ALL
    SELECT \(stamp), coalesce((SELECT name FROM salvor_table WHERE id = l.t), (SELECT name FROM salvor_retired_table WHERE id = l.t)),
      coalesce(l.shown_key, CASE json_array_length(l.key) WHEN 1 THEN json_extract(l.key, '$[0]') ELSE (SELECT group_concat(quote(value), ', ') FROM json_each(l.key)) END),
      l.op, s.state, s.reason, s.status, s.message, s.blocked_by, s.at, \(archived("before")), \(archived("after")), l.seq, s.tag,
      \(noted)
    FROM salvor_archive l JOIN salvor_outstanding s ON s.first = l.first
    """
  }

  // MARK: Values, as `name = literal, …`

  /// - Parameter number: the expression that names the table.
  private static func perTable(
    _ catalog: CaptureCatalog, _ number: String, _ text: (CapturedTable) -> String
  ) -> String {
    if catalog.tables.isEmpty { return "NULL" }
    return "CASE \(number) " + catalog.tables.map { "WHEN \($0.number) THEN \(text($0))" }.joined(separator: " ")
      + " END"
  }

  /// What a change of the log, alias `g`, replaced.
  private static func before(_ table: CapturedTable) -> String {
    "CASE WHEN g.op IN (2, 11) OR (g.op <> 1 AND g.m0 IS NOT 1) THEN \(list(table) { "quote(g.v\($0))" }) END"
  }

  /// The columns that a change of the log is about.
  private static func list(_ table: CapturedTable, _ value: (Int) -> String) -> String {
    let terms = table.columns.indices.map { slot in
      "CASE WHEN g.op NOT IN (2, 11) OR \(isMasked("g", slot)) THEN \(literal(.text(", \(table.columns[slot].name) = "))) || \(value(slot)) ELSE '' END"
    }
    return "substr(\(CapturedTable.balanced(terms, "||")), 3)"
  }

  private static func isMasked(_ alias: String, _ slot: Int) -> String {
    "(\(alias).m\(slot / LogMask.bitsPerColumn) >> \(slot % LogMask.bitsPerColumn)) & 1"
  }

  /// The same of an entry that is not in the log: its values are a JSON array, those of its slots.
  private static func archived(_ column: String) -> String {
    """
    coalesce(l.shown_\(column), (SELECT group_concat(text, ', ') FROM (SELECT c.name || ' = ' || quote(j.value) AS text FROM json_each(l."\(column)") j
      JOIN json_each('[' || l.slots || ']') p ON p.key = j.key JOIN salvor_column c ON c.t = l.t AND c.slot = p.value ORDER BY j.key)))
    """
  }

  private static func rowState(_ catalog: CaptureCatalog) -> String {
    """
    SELECT (SELECT name FROM salvor_table WHERE id = l.t) AS "table", l.key AS "key", max(l.dirty) AS dirty,
      CASE WHEN max(l.seq) IS NULL THEN 0 ELSE max(CASE WHEN l.operation = 'delete' THEN l.seq END) IS max(l.seq) END AS deleted,
      max(l.error) AS in_error, max(l.version) AS version
    FROM (
      SELECT c.t, c.key, 1 AS dirty, c.seq, c.operation, EXISTS (SELECT 1 FROM salvor_outstanding s WHERE s.first = c.first AND s.\(OutstandingTable.inError)) AS error, NULL AS version
      FROM (\(changes(catalog))) c
      UNION ALL
      SELECT h.t, \(key(catalog, "h")), 0, NULL, NULL, 0, h.version FROM salvor_history h
    ) l GROUP BY l.t, l.key
    """
  }
}
