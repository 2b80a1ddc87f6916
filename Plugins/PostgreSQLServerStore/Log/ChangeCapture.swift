#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// The triggers that write the inbox, so that the writes of any program are seen: `INSERT`, `COPY`, `MERGE`, `ON CONFLICT`,
  /// cascades, and `TRUNCATE`.
  ///
  /// An entry has the transaction that wrote it, and no number that means an order (`Sealing`). It waits for nobody: no lock is
  /// taken that another writer waits for.
  struct ChangeCapture {
    let table: ServerTable
    /// Of the synchronized tables.
    let tablesIn: String
    /// Of Salvor's own tables.
    let schema: String
    /// The types of the columns that travel, as PostgreSQL names them.
    let types: [String]

    private var t: Int64 { table.number }
    /// Of the table, as SQL takes it.
    var name: String { "\(quoted(tablesIn)).\(quoted(table.name))" }
    private var inbox: String { "\(quoted(schema)).salvor_inbox" }
    func function(_ event: String) -> String { "\(quoted(schema)).salvor_\(t)_\(event)" }
    /// PostgreSQL fires triggers of one event in the order of their names. These come before the application's: what such a
    /// trigger makes of the row is a later entry, and the first one says what the row was before.
    static func trigger(_ t: Int64, _ event: String) -> String { "!salvor_\(t)_\(event)" }
    static let events = ["insert", "update", "delete", "truncate"]

    /// Statements that make the functions and triggers anew.
    var statements: [String] {
      [
        function("insert", [entry(LogOperation.insert, "NEW", old: false)]),
        function("update", update),
        function("delete", [entry(LogOperation.delete, "OLD", old: true)]),
        function("truncate", [truncated]),
        trigger("insert", "AFTER INSERT", "FOR EACH ROW"),
        trigger("update", "AFTER UPDATE", "FOR EACH ROW WHEN (\(isChanged))"),
        trigger("delete", "AFTER DELETE", "FOR EACH ROW"),
        trigger("truncate", "BEFORE TRUNCATE", "FOR EACH STATEMENT"),
      ].joined().map(\.self)
    }

    /// With the rights of its owner: a writer needs none on Salvor's tables, and no name is looked up where he could put one.
    private func function(_ event: String, _ body: [String]) -> [String] {
      [
        """
        CREATE OR REPLACE FUNCTION \(function(event))() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp\(textSettings) AS $salvor$
        BEGIN
          \(body.map { "\($0);" }.joined(separator: "\n  "))
          RETURN NULL;
        END $salvor$
        """
      ]
    }

    private func trigger(_ event: String, _ when: String, _ each: String) -> [String] {
      let trigger = quoted(Self.trigger(t, event))
      return [
        "DROP TRIGGER IF EXISTS \(trigger) ON \(name)",
        "CREATE TRIGGER \(trigger) \(when) ON \(name) \(each) EXECUTE FUNCTION \(function(event))()",
      ]
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

    private func entry(_ operation: Int64, _ row: String, old: Bool) -> String { entry("\(operation)", row, old: old) }

    private func entry(_ operation: String, _ row: String, old: Bool, mask: String? = nil) -> String {
      let values = values(row, old: old)
      return "INSERT INTO \(inbox) (t, op, \(mask == nil ? "" : "m, ")\(slots(values.count))) "
        + "VALUES (\(t), \(operation), \(mask.map { "\($0), " } ?? "")\(values.joined(separator: ", ")))"
    }

    private var update: [String] {
      let moved = table.relevant.compactMap(table.place).map { differs($0) }
      let operation =
        moved.isEmpty
        ? "\(LogOperation.update)"
        : "CASE WHEN \(balanced(moved)) THEN \(LogOperation.move) ELSE \(LogOperation.update) END"
      let mask = table.columns.indices.map { "CASE WHEN \(differs($0)) THEN \(1 << Int64(table.bits[$0])) ELSE 0 END" }
      let sameKey = table.keyPlaces.map { "NOT (\(differs($0)))" }.joined(separator: " AND ")
      return [
        """
        IF \(sameKey) THEN
            \(entry(operation, "OLD", old: true, mask: "(\(balanced(mask, by: "|")))::bigint"));
          ELSE
            \(entry(LogOperation.delete, "OLD", old: true));
            \(entry(LogOperation.insert, "NEW", old: false));
          END IF
        """
      ]
    }

    private var truncated: String {
      let values = values("x", old: true)
      return "INSERT INTO \(inbox) (t, op, \(slots(values.count))) "
        + "SELECT \(t), \(LogOperation.delete), \(values.joined(separator: ", ")) FROM \(name) x"
    }

    // MARK: Comparing

    private var isChanged: String { balanced(table.columns.indices.map { differs($0) }) }

    /// Types whose equal values are the same bytes; the others are compared by their text: by bytes, whatever the collation.
    private static let exact: Set<String> = [
      "smallint", "integer", "bigint", "boolean", "bytea", "uuid", "date", "time without time zone",
      "timestamp without time zone", "timestamp with time zone",
    ]

    private func differs(_ place: Int) -> String {
      let column = quoted(table.columns[place].name)
      if Self.exact.contains(types[place]) { return "OLD.\(column) IS DISTINCT FROM NEW.\(column)" }
      return "OLD.\(column)::text COLLATE \"C\" IS DISTINCT FROM NEW.\(column)::text COLLATE \"C\""
    }
  }
#endif
