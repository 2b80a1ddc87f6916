#if PostgreSQL
  import SalvorStorage
  import ServerStoreSupport

  /// The tables of Salvor's own. Those that ServerStoreSupport defines are made from its own text.
  enum PostgreSQLTables {
    /// The number of this layout. A release whose layout only adds to that of an earlier one leaves `formatServed` as it is: then both
    /// serve the database for the length of a rolling update. A database whose `formatServed` is later than this is refused.
    static let format: Int64 = 5
    /// The oldest layout whose release may serve a database of this one.
    static let formatServed: Int64 = 1

    /// An advisory lock under which schemas are installed: one process at a time, whichever it is.
    static let installationLock: Int64 = 0x5341_4C56_4F52
    /// Each process holds it shared as long as it runs; whoever gets it alone begins an incarnation.
    static let processLock: Int64 = 0x5341_4C56_4F53

    static func statements(_ settings: ConnectionSettings) -> [String] {
      ["CREATE SCHEMA IF NOT EXISTS \(quoted(settings.schema))", value] + log + books.flatMap(translated)
        + [
          "CREATE INDEX IF NOT EXISTS salvor_remote_principal ON salvor_remote (principal) WHERE deleted = 0",
          "CREATE INDEX IF NOT EXISTS salvor_remote_blocked ON salvor_remote (id) WHERE blocked = 1",
          """
          CREATE INDEX IF NOT EXISTS salvor_remote_staged ON salvor_remote (principal, staged_bytes)
            WHERE staged_bytes > 0
          """,
          // What was staged and never sent is looked for by its time.
          """
          CREATE INDEX IF NOT EXISTS salvor_remote_staged_time ON salvor_remote (staged_time)
            WHERE staged_sequence IS NOT NULL
          """,
          // Chunks are written once, and read once.
          """
          DO $salvor$ BEGIN
            EXECUTE 'ALTER TABLE salvor_staging ALTER COLUMN bytes SET COMPRESSION lz4';
          EXCEPTION WHEN syntax_error OR feature_not_supported THEN
            ALTER TABLE salvor_staging ALTER COLUMN bytes SET STORAGE EXTERNAL;
          END $salvor$
          """,
          "CREATE INDEX IF NOT EXISTS salvor_settled_stamp ON salvor_settled (stamp)",
          "CREATE INDEX IF NOT EXISTS salvor_settled_time ON salvor_settled (time)",
          "CREATE INDEX IF NOT EXISTS salvor_conflict_first ON salvor_conflict (first)",
          "CREATE INDEX IF NOT EXISTS salvor_conflict_request ON salvor_conflict (request)",
          "CREATE INDEX IF NOT EXISTS salvor_conflict_offer ON salvor_conflict (\"table\", key) WHERE offer IS NOT NULL",
          "CREATE INDEX IF NOT EXISTS salvor_conflict_open ON salvor_conflict (id) WHERE resolution IS NULL",
          """
          CREATE INDEX IF NOT EXISTS salvor_conflict_settled ON salvor_conflict (resolution, resolved)
            WHERE resolution IS NOT NULL
          """,
        ]
    }

    /// A text as a value of the type of `kind`; NULL where none is written so.
    private static let value = """
      CREATE OR REPLACE FUNCTION salvor_value(given text, kind anyelement) RETURNS anyelement LANGUAGE plpgsql STABLE AS $salvor$
      DECLARE found kind%TYPE;
      BEGIN
        found := given;
        RETURN CASE WHEN found::text = given COLLATE "C" THEN found END;
      EXCEPTION WHEN data_exception THEN RETURN NULL;
      END $salvor$
      """

    private static let log = [
      // What was written and has no number yet. `id` is the order within a transaction, and of two writes of one row.
      """
      CREATE TABLE IF NOT EXISTS salvor_inbox (
        id bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
        t integer NOT NULL, op smallint NOT NULL, m bigint, h bigint)
      """,
      "CREATE INDEX IF NOT EXISTS salvor_inbox_xid ON salvor_inbox (xid, id)",
      """
      CREATE TABLE IF NOT EXISTS salvor_change (
        seq bigint PRIMARY KEY, t integer NOT NULL, op smallint NOT NULL, m bigint, h bigint)
      """,
      // One row, whose table's lock is the one serial place. `sealed`: what the newest sealing could see; NULL: look at everything.
      """
      CREATE TABLE IF NOT EXISTS salvor_head (
        single boolean PRIMARY KEY DEFAULT true CHECK (single), sealed pg_snapshot)
      """,
      "INSERT INTO salvor_head DEFAULT VALUES ON CONFLICT DO NOTHING",
      // What the rows were whose keys were changed last (`RowProof`).
      """
      CREATE TABLE IF NOT EXISTS salvor_proof (
        seq bigint NOT NULL, t integer NOT NULL, shape text COLLATE "C" NOT NULL, digest text COLLATE "C")
      """,
      "CREATE INDEX IF NOT EXISTS salvor_proof_seq ON salvor_proof (t, seq)",
      // Of an entry that the store itself appends, with the head locked.
      """
      CREATE OR REPLACE FUNCTION salvor_next_seq() RETURNS bigint LANGUAGE sql VOLATILE AS
        'SELECT coalesce(max(seq), 0) + 1 FROM salvor_change'
      """,
      "ALTER TABLE salvor_change ALTER COLUMN seq SET DEFAULT salvor_next_seq()",
      // Sessions and recoveries under way, for all processes. What a crash or a failover takes along is begun again.
      // Its numbers are logged: those of an unlogged table are damaged on a standby that is promoted (PostgreSQL 15).
      "CREATE SEQUENCE IF NOT EXISTS salvor_conversation_order",
      """
      CREATE UNLOGGED TABLE IF NOT EXISTS salvor_conversation (
        place bigint NOT NULL DEFAULT nextval('salvor_conversation_order'), token text COLLATE "C" PRIMARY KEY, kind text COLLATE "C" NOT NULL,
        remote text COLLATE "C" NOT NULL, principal text COLLATE "C" NOT NULL, subject bytea NOT NULL, seen bigint NOT NULL)
      """,
      "ALTER TABLE salvor_conversation ALTER COLUMN place DROP IDENTITY IF EXISTS",
      "ALTER TABLE salvor_conversation ALTER COLUMN place SET DEFAULT nextval('salvor_conversation_order')",
      "CREATE INDEX IF NOT EXISTS salvor_conversation_remote ON salvor_conversation (kind, remote, place)",
      "CREATE INDEX IF NOT EXISTS salvor_conversation_principal ON salvor_conversation (kind, principal)",
      "CREATE INDEX IF NOT EXISTS salvor_conversation_seen ON salvor_conversation (kind, seen)",
    ]

    /// In SQLite's types; `conflict` as its store has it.
    private static let books = [
      """
      CREATE TABLE IF NOT EXISTS salvor_server (key TEXT PRIMARY KEY NOT NULL, value TEXT);
      CREATE TABLE IF NOT EXISTS salvor_table (
        t INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, generation INTEGER NOT NULL, columns TEXT NOT NULL,
        grouping TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS salvor_gone (seq INTEGER NOT NULL, t INTEGER NOT NULL, deleted INTEGER NOT NULL,
        remote TEXT, a INTEGER);
      CREATE INDEX IF NOT EXISTS salvor_gone_seq ON salvor_gone (seq);
      CREATE TABLE IF NOT EXISTS salvor_came (seq INTEGER NOT NULL, a INTEGER NOT NULL);
      CREATE INDEX IF NOT EXISTS salvor_came_seq ON salvor_came (seq);
      CREATE TABLE IF NOT EXISTS salvor_commit (
        number INTEGER NOT NULL PRIMARY KEY, id TEXT NOT NULL, incarnation TEXT, remote TEXT, last_seq INTEGER NOT NULL,
        time INTEGER NOT NULL);
      CREATE INDEX IF NOT EXISTS salvor_commit_seq ON salvor_commit (last_seq);
      CREATE TABLE IF NOT EXISTS salvor_incarnation (id TEXT PRIMARY KEY NOT NULL, first_commit INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS salvor_remote (
        id TEXT PRIMARY KEY NOT NULL, principal TEXT NOT NULL, blocked INTEGER NOT NULL, deleted INTEGER NOT NULL,
        sequence TEXT, registered INTEGER NOT NULL, last_upload INTEGER, reset INTEGER NOT NULL DEFAULT 0,
        staged_sequence TEXT, staged_bytes INTEGER NOT NULL DEFAULT 0, staged_chunks INTEGER NOT NULL DEFAULT 0,
        staged_time INTEGER, own_after INTEGER NOT NULL DEFAULT 0);
      CREATE TABLE IF NOT EXISTS salvor_sequence (
        remote TEXT NOT NULL, sequence TEXT NOT NULL, time INTEGER NOT NULL, PRIMARY KEY (remote, sequence));
      CREATE INDEX IF NOT EXISTS salvor_sequence_time ON salvor_sequence (time);
      CREATE TABLE IF NOT EXISTS salvor_result (
        remote TEXT PRIMARY KEY NOT NULL, sequence TEXT NOT NULL, result TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS salvor_settled (
        id INTEGER PRIMARY KEY, stamp TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, remote TEXT NOT NULL,
        time INTEGER NOT NULL, refusal TEXT, contents BLOB);
      CREATE TABLE IF NOT EXISTS salvor_staging (
        remote TEXT NOT NULL, sequence TEXT NOT NULL, chunk INTEGER NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, changes INTEGER NOT NULL, is_last INTEGER NOT NULL, bytes BLOB NOT NULL,
        PRIMARY KEY (remote, chunk));
      CREATE TABLE IF NOT EXISTS salvor_conflict (
        id INTEGER NOT NULL PRIMARY KEY, first INTEGER NOT NULL, "table" TEXT NOT NULL, key TEXT NOT NULL,
        request TEXT NOT NULL, remote TEXT NOT NULL, principal TEXT NOT NULL, time INTEGER NOT NULL,
        made INTEGER NOT NULL, operation TEXT NOT NULL, seen TEXT, client TEXT NOT NULL, server TEXT,
        server_commit INTEGER, server_time INTEGER, server_remote TEXT, server_principal TEXT, resolution TEXT,
        resolved INTEGER, resolved_by TEXT, settled TEXT, offer TEXT);
      """, BlobStaging.tables, PurgeBook.table, HealBook.tables, WaitingBook.tables, RestoreBook.tables,
    ]

    /// Statements in SQLite's types, in PostgreSQL's. They use four: INTEGER, TEXT, BLOB, and the number that a row is given.
    static func translated(_ text: String) -> [String] {
      text.split(separator: ";").map { $0.trimmingPrefix(while: \.isWhitespace) }.filter { !$0.isEmpty }.map {
        statement in
        String(statement).replacing("WITHOUT ROWID", with: "")
          .replacing(" INTEGER PRIMARY KEY", with: " bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY")
          .replacing(" INTEGER", with: " bigint").replacing(" TEXT", with: " text COLLATE \"C\"")
          .replacing(" BLOB", with: " bytea")
      }
    }

    /// Brings the columns of values up to the width that the schema needs.
    static func widening(logWidth: Int, keyWidth: Int, scopeWidth: Int) -> [String] {
      func add(_ table: String, _ prefix: String, _ count: Int) -> [String] {
        (0..<count).map { "ALTER TABLE \(table) ADD COLUMN IF NOT EXISTS \(prefix)\($0) text COLLATE \"C\"" }
      }
      return add("salvor_inbox", "v", logWidth) + add("salvor_change", "v", logWidth)
        + add("salvor_gone", "v", keyWidth) + add("salvor_proof", "v", keyWidth)
        + add("salvor_gone", "d", scopeWidth) + add("salvor_came", "d", scopeWidth)
        + [
          "ALTER TABLE salvor_lost_timeline ADD COLUMN IF NOT EXISTS apart bigint",
          "ALTER TABLE salvor_healed_entry ADD COLUMN IF NOT EXISTS altered bigint",
          "ALTER TABLE salvor_restore ADD COLUMN IF NOT EXISTS seq bigint",
        ]
        + keyIndexes.sorted { $0.key < $1.key }.map { "CREATE INDEX IF NOT EXISTS \($0) ON \($1) (t, v0)" }
    }

    /// The indexes by which rows are looked up in the log, and their tables. Of `salvor_gone` an upload asks whether a row has left its
    /// sender's scope (`Departures`).
    static let keyIndexes = ["salvor_change_key": "salvor_change", "salvor_gone_key": "salvor_gone"]

    /// The same for keys of any length, which no index of PostgreSQL's holds that keeps them in order: a key that the application's own
    /// table just holds may be too long here, as text and beside the table's number.
    static func holdingLongKeys(_ index: String) -> [String] {
      ["DROP INDEX \(index)", "CREATE INDEX \(index) ON \(keyIndexes[index] ?? "") USING hash (v0)"]
    }
  }
#endif
