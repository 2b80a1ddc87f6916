#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// The triggers that write the inbox, so that the writes of any program are seen: `INSERT`, `COPY`, `MERGE`, `ON CONFLICT`,
  /// cascades, and `TRUNCATE`.
  ///
  /// An entry of another program has the transaction that wrote it, and no number that means an order (`Sealing`). It waits for nobody: no lock is
  /// taken that another writer waits for. A trigger fires once a statement and reads the statement's rows, where it sees as much
  /// (docs/decisions/0170).
  struct ChangeCapture {
    let table: ServerTable
    /// Of the synchronized tables.
    let tablesIn: String
    /// Of Salvor's own tables.
    let schema: String
    /// The types of the columns that travel, as PostgreSQL names them.
    let types: [String]
    /// Each row's own trigger, where one of each statement would not see it, or too late (`DatabaseCheck.needsRowTriggers`).
    let eachRow: Bool
    /// It may have parts, each with a trigger of `TRUNCATE` of its own (`TablePart`).
    var hasParts = false

    var t: Int64 { table.number }
    /// Of the table, as SQL takes it.
    var name: String { "\(quoted(tablesIn)).\(quoted(table.name))" }
    private var inbox: String { "\(quoted(schema)).salvor_inbox" }
    private var log: String { "\(quoted(schema)).salvor_change" }
    func function(_ event: String) -> String { "\(quoted(schema)).salvor_\(t)_\(event)" }
    /// PostgreSQL fires triggers of one event in the order of their names. These come before the application's: what such a
    /// trigger makes of the row is a later entry, and the first one says what the row was before.
    static let triggerPrefix = "!salvor_"
    static func trigger(_ t: Int64, _ event: String) -> String { "\(triggerPrefix)\(t)_\(event)" }
    static let events = ["insert", "update", "delete", "truncate"]
    /// Beside the triggers of statements: it is disabled, and names the columns that they read. So PostgreSQL drops none of them and
    /// alters the type of none, as with a trigger of each row, until this one is dropped.
    static let guarding = "columns"
    static let triggers = events + [guarding]

    /// Statements that make the functions and triggers anew.
    var statements: [String] {
      let drops = Self.triggers.map { "DROP TRIGGER IF EXISTS \(quoted(Self.trigger(t, $0))) ON \(name)" }
      return drops + (eachRow ? ofRows : ofStatements)
        + function(
          "truncate",
          [entry(LogOperation.delete, "x", old: true, from: hasParts ? Self.truncated : "\(name) x"), unseen])
        + [trigger("truncate", "BEFORE TRUNCATE", "FOR EACH STATEMENT")]
    }

    /// `TRUNCATE` also takes the rows that the transaction's snapshot does not see. Which they are nobody can say here: the group comes
    /// whole once (`CaptureMarks`).
    private var unseen: String {
      """
      IF pg_catalog.current_setting('transaction_isolation') NOT LIKE 'read %' THEN
          INSERT INTO \(quoted(schema)).salvor_server (key, value) VALUES ('\(CaptureMarks.key(t))', '')
            ON CONFLICT (key) DO UPDATE SET value = '';
        END IF
      """
    }

    private var ofRows: [String] {
      function("insert", [entry(LogOperation.insert, "NEW", old: false)])
        + function("update", update)
        + function("delete", [entry(LogOperation.delete, "OLD", old: true)])
        + [
          trigger("insert", "AFTER INSERT", "FOR EACH ROW"),
          trigger("update", "AFTER UPDATE", "FOR EACH ROW WHEN (\(isChanged()))"),
          trigger("delete", "AFTER DELETE", "FOR EACH ROW"),
        ]
    }

    private var ofStatements: [String] {
      let columns = table.columns.map { quoted($0.name) }.joined(separator: ", ")
      let guardian = quoted(Self.trigger(t, Self.guarding))
      return function("insert", [entry(LogOperation.insert, "x", old: false, from: "\(new) x")], " SET jit = off")
        + function("update", [updated], " SET jit = off SET enable_hashjoin = off")
        + function("delete", [entry(LogOperation.delete, "x", old: true, from: "\(old) x")], " SET jit = off")
        + function(Self.guarding, ["NULL"])
        + [
          trigger("insert", "AFTER INSERT", "REFERENCING NEW TABLE AS \(new) FOR EACH STATEMENT"),
          trigger("update", "AFTER UPDATE", "REFERENCING OLD TABLE AS \(old) NEW TABLE AS \(new) FOR EACH STATEMENT"),
          trigger("delete", "AFTER DELETE", "REFERENCING OLD TABLE AS \(old) FOR EACH STATEMENT"),
          trigger(Self.guarding, "AFTER UPDATE OF \(columns)", "FOR EACH STATEMENT"),
          "ALTER TABLE \(name) DISABLE TRIGGER \(guardian)",
        ]
    }

    /// Of the rows of a statement.
    private var old: String { "salvor_old" }
    private var new: String { "salvor_new" }

    /// With the rights of its owner: a writer needs none on Salvor's tables, and no name is looked up where he could put one.
    ///
    /// - Parameter settings: of a trigger of statements. Each session keeps the plans that it made of a function's statements, for
    ///   one row as for a million: none may be compiled again each time, or reserve memory for the most rows that it once had.
    private func function(_ event: String, _ body: [String], _ settings: String = "") -> [String] {
      let text = """
        BEGIN
          \(body.map { "\($0);" }.joined(separator: "\n  "))
          RETURN NULL;
        END
        """
      return [
        """
        CREATE OR REPLACE FUNCTION \(function(event))() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp\(settings)\(textSettings) AS \(Self.dollarQuoted(text, "salvor"))
        """
      ]
    }

    /// A text that PostgreSQL takes as it is, whatever names stand in it.
    private static func dollarQuoted(_ text: String, _ tag: String) -> String {
      var quote = "$\(tag)$"
      while text.contains(quote) { quote = "$\(tag)\(quote.utf8.count)\(quote.dropFirst())" }
      return "\(quote)\(text)\(quote)"
    }

    private func trigger(_ event: String, _ when: String, _ each: String, on part: String? = nil) -> String {
      "CREATE TRIGGER \(quoted(Self.trigger(t, event))) \(when) ON \(part ?? name) \(each) EXECUTE FUNCTION \(function(event))()"
    }

    /// Of each row and of `TRUNCATE`, on a part of the table.
    func triggers(of part: String, _ events: [String]) -> [String] {
      events.map { event in
        switch event {
        case "truncate": trigger(event, "BEFORE TRUNCATE", "FOR EACH STATEMENT", on: part)
        case "update": trigger(event, "AFTER UPDATE", "FOR EACH ROW WHEN (\(isChanged()))", on: part)
        default: trigger(event, "AFTER \(event.uppercased())", "FOR EACH ROW", on: part)
        }
      }
    }

    /// The rows of a part that has come, as if they were inserted now.
    func entering(_ part: String) -> String {
      let values = values("x", old: false)
      return "INSERT INTO \(inbox) (t, op, \(slots(values.count))) SELECT \(t), \(LogOperation.insert), "
        + "\(values.joined(separator: ", ")) FROM ONLY \(part) x"
    }

    // MARK: Entries

    private func slots(_ count: Int) -> String { (0..<count).map { "v\($0)" }.joined(separator: ", ") }

    /// In the log a value is text.
    private func text(_ row: String, _ place: Int) -> String {
      PostgreSQLDialect().logged("\(row).\(quoted(table.columns[place].name))", types[place])
    }

    /// What a value's text looks like follows the writer's settings: those that it depends on are Salvor's in the functions. Each
    /// costs a little with each row, so only what the table's values need is set.
    private var textSettings: String {
      let places = table.keyPlaces + table.relevant.compactMap(table.place)
      let found = Set(places.map { types[$0] })
      var settings: [String] = []
      if found.contains("bytea") { settings.append("bytea_output = 'hex'") }
      if !found.isDisjoint(with: ["real", "double precision"]) { settings.append("extra_float_digits = 1") }
      if found.contains("timestamp with time zone") { settings.append("TimeZone = 'UTC'") }
      if found.contains(where: { $0.hasPrefix("time") || $0 == "date" }) { settings.append("DateStyle = 'ISO, YMD'") }
      if found.contains("interval") { settings.append("IntervalStyle = 'iso_8601'") }
      return settings.map { " SET \($0)" }.joined()
    }

    private func values(_ row: String, old: Bool) -> [String] {
      table.keyPlaces.map { text(row, $0) } + (old ? table.relevant.compactMap(table.place).map { text(row, $0) } : [])
    }

    /// Of the trigger's one row; or of those of `source`, `x`. What Salvor itself writes, with the head locked, has its numbers at once
    /// (docs/decisions/0167).
    private func entry(
      _ operation: String, _ values: [String], mask: String? = nil, from source: String? = nil
    ) -> String {
      let items = ["\(t)", operation] + (mask.map { [$0] } ?? []) + values
      let list = items.joined(separator: ", ")
      let columns = "t, op, \(mask == nil ? "" : "m, ")\(slots(values.count))"
      let from = source.map { " FROM \($0)" } ?? ""
      func run(_ statement: String) -> String {
        guard source == Self.truncated else { return statement }
        return
          "EXECUTE replace(\(Self.dollarQuoted(statement, "entry")), '\(Self.truncated)', 'ONLY ' || TG_RELID::regclass::text || ' x')"
      }
      let numbered = """
        INSERT INTO \(log) (seq, \(columns))
              SELECT (SELECT coalesce(max(seq), 0) FROM \(log)) + row_number() OVER (), \(list)\(from)
        """
      return """
        IF \(Sealing.numbersItself) THEN
            \(run(numbered));
          ELSE
            \(run("INSERT INTO \(inbox) (\(columns)) SELECT \(list)\(from)"));
          END IF
        """
    }

    /// Stands for the table or part that is emptied: the trigger of each tells its own rows.
    private static let truncated = "!salvor_truncated x"

    private func entry(_ operation: Int64, _ row: String, old: Bool, from source: String? = nil) -> String {
      entry("\(operation)", values(row, old: old), from: source)
    }

    /// What an update is: a move, where a column that decides scopes has changed.
    private func operation(_ old: String, _ new: String) -> String {
      let moved = table.relevant.compactMap(table.place).map { differs($0, old, new) }
      return moved.isEmpty
        ? "\(LogOperation.update)"
        : "CASE WHEN \(balanced(moved)) THEN \(LogOperation.move) ELSE \(LogOperation.update) END"
    }

    private func mask(_ old: String, _ new: String) -> String {
      let bits = table.columns.indices.map {
        "CASE WHEN \(differs($0, old, new)) THEN \(1 << Int64(table.bits[$0])) ELSE 0 END"
      }
      return "(\(balanced(bits, by: "|")))::bigint"
    }

    private var update: [String] {
      let sameKey = table.keyPlaces.map { "NOT (\(differs($0)))" }.joined(separator: " AND ")
      return [
        """
        IF \(sameKey) THEN
            \(entry(operation("OLD", "NEW"), values("OLD", old: true), mask: mask("OLD", "NEW")));
          ELSE
            \(entry(LogOperation.delete, "OLD", old: true));
            \(entry(LogOperation.insert, "NEW", old: false));
          END IF
        """
      ]
    }

    /// What a statement has changed is told by the keys: one that is gone was deleted, one that has come was inserted.
    private var updated: String {
      let keys = table.keyPlaces.map { quoted(table.columns[$0].name) }
      let (isGone, isNew) = ("n.\(keys[0]) IS NULL", "o.\(keys[0]) IS NULL")
      return entry(
        "CASE WHEN \(isGone) THEN \(LogOperation.delete) WHEN \(isNew) THEN \(LogOperation.insert) ELSE \(operation("o", "n")) END",
        table.keyPlaces.map { "coalesce(\(text("o", $0)), \(text("n", $0)))" }
          + table.relevant.compactMap(table.place).map { text("o", $0) },
        mask: "CASE WHEN \(isGone) OR \(isNew) THEN NULL ELSE \(mask("o", "n")) END",
        from: "\(old) o FULL JOIN \(new) n ON \(keys.map { "o.\($0) = n.\($0)" }.joined(separator: " AND "))"
          + " WHERE \(isGone) OR \(isNew) OR \(isChanged("o", "n"))")
    }

    // MARK: Comparing

    private func isChanged(_ old: String = "OLD", _ new: String = "NEW") -> String {
      balanced(table.columns.indices.map { differs($0, old, new) })
    }

    /// Types whose equal values are the same bytes. The others are compared by their bytes, whatever the collation and whatever the
    /// writer's session does to their text: a trigger's condition has the writer's settings.
    private static let exact: Set<String> = [
      "smallint", "integer", "bigint", "boolean", "bytea", "uuid", "date", "time without time zone",
      "timestamp without time zone", "timestamp with time zone",
    ]

    private func differs(_ place: Int, _ old: String = "OLD", _ new: String = "NEW") -> String {
      let column = quoted(table.columns[place].name)
      if Self.exact.contains(types[place]) { return "\(old).\(column) IS DISTINCT FROM \(new).\(column)" }
      return "pg_catalog.record_image_ne(ROW(\(old).\(column)), ROW(\(new).\(column)))"
    }
  }
#endif
