import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Files up to format 2 say in six tables what is known of one request, and with each change of the archive once more. Here it becomes one
/// row (`OutstandingTable`).
struct FormerRequests {
  let connection: SQLiteConnection

  private static let tables = [
    "salvor_range", "salvor_request_state", "salvor_upload_excluded", "salvor_restamped", "salvor_request_note",
    "salvor_request_history",
  ]

  /// In a transaction.
  func bringOver() throws {
    let there = try Self.tables.filter { try connection.tableShape($0) != nil }
    if there.isEmpty { return }
    // One that somebody has dropped says nothing.
    try connection.execute(
      """
      CREATE TABLE IF NOT EXISTS salvor_range (first INTEGER PRIMARY KEY, last, tag);
      CREATE TABLE IF NOT EXISTS salvor_request_state (first INTEGER PRIMARY KEY, last, state, reason, status, message, blocked_by, at);
      CREATE TABLE IF NOT EXISTS salvor_upload_excluded (first INTEGER PRIMARY KEY, last);
      CREATE TABLE IF NOT EXISTS salvor_restamped (first INTEGER PRIMARY KEY, last, stamp);
      CREATE TABLE IF NOT EXISTS salvor_request_note (first INTEGER PRIMARY KEY, since, attempts, last_attempt);
      CREATE TABLE IF NOT EXISTS salvor_request_history (first, place, id, PRIMARY KEY (first, place));
      INSERT OR IGNORE INTO salvor_outstanding (first, last, tag, stamp, apart, state, state_before, reason, status, message, blocked_by, at, since, attempts, last_attempt, history)
        SELECT f.first, coalesce(a.last, r.last, s.last, e.last, p.last, f.first), coalesce(r.tag, a.tag),
          coalesce(p.stamp, CASE WHEN a.stamp <> (SELECT stamp FROM salvor_stamp WHERE first_seq <= f.first ORDER BY first_seq DESC LIMIT 1) THEN a.stamp END),
          CASE WHEN e.first IS NOT NULL THEN 1 END, coalesce(a.state, s.state), a.state_before, coalesce(a.reason, s.reason),
          coalesce(a.status, s.status), coalesce(a.message, s.message), coalesce(a.blocked_by, s.blocked_by), coalesce(a.at, s.at),
          n.since, coalesce(n.attempts, 0), n.last_attempt,
          (SELECT json_group_array(id) FROM (SELECT id FROM salvor_request_history h WHERE h.first = f.first ORDER BY place))
        FROM (\((Self.tables + ["salvor_archive"]).map { "SELECT first FROM \($0)" }.joined(separator: " UNION "))) f
          LEFT JOIN salvor_range r ON r.first = f.first LEFT JOIN salvor_request_state s ON s.first = f.first
          LEFT JOIN salvor_upload_excluded e ON e.first = f.first LEFT JOIN salvor_restamped p ON p.first = f.first
          LEFT JOIN salvor_request_note n ON n.first = f.first
          LEFT JOIN (SELECT first, max(last) AS last, stamp, tag, state, state_before, reason, status, message, blocked_by, at FROM salvor_archive GROUP BY first) a ON a.first = f.first;
      UPDATE salvor_outstanding SET history = NULL WHERE history = '[]';
      """)
    try letGo()
    try connection.execute(Self.tables.map { "DROP TABLE \($0)" }.joined(separator: ";"))
    try narrowArchive()
  }

  /// What it said of requests goes. Nothing is renamed: SQLite would look at views of the application's that name what is not there.
  private func narrowArchive() throws {
    let columns = "seq, first, t, op, joined, slots, key, before, after"
    let hasShown = try connection.tableShape("salvor_archive")?.column("shown_key") != nil
    let shown = "shown_key, shown_before, shown_after"
    try connection.execute(
      """
      CREATE TEMP TABLE salvor_former_archive AS SELECT \(columns), \(hasShown ? shown : "NULL, NULL, NULL") FROM main.salvor_archive;
      DROP TABLE main.salvor_archive;
      \(StoreTables.archive)
      INSERT INTO main.salvor_archive (\(columns), \(shown)) SELECT * FROM temp.salvor_former_archive;
      DROP TABLE temp.salvor_former_archive;
      """)
  }

  /// Views and triggers that name those tables would be in the way of a rename. They are created again; until then a trigger of the same name
  /// stands for each, so that nobody takes it for one that was missing.
  private func letGo() throws {
    for row in try connection.rows(
      "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger') AND name LIKE 'salvor\\_%' ESCAPE '\\'"
    ) {
      guard let name = row[1].string, let table = row[2].string, let sql = row[3].string,
        Self.tables.contains(where: { sql.contains($0) })
      else { continue }
      if row[0].string == "view" {
        try connection.execute("DROP VIEW \(quoted(name))")
      } else {
        try connection.execute(
          "DROP TRIGGER \(quoted(name)); CREATE TRIGGER \(quoted(name)) AFTER UPDATE ON \(quoted(table)) BEGIN SELECT 1; END"
        )
      }
    }
  }
}
