import SQLiteSupport
import ServerStoreSupport

/// The tables of Salvor's own in the server's database. What they hold is described in this folder's README.
enum ServerDDL {
  /// The number of this layout; a database with a later one is refused.
  static let format: Int64 = 1

  /// No constraint stands in a table that triggers write: a writer's OR clause would override it. The log's sequence
  /// number is never used again because its highest row is never removed.
  static let fixed = """
    CREATE TABLE IF NOT EXISTS salvor_server (key TEXT PRIMARY KEY NOT NULL, value) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_table (
      t INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, generation INTEGER NOT NULL, columns TEXT NOT NULL,
      grouping TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_change (seq INTEGER PRIMARY KEY, t INTEGER, op INTEGER, m INTEGER, h INTEGER);
    CREATE TABLE IF NOT EXISTS salvor_gone (seq INTEGER NOT NULL, t INTEGER NOT NULL, deleted INTEGER NOT NULL,
      remote TEXT, a INTEGER);
    CREATE INDEX IF NOT EXISTS salvor_gone_seq ON salvor_gone (seq);
    CREATE TABLE IF NOT EXISTS salvor_came (seq INTEGER NOT NULL, a INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS salvor_came_seq ON salvor_came (seq);
    CREATE TABLE IF NOT EXISTS salvor_commit (
      number INTEGER PRIMARY KEY, id TEXT NOT NULL, incarnation TEXT, remote TEXT, last_seq INTEGER NOT NULL,
      time INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS salvor_commit_seq ON salvor_commit (last_seq);
    CREATE TABLE IF NOT EXISTS salvor_incarnation (id TEXT PRIMARY KEY NOT NULL, first_commit INTEGER NOT NULL)
      WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_remote (
      id TEXT PRIMARY KEY NOT NULL, principal TEXT NOT NULL, blocked INTEGER NOT NULL, deleted INTEGER NOT NULL,
      sequence TEXT, registered INTEGER NOT NULL, last_upload INTEGER, reset INTEGER NOT NULL DEFAULT 0,
      staged_sequence TEXT, staged_bytes INTEGER NOT NULL DEFAULT 0, staged_chunks INTEGER NOT NULL DEFAULT 0,
      staged_time INTEGER, own_after INTEGER NOT NULL DEFAULT 0)
      WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_sequence (
      remote TEXT NOT NULL, sequence TEXT NOT NULL, time INTEGER NOT NULL, PRIMARY KEY (remote, sequence))
      WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_result (
      remote TEXT PRIMARY KEY NOT NULL, sequence TEXT NOT NULL, result TEXT NOT NULL);
    \(settled)
    CREATE TABLE IF NOT EXISTS salvor_staging (
      remote TEXT NOT NULL, sequence TEXT NOT NULL, chunk INTEGER NOT NULL, first INTEGER NOT NULL,
      last INTEGER NOT NULL, changes INTEGER NOT NULL, is_last INTEGER NOT NULL, bytes BLOB NOT NULL,
      PRIMARY KEY (remote, chunk));
    \(conflict)
    \(BlobStaging.tables)
    \(PurgeBook.table)
    \(HealBook.tables)
    \(WaitingBook.tables)
    \(BackupBook.table)
    \(RestoreBook.tables)
    """

  /// `contents`: four bytes for each counter, or four for the whole range; NULL: not known.
  private static let settled = """
    CREATE TABLE IF NOT EXISTS salvor_settled (
      id INTEGER PRIMARY KEY, stamp TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, remote TEXT NOT NULL,
      time INTEGER NOT NULL, refusal TEXT, contents BLOB);
    """

  /// `key`, `client`, `seen`, `server`: JSON, the latter three by column. `server_commit` and what follows say who made the
  /// server's row, `resolution` and what follows how and by whom the version was resolved (`policy`: by the conflict policy
  /// of that name, when the upload was processed), `settled` the row that a policy made, `offer` the lost version that an
  /// offer would bring back.
  private static let conflict = """
    CREATE TABLE IF NOT EXISTS salvor_conflict (
      id INTEGER PRIMARY KEY, first INTEGER NOT NULL, "table" TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL,
      remote TEXT NOT NULL, principal TEXT NOT NULL, time INTEGER NOT NULL, made INTEGER NOT NULL,
      operation TEXT NOT NULL, seen TEXT, client TEXT NOT NULL, server TEXT, server_commit INTEGER, server_time INTEGER,
      server_remote TEXT, server_principal TEXT, resolution TEXT, resolved INTEGER, resolved_by TEXT,
      settled TEXT, offer TEXT);
    """

