import SQLiteSupport

/// Salvor's own tables in a remote database, and the views that people read (docs/reference: remote database). The
/// tables of capture are made by `CaptureCatalog`.
enum StoreTables {
  static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_state (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_group (name TEXT NOT NULL PRIMARY KEY, number INTEGER, id TEXT, scope TEXT, last_sync INTEGER, whole INTEGER) WITHOUT ROWID;
    -- Which stamp the requests from a counter on have, and at which commit the group's rows stood then.
    CREATE TABLE IF NOT EXISTS salvor_stamp (first_seq INTEGER PRIMARY KEY, stamp TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_epoch (grp TEXT NOT NULL, first_seq INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (grp, first_seq)) WITHOUT ROWID;
    -- Requests of several changes, and tagged ones; every other log row is a request of its own.
    CREATE TABLE IF NOT EXISTS salvor_range (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, tag TEXT);
    -- Refused and blocked requests: their changes are still in the log, and in their rows.
    CREATE TABLE IF NOT EXISTS salvor_request_state (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, status INTEGER, message TEXT, blocked_by TEXT, at INTEGER);
    -- What became of a request so far: how often it was refused, and of one that was sent again, when it first was made.
    CREATE TABLE IF NOT EXISTS salvor_request_note (first INTEGER PRIMARY KEY, since INTEGER, attempts INTEGER NOT NULL, last_attempt INTEGER);
    -- The IDs that a request had before, oldest first.
    CREATE TABLE IF NOT EXISTS salvor_request_history (first INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (first, place)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS salvor_request_history_id ON salvor_request_history (id);
    -- When the requests from a counter on were first met.
    CREATE TABLE IF NOT EXISTS salvor_met (first_seq INTEGER PRIMARY KEY, at INTEGER NOT NULL);
    -- Requests up to the upload's last counter that are not part of it.
    CREATE TABLE IF NOT EXISTS salvor_upload_excluded (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
    -- The unchanged parents that go with the upload: each with the change that it is named with, and its group's commit.
    CREATE TABLE IF NOT EXISTS salvor_upload_context (seq INTEGER NOT NULL, t INTEGER NOT NULL, key, made INTEGER NOT NULL, PRIMARY KEY (seq, t, key)) WITHOUT ROWID;
    -- What a request saw, where the base under it has changed since: its old values as they were captured.
    CREATE TABLE IF NOT EXISTS salvor_seen (seq INTEGER PRIMARY KEY, before TEXT NOT NULL);
    -- Displaced and kept requests, each change with its values: not shown in the tables, not in the log.
    CREATE TABLE IF NOT EXISTS salvor_archive (seq INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, stamp TEXT NOT NULL, tag TEXT, t INTEGER NOT NULL, op TEXT NOT NULL, joined INTEGER NOT NULL, slots TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, state TEXT NOT NULL, state_before TEXT, reason TEXT, status INTEGER, message TEXT, blocked_by TEXT, at INTEGER);
    CREATE INDEX IF NOT EXISTS salvor_archive_first ON salvor_archive (first);
    -- The bases that a download or an acknowledgement changed: a row's version is the highest of its entries'.
    -- deleted: 1, of a row that left the scope 2.
    CREATE TABLE IF NOT EXISTS salvor_history (id INTEGER PRIMARY KEY, t INTEGER, version INTEGER, own INTEGER, deleted INTEGER, v0);
    -- Tables that were made anew with other columns: the archive has changes of them. Their slots stay in salvor_column.
    CREATE TABLE IF NOT EXISTS salvor_retired_table (id INTEGER PRIMARY KEY, name TEXT NOT NULL, keys INTEGER NOT NULL);
    -- What recoveries did: report and lines as JSON.
    CREATE TABLE IF NOT EXISTS salvor_recovery (number INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL, report TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_recovery_item (recovery INTEGER NOT NULL, place INTEGER NOT NULL, item TEXT NOT NULL, PRIMARY KEY (recovery, place)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_sequence (id INTEGER PRIMARY KEY, sequence TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_commit (number INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (number, id)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_incarnation (id TEXT NOT NULL PRIMARY KEY, first_commit INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_staging (id INTEGER PRIMARY KEY, payload TEXT NOT NULL);
    -- Client-only rows whose parent Salvor removed: they come back with it.
    CREATE TABLE IF NOT EXISTS salvor_aside (id INTEGER PRIMARY KEY, name TEXT NOT NULL, columns TEXT NOT NULL, payload TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_sync_config (place INTEGER PRIMARY KEY, name TEXT NOT NULL, definition TEXT NOT NULL, fetch_path TEXT NOT NULL, upload_path TEXT, parameter_name TEXT, upsert_statement TEXT NOT NULL, delete_statement TEXT NOT NULL, fetch_order INTEGER NOT NULL, upload_order INTEGER NOT NULL, upsert_order INTEGER NOT NULL, delete_order INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_subscription (target TEXT NOT NULL, parameter TEXT NOT NULL, value, PRIMARY KEY (target, parameter)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_setting (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;
    """

  /// Columns that older files do not have, or have and nobody reads.
  static func migrate(_ connection: SQLiteConnection) throws {
    if try connection.tableShape("salvor_group")?.column("whole") == nil {
      try connection.execute("ALTER TABLE salvor_group ADD COLUMN whole INTEGER")
    }
    // What a displaced request depends on is looked at anew each time.
    if try connection.tableShape("salvor_archive")?.column("needs") != nil {
      try connection.execute("ALTER TABLE salvor_archive DROP COLUMN needs")
    }
  }

  /// Made anew at each opening, since they follow the captured tables.
  static func makeViews(_ catalog: CaptureCatalog, on connection: SQLiteConnection) throws {
    let views = [
      ("salvor_status", status), ("salvor_queue", queue(catalog)), ("salvor_error_archive", archive(catalog)),
      ("salvor_row_state", rowState(catalog)),
    ]
    for (name, select) in views {
      let sql = "CREATE VIEW \(name) AS \(select)"
      let found = try connection.scalar("SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?1", .text(name))
      if found?.string == sql { continue }
      try connection.execute("DROP VIEW IF EXISTS \(name); \(sql)")
    }
  }

  private static let status = """
    SELECT (SELECT value FROM salvor_state WHERE name = 'remote') AS remote_id,
      (SELECT value FROM salvor_state WHERE name = 'principal') AS principal,
      (SELECT value FROM salvor_state WHERE name = 'schemaVersion') AS schema_version,
      (SELECT value FROM salvor_state WHERE name = 'previous') AS previous,
      (SELECT value FROM salvor_state WHERE name = 'current') AS current,
      (SELECT count(*) FROM salvor_queue WHERE state NOT IN ('refused', 'blocked')) AS queued_changes,
      (SELECT count(*) FROM salvor_request_state) AS in_error,
      (SELECT count(DISTINCT first) FROM salvor_archive WHERE state = 'displaced') AS displaced,
      (SELECT count(DISTINCT first) FROM salvor_archive WHERE state = 'kept') AS kept
    """

  private static let stamp =
    "(SELECT stamp FROM salvor_stamp WHERE first_seq <= l.first ORDER BY first_seq DESC LIMIT 1) || '-' || l.first"

  /// Each change of the log with its request's first counter and state.
  private static func changes(_ catalog: CaptureCatalog) -> String {
    """
    SELECT g.seq, g.t, \(operation) AS operation, \(key(catalog, "g")) AS key,
      coalesce((SELECT r.first FROM salvor_range r WHERE r.first <= g.seq AND r.last >= g.seq), g.seq) AS first
    FROM salvor_log g WHERE g.op IN \(StoreContext.changeOperations)
    """
  }

  private static let operation =
    "CASE WHEN g.op IN (1, 7) THEN 'insert' WHEN g.op IN (2, 11) THEN 'update' ELSE 'delete' END"

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
      coalesce((SELECT state FROM salvor_request_state s WHERE s.first = l.first),
        CASE WHEN l.seq <= (SELECT value FROM salvor_state WHERE name = 'uploadLast')
            AND NOT EXISTS (SELECT 1 FROM salvor_upload_excluded e WHERE e.first = l.first)
          THEN (SELECT value FROM salvor_state WHERE name = 'uploadState') ELSE 'queued' END) AS state,
      (SELECT tag FROM salvor_range r WHERE r.first = l.first) AS tag, l.seq AS counter
    FROM (\(changes(catalog))) l ORDER BY l.seq
    """
  }

  private static func archive(_ catalog: CaptureCatalog) -> String {
    """
    SELECT \(stamp) AS id, (SELECT name FROM salvor_table WHERE id = l.t) AS "table", l.key AS "key", l.operation AS operation,
      s.state, s.reason, s.status, s.message, s.blocked_by, s.at, NULL AS "before", NULL AS "after", l.seq AS counter
    FROM (\(changes(catalog))) l JOIN salvor_request_state s ON s.first = l.first
    UNION ALL
    SELECT stamp || '-' || first, coalesce((SELECT name FROM salvor_table WHERE id = t), (SELECT name FROM salvor_retired_table WHERE id = t)), key, op, state, reason, status, message,
      blocked_by, at, before, after, seq FROM salvor_archive
    """
  }

  private static func rowState(_ catalog: CaptureCatalog) -> String {
    """
    SELECT (SELECT name FROM salvor_table WHERE id = l.t) AS "table", l.key AS "key", max(l.dirty) AS dirty,
      CASE WHEN max(l.seq) IS NULL THEN 0 ELSE max(CASE WHEN l.operation = 'delete' THEN l.seq END) IS max(l.seq) END AS deleted,
      max(l.error) AS in_error, max(l.version) AS version
    FROM (
      SELECT c.t, c.key, 1 AS dirty, c.seq, c.operation, EXISTS (SELECT 1 FROM salvor_request_state s WHERE s.first = c.first) AS error, NULL AS version
      FROM (\(changes(catalog))) c
      UNION ALL
      SELECT h.t, \(key(catalog, "h")), 0, NULL, NULL, 0, h.version FROM salvor_history h
    ) l GROUP BY l.t, l.key
    """
  }
}
