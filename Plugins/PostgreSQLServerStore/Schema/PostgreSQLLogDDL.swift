#if PostgreSQL
  import SalvorStorage
  import ServerStoreSupport

  /// The tables of the change log. What the others hold is in ServerStoreSupport.
  enum PostgreSQLLogDDL {
    /// An advisory lock under which schemas are installed: one process at a time, whichever it is.
    static let installationLock: Int64 = 0x5341_4C56_4F52

    static func statements(logWidth: Int, settings: ConnectionSettings) -> [String] {
      let values = (0..<logWidth).map { ", v\($0) text COLLATE \"C\"" }.joined()
      return [
        "CREATE SCHEMA IF NOT EXISTS \(quoted(settings.schema))",
        // What was written and has no number yet. `id` is the order within a transaction, and of two writes of one row.
        """
        CREATE TABLE IF NOT EXISTS salvor_inbox (
          id bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
          t integer NOT NULL, op smallint NOT NULL, m bigint, h bigint\(values))
        """,
        "CREATE INDEX IF NOT EXISTS salvor_inbox_xid ON salvor_inbox (xid)",
        """
        CREATE TABLE IF NOT EXISTS salvor_change (
          seq bigint PRIMARY KEY, t integer NOT NULL, op smallint NOT NULL, m bigint, h bigint\(values))
        """,
        """
        CREATE TABLE IF NOT EXISTS salvor_commit (
          number bigint PRIMARY KEY, id text COLLATE "C" NOT NULL, incarnation text COLLATE "C", remote text COLLATE "C",
          last_seq bigint NOT NULL, time bigint NOT NULL)
        """,
        "CREATE INDEX IF NOT EXISTS salvor_commit_seq ON salvor_commit (last_seq)",
        // One row, whose lock is the one serial place. `sealed`: what the newest sealing could see; NULL: look at everything.
        """
        CREATE TABLE IF NOT EXISTS salvor_head (
          single boolean PRIMARY KEY DEFAULT true CHECK (single), number bigint NOT NULL, last_seq bigint NOT NULL,
          sealed pg_snapshot)
        """,
        "INSERT INTO salvor_head (number, last_seq) VALUES (0, 0) ON CONFLICT DO NOTHING",
      ]
    }
  }
#endif