  /// Brings the tables of a database that an earlier version made up to this one.
  static func renew(_ connection: SQLiteConnection) throws {
    if let shape = try connection.tableShape("salvor_remote"), shape.column("reset") == nil {
      try connection.execute("ALTER TABLE salvor_remote ADD COLUMN reset INTEGER NOT NULL DEFAULT 0")
    }
    if let shape = try connection.tableShape("salvor_remote"), shape.column("own_after") == nil {
      try connection.execute("ALTER TABLE salvor_remote ADD COLUMN own_after INTEGER NOT NULL DEFAULT 0")
    }
    if let shape = try connection.tableShape("salvor_remote"), shape.column("staged_sequence") == nil {
      try connection.execute(
        """
        ALTER TABLE salvor_remote ADD COLUMN staged_sequence TEXT;
        ALTER TABLE salvor_remote ADD COLUMN staged_bytes INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE salvor_remote ADD COLUMN staged_chunks INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE salvor_remote ADD COLUMN staged_time INTEGER;
        UPDATE salvor_remote AS r SET (staged_sequence, staged_bytes, staged_chunks, staged_time) =
            (SELECT max(sequence), sum(length(bytes)), count(*), 1000 * CAST(strftime('%s', 'now') AS INTEGER)
              FROM salvor_staging s WHERE s.remote = r.id)
          WHERE EXISTS (SELECT 1 FROM salvor_staging s WHERE s.remote = r.id);
        """)
    }
    if let shape = try connection.tableShape("salvor_gone"), shape.column("a") == nil {
      try connection.execute("ALTER TABLE salvor_gone ADD COLUMN a INTEGER")
    }
    if let shape = try connection.tableShape("salvor_settled"), shape.column("contents") == nil {
      try connection.execute(
        """
        ALTER TABLE salvor_settled RENAME TO salvor_settled_before;
        \(settled)
        INSERT INTO salvor_settled (stamp, first, last, remote, time, refusal)
          SELECT stamp, first, last, remote, time, refusal FROM salvor_settled_before;
        DROP TABLE salvor_settled_before;
        """)
    }
    if let shape = try connection.tableShape("salvor_conflict"), shape.column("first") == nil {
      // What the client saw was not written down; its change was made before the commit that was.
      try connection.execute(
        """
        ALTER TABLE salvor_conflict RENAME TO salvor_conflict_before;
        \(conflict)
        INSERT INTO salvor_conflict (id, first, "table", key, request, remote, principal, time, made, operation, client,
            server, server_commit)
          SELECT id, min(id) OVER (PARTITION BY remote, request, time), "table", key, request, remote, principal, time,
            version, operation, client, server, version FROM salvor_conflict_before;
        DROP TABLE salvor_conflict_before;
        """)
    }
    if let shape = try connection.tableShape("salvor_conflict"), shape.column("settled") == nil {
      try connection.execute("ALTER TABLE salvor_conflict ADD COLUMN settled TEXT")
    }
    if let shape = try connection.tableShape("salvor_conflict"), shape.column("offer") == nil {
      try connection.execute("ALTER TABLE salvor_conflict ADD COLUMN offer TEXT")
    }
    try addRestoreColumns(connection)
    if let shape = try connection.tableShape("salvor_change"), shape.column("m") == nil {
      // Which columns the entries so far changed is not known: as many as there are.
      try connection.execute(
        "ALTER TABLE salvor_change ADD COLUMN m INTEGER; ALTER TABLE salvor_change ADD COLUMN h INTEGER")
    }
    try connection.execute(
      """
      CREATE INDEX IF NOT EXISTS salvor_remote_principal ON salvor_remote (principal) WHERE deleted = 0;
      CREATE INDEX IF NOT EXISTS salvor_remote_blocked ON salvor_remote (id) WHERE blocked = 1;
      CREATE INDEX IF NOT EXISTS salvor_remote_staged ON salvor_remote (principal, staged_bytes) WHERE staged_bytes > 0;
      CREATE INDEX IF NOT EXISTS salvor_settled_stamp ON salvor_settled (stamp);
      CREATE INDEX IF NOT EXISTS salvor_conflict_first ON salvor_conflict (first);
      CREATE INDEX IF NOT EXISTS salvor_conflict_request ON salvor_conflict (request);
      CREATE INDEX IF NOT EXISTS salvor_conflict_offer ON salvor_conflict ("table", key) WHERE offer IS NOT NULL;
      CREATE INDEX IF NOT EXISTS salvor_conflict_open ON salvor_conflict (id) WHERE resolution IS NULL;
      DROP INDEX IF EXISTS salvor_conflict_resolved;
      CREATE INDEX IF NOT EXISTS salvor_conflict_settled ON salvor_conflict (resolution, resolved)
        WHERE resolution IS NOT NULL;
      """)
  }

  /// What restores write, and databases of earlier releases do not have: of which histories lost incarnations are, what a copy held, and what the
  /// database made of offers.
  static func addRestoreColumns(_ connection: SQLiteConnection) throws {
    if let shape = try connection.tableShape("salvor_healed_entry"), shape.column("altered") == nil {
      try connection.execute("ALTER TABLE salvor_healed_entry ADD COLUMN altered INTEGER")
    }
    if let shape = try connection.tableShape("salvor_lost_timeline"), shape.column("apart") == nil {
      try connection.execute("ALTER TABLE salvor_lost_timeline ADD COLUMN apart INTEGER")
    }
    if let shape = try connection.tableShape("salvor_restore"), shape.column("seq") == nil {
      try connection.execute("ALTER TABLE salvor_restore ADD COLUMN seq INTEGER")
    }
  }

  /// Brings the columns of values up to the width that the schema needs.
  static func widen(_ connection: SQLiteConnection, logWidth: Int, keyWidth: Int, scopeWidth: Int) throws {
    func add(_ table: String, _ prefix: String, _ count: Int) throws {
      guard let shape = try connection.tableShape(table) else { return }
      let names = Set(shape.columns.map(\.name))
      for place in 0..<count where !names.contains("\(prefix)\(place)") {
        try connection.execute("ALTER TABLE \(table) ADD COLUMN \(prefix)\(place)")
      }
    }
    try add("salvor_change", "v", logWidth)
    try add("salvor_gone", "v", keyWidth)
    try add("salvor_gone", "d", scopeWidth)
    try add("salvor_came", "d", scopeWidth)
    // An upload asks whether a row has left its sender's scope (`Departures`).
    try connection.execute("CREATE INDEX IF NOT EXISTS salvor_gone_key ON salvor_gone (t, v0)")
  }

  /// The rows that REPLACE may be about to remove: untyped, so that every value is kept as it is.
  static func pendingTable(_ table: ServerTable) -> String {
    let columns = table.columns.indices.map { "c\($0)" }.joined(separator: ", ")
    return "CREATE TABLE IF NOT EXISTS \(table.pending) (id INTEGER PRIMARY KEY, \(columns))"
  }
}
