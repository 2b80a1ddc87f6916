import SQLiteSupport

/// Salvor's own tables in a remote database; `StoreViews` has what people read. The tables of capture are made by
/// `CaptureCatalog`.
enum StoreTables {
  /// One more with each release whose files an earlier one must not write in.
  static let format: Int64 = 3

  static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_state (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;
    -- moved: 1, a table has come into it from a synchronized group since its last download.
    CREATE TABLE IF NOT EXISTS salvor_group (name TEXT NOT NULL PRIMARY KEY, number INTEGER, id TEXT, scope TEXT, last_sync INTEGER, whole INTEGER, subscriptions TEXT, moved INTEGER) WITHOUT ROWID;
    -- Which stamp the requests from a counter on have, and at which commit the group's rows stood then.
    CREATE TABLE IF NOT EXISTS salvor_stamp (first_seq INTEGER PRIMARY KEY, stamp TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_epoch (grp TEXT NOT NULL, first_seq INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (grp, first_seq)) WITHOUT ROWID;
    -- Tables that were in another group up to a counter: the rows stood at that group's commit.
    CREATE TABLE IF NOT EXISTS salvor_former_group (t INTEGER NOT NULL, until_seq INTEGER NOT NULL, grp TEXT NOT NULL, PRIMARY KEY (t, until_seq)) WITHOUT ROWID;
    \(OutstandingTable.definition)
    -- When the requests from a counter on were first met.
    CREATE TABLE IF NOT EXISTS salvor_met (first_seq INTEGER PRIMARY KEY, at INTEGER NOT NULL);
    -- What their changes wrote, as the error archive's view shows it.
    CREATE TABLE IF NOT EXISTS salvor_error_value (seq INTEGER PRIMARY KEY, after TEXT);
    -- Changes of displaced and kept requests with their values: not shown in the tables, not in the log.
    -- shown_…: what the view says where JSON has no word for a value (a blob); else NULL.
    -- own: a loss that may be offered under another setting (`WithheldOffers`): 1, this device wrote the row by a lost commit. Then the lost
    -- version, whether the server's operator is to accept it, and of an update the whole row by slot.
    \(archive)
    -- The bases that a download or an acknowledgement changed: a row's version is the highest of its entries'.
    -- deleted: 1, of a row that left the scope 2. origin: the entry is of an offer that was accepted: the lost commit that made the row so.
    -- undone: `UndoneVersions`.
    CREATE TABLE IF NOT EXISTS salvor_history (id INTEGER PRIMARY KEY, t INTEGER, version INTEGER, own INTEGER, deleted INTEGER, origin TEXT, undone TEXT, v0);
    -- Changes that bring back what the server acknowledged and lost: the lost commit, and the newest one that both sides had when
    -- they parted. written: slots of the change that are an ordinary change; of an update or a delete all of them: it was made upon that version. review: 1, the server's operator is to accept it.
    -- waiting: 1, the server holds it until a parent or that consent comes. origin: of a row that was given back before, and lost again: the
    -- lost commit that made it so.
    CREATE TABLE IF NOT EXISTS salvor_offer (seq INTEGER PRIMARY KEY, incarnation TEXT NOT NULL, number INTEGER NOT NULL, parting INTEGER NOT NULL, written TEXT, review INTEGER, waiting INTEGER, origin TEXT, was TEXT);
    -- Changes that the server keeps as conflict versions, as they were sent, and the commit as of which it has them.
    -- incarnation, parting: the server has lost them, and they go with the next upload; withheld: when (ms), under another setting;
    -- assumed: 1, the number is the one after the cursor, until the download ends.
    CREATE TABLE IF NOT EXISTS salvor_kept (seq INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, stamp TEXT NOT NULL, tag TEXT, t INTEGER NOT NULL, op TEXT NOT NULL, slots TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, made INTEGER NOT NULL, number INTEGER NOT NULL, incarnation TEXT, parting INTEGER, review TEXT, withheld INTEGER, assumed INTEGER, held INTEGER);
    -- The server's incarnations whose commits were lost, and which of them is known to have lived before which. apart: 1, in another
    -- history, which a restore took before.
    CREATE TABLE IF NOT EXISTS salvor_lost (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS salvor_lost_order (earlier TEXT NOT NULL, later TEXT NOT NULL, apart INTEGER, PRIMARY KEY (earlier, later)) WITHOUT ROWID;
    -- Tables that were made anew with other columns: the archive has changes of them. Their slots stay in salvor_column.
    CREATE TABLE IF NOT EXISTS salvor_retired_table (id INTEGER PRIMARY KEY, name TEXT NOT NULL, keys INTEGER NOT NULL);
    -- What recoveries did: report and lines as JSON.
    CREATE TABLE IF NOT EXISTS salvor_recovery (number INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL, report TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_recovery_item (recovery INTEGER NOT NULL, place INTEGER NOT NULL, item TEXT NOT NULL, PRIMARY KEY (recovery, place)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_sequence (id INTEGER PRIMARY KEY, sequence TEXT NOT NULL);
    -- at: when this device heard of it, in milliseconds since 1970.
    CREATE TABLE IF NOT EXISTS salvor_commit (number INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER, PRIMARY KEY (number, id)) WITHOUT ROWID;
    -- met: 1, this device met the server while it was of this incarnation, and has recovered no more since.
    CREATE TABLE IF NOT EXISTS salvor_incarnation (id TEXT NOT NULL PRIMARY KEY, first_commit INTEGER NOT NULL, met INTEGER) WITHOUT ROWID;
    -- compared: the unproven table that the payload says the differences of.
    CREATE TABLE IF NOT EXISTS salvor_staging (id INTEGER PRIMARY KEY, payload TEXT NOT NULL, compared TEXT);
    -- Digests of compared tables' bases.
    CREATE TABLE IF NOT EXISTS salvor_digest (name TEXT NOT NULL PRIMARY KEY, columns TEXT NOT NULL, count INTEGER NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID;
    -- Tables whose triggers were away: they are compared before their next download.
    CREATE TABLE IF NOT EXISTS salvor_unproven (name TEXT NOT NULL PRIMARY KEY, servers INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
    \(BlobStaging.tables)
    -- Client-only rows whose parent Salvor removed: they come back with it.
    CREATE TABLE IF NOT EXISTS salvor_aside (id INTEGER PRIMARY KEY, name TEXT NOT NULL, columns TEXT NOT NULL, payload TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_sync_config (place INTEGER PRIMARY KEY, name TEXT NOT NULL, definition TEXT NOT NULL, fetch_path TEXT NOT NULL, upload_path TEXT, parameter_name TEXT, upsert_statement TEXT NOT NULL, delete_statement TEXT NOT NULL, fetch_order INTEGER NOT NULL, upload_order INTEGER NOT NULL, upsert_order INTEGER NOT NULL, delete_order INTEGER NOT NULL, dirty_query TEXT, key_query TEXT);
    -- Rows that no subscription covers any more, and that stay while changes of them or of their children wait.
    CREATE TABLE IF NOT EXISTS salvor_leaving (t INTEGER NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (t, key)) WITHOUT ROWID;
    \(subscriptions)
    -- What a person has to know and nobody has seen yet.
    CREATE TABLE IF NOT EXISTS salvor_note (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, text TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_setting (name TEXT NOT NULL PRIMARY KEY, value) WITHOUT ROWID;
    """

  static let archive = """
    CREATE TABLE IF NOT EXISTS salvor_archive (seq INTEGER PRIMARY KEY, first INTEGER NOT NULL, t INTEGER NOT NULL, op TEXT NOT NULL, joined INTEGER NOT NULL, slots TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, shown_key, shown_before TEXT, shown_after TEXT, own INTEGER, incarnation TEXT, number INTEGER, parting INTEGER, review INTEGER, whole TEXT);
    CREATE INDEX IF NOT EXISTS salvor_archive_first ON salvor_archive (first);
    CREATE INDEX IF NOT EXISTS salvor_archive_row ON salvor_archive (t, key);
    """

  /// The rows of one target and ID are one subscription; one without parameters is a row with an empty parameter. A target
  /// stays in `salvor_subscribed`, whoever wrote it: without subscriptions it brings nothing.
  private static let subscriptions = """
    CREATE TABLE IF NOT EXISTS salvor_subscription (target TEXT NOT NULL, id TEXT NOT NULL DEFAULT '', parameter TEXT NOT NULL DEFAULT '', value, setting TEXT, PRIMARY KEY (target, id, parameter)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_subscribed (target TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS salvor_subscription_insert AFTER INSERT ON salvor_subscription
      WHEN NOT EXISTS (SELECT 1 FROM salvor_subscribed WHERE target = NEW.target)
      BEGIN INSERT INTO salvor_subscribed (target) VALUES (NEW.target); END;
    CREATE TRIGGER IF NOT EXISTS salvor_subscription_update AFTER UPDATE OF target ON salvor_subscription
      WHEN NOT EXISTS (SELECT 1 FROM salvor_subscribed WHERE target = NEW.target)
      BEGIN INSERT INTO salvor_subscribed (target) VALUES (NEW.target); END;
    """

  static let triggers = ["salvor_subscription_insert", "salvor_subscription_update"]

  /// Columns that older files do not have, or have and nobody reads.
  static func migrate(_ connection: SQLiteConnection, at time: Int64) throws {
    for (table, column) in [
      ("salvor_offer", "review"), ("salvor_offer", "waiting"), ("salvor_commit", "at"), ("salvor_incarnation", "met"),
      ("salvor_kept", "assumed"), ("salvor_outstanding", "overtaken"), ("salvor_kept", "held"),
      ("salvor_lost_order", "apart"),
    ] where try connection.tableShape(table)?.column(column) == nil {
      try connection.execute("ALTER TABLE \(table) ADD COLUMN \(column) INTEGER")
    }
    if let columns = try connection.tableShape("salvor_column"), columns.column("unknown") == nil {
      try connection.execute("ALTER TABLE salvor_column ADD COLUMN unknown INTEGER")
    }
    for table in ["salvor_history", "salvor_offer"] where try connection.tableShape(table)?.column("origin") == nil {
      try connection.execute("ALTER TABLE \(table) ADD COLUMN origin TEXT")
    }
    if try connection.tableShape("salvor_history")?.column("undone") == nil {
      try connection.execute("ALTER TABLE salvor_history ADD COLUMN undone TEXT")
    }
    if try connection.tableShape("salvor_offer")?.column("was") == nil {
      try connection.execute("ALTER TABLE salvor_offer ADD COLUMN was TEXT")
    }
    if try connection.tableShape("salvor_outstanding")?.column("former") == nil {
      try connection.execute("ALTER TABLE salvor_outstanding ADD COLUMN former TEXT")
    }
    if try connection.tableShape("salvor_kept")?.column("review") == nil {
      try connection.execute("ALTER TABLE salvor_kept ADD COLUMN review TEXT")
    }
    if try connection.tableShape("salvor_kept")?.column("withheld") == nil {
      try connection.execute("ALTER TABLE salvor_kept ADD COLUMN withheld INTEGER")
    }
    try connection.run("UPDATE salvor_kept SET withheld = ?1 WHERE withheld = 1", .integer(time))
    if try connection.tableShape("salvor_group")?.column("whole") == nil {
      try connection.execute("ALTER TABLE salvor_group ADD COLUMN whole INTEGER")
    }
    if try connection.tableShape("salvor_staging")?.column("compared") == nil {
      try connection.execute("ALTER TABLE salvor_staging ADD COLUMN compared TEXT")
    }
    if try connection.tableShape("salvor_group")?.column("subscriptions") == nil {
      try connection.execute("ALTER TABLE salvor_group ADD COLUMN subscriptions TEXT")
    }
    if try connection.tableShape("salvor_group")?.column("moved") == nil {
      try connection.execute("ALTER TABLE salvor_group ADD COLUMN moved INTEGER")
    }
    if try connection.tableShape("salvor_unproven")?.column("servers") == nil {
      try connection.execute("ALTER TABLE salvor_unproven ADD COLUMN servers INTEGER NOT NULL DEFAULT 0")
    }
    // It had one subscription for a target.
    if try connection.tableShape("salvor_subscription")?.column("id") == nil {
      let rows = try connection.rows("SELECT target, parameter, value FROM salvor_subscription")
      try connection.execute("DROP TABLE salvor_subscription; \(subscriptions)")
      for row in rows {
        try connection.run("INSERT INTO salvor_subscription (target, parameter, value) VALUES (?1, ?2, ?3)", row)
      }
    }
    if try connection.tableShape("salvor_sync_config")?.column("key_query") == nil {
      try connection.execute(
        "ALTER TABLE salvor_sync_config ADD COLUMN dirty_query TEXT; ALTER TABLE salvor_sync_config ADD COLUMN key_query TEXT"
      )
    }
    // The unchanged parents of what an upload changes: nobody reads them.
    try connection.execute("DROP TABLE IF EXISTS salvor_upload_context")
    try FormerRequests(connection: connection).bringOver()
    if try connection.tableShape("salvor_archive")?.column("own") == nil {
      for column in [
        "own INTEGER", "incarnation TEXT", "number INTEGER", "parting INTEGER", "review INTEGER", "whole TEXT",
      ] { try connection.execute("ALTER TABLE salvor_archive ADD COLUMN \(column)") }
      try noteUnversioned(connection, at: time)
    }
    try connection.execute(
      """
      CREATE INDEX IF NOT EXISTS salvor_archive_withheld ON salvor_archive (seq) WHERE own IS NOT NULL;
      DROP INDEX IF EXISTS salvor_kept_withheld;
      CREATE INDEX IF NOT EXISTS salvor_kept_held ON salvor_kept (seq) WHERE withheld IS NOT NULL;
      CREATE INDEX IF NOT EXISTS salvor_kept_waits ON salvor_kept (t, seq) WHERE held IS NOT NULL;
      """)
  }

  /// An earlier release did not write down of which version a lost row is: no setting offers it (decision 162).
  private static func noteUnversioned(_ connection: SQLiteConnection, at time: Int64) throws {
    let count = try connection.integer("SELECT count(*) FROM salvor_outstanding WHERE \(OutstandingTable.isLost)") ?? 0
    guard count > 0 else { return }
    let entries = count == 1 ? "1 entry" : "\(count) entries"
    try connection.note(
      [
        "\(entries) of the error archive say what a server lost (lost-on-server), and were written by an earlier release: they are not offered under any setting of heal. Reapply them (salvor errors reapply ID), or delete them."
      ], at: time)
  }
}
