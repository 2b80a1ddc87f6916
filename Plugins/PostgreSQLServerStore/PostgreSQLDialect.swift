#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorModel
  import SalvorWire
  import ServerStoreSupport

  /// What PostgreSQL says in its own words.
  struct PostgreSQLDialect: Dialect {
    /// A pooler hands a connection's temporary tables to the next one that asks: they go with their transaction.
    var dropsTemporaryTables = false

    func isSame(_ left: String, _ right: String) -> String { "\(left) IS NOT DISTINCT FROM \(right)" }
    func differs(_ left: String, _ right: String) -> String { "\(left) IS DISTINCT FROM \(right)" }
    // Salvor's own tables and the keys of synchronized ones compare bytes by their columns' collation.
    func bytewise(_ expression: String) -> String { expression }
    func using(index name: String) -> String { "" }
    var orderedJoin: String { "JOIN" }
    var storesNotANumber: Bool { true }
    func temporary(_ name: String) -> String { "pg_temp.\(name)" }
    func number(_ condition: String) -> String { "CASE WHEN \(condition) THEN 1 ELSE 0 END" }
    func insertingNumbered(_ insert: String, id: String) -> String { "\(insert) RETURNING \(id)" }

    func ownTriggers(on table: String) -> (sql: String, values: [Value]) {
      (
        "SELECT tgname::text FROM pg_trigger WHERE tgrelid = to_regclass(?1) AND NOT tgisinternal AND tgenabled <> 'D' AND NOT starts_with(tgname::text, '\(ChangeCapture.triggerPrefix)') ORDER BY tgname",
        [.text(Array(quoted(table).utf8))]
      )
    }
    func insertingNew(_ insert: String) -> String { "\(insert) ON CONFLICT DO NOTHING" }

    func literal(_ value: Value) -> String {
      switch value {
      case .null: return "NULL"
      // Of the type of what it stands beside: a real column, or the text of the log.
      case .integer(let integer): return "'\(integer)'"
      case .real(let real): return "'\(PostgreSQLType.text(real))'"
      case .text(let bytes):
        return "'\(String(decoding: bytes, as: UTF8.self).replacing("'", with: "''"))'"
      case .blob(let bytes): return "'\\x\(hexadecimal(bytes))'::bytea"
      }
    }

    func byteOrdered(_ expression: String) -> String { "\(expression) COLLATE \"C\"" }

    // In the log a value is text: what PostgreSQL makes of it under the settings of `PostgreSQLConnection`.

    func logged(_ expression: String, _ type: String) -> String {
      type == "boolean" ? "\(expression)::integer::text" : "\(expression)::text COLLATE \"C\""
    }

    func unlogged(_ expression: String, _ type: String) -> String {
      type == "boolean" ? "\(expression)::integer::boolean" : "\(expression)::\(type.isEmpty ? "text" : type)"
    }

    func unlogged(_ value: Value, _ type: String) -> Value { PostgreSQLType.value(value, type) }
    func parameter(_ slot: String, _ type: String) -> String { "CAST(\(slot) AS \(type.isEmpty ? "text" : type))" }
    func written(_ value: Value, _ type: String) -> Value {
      PostgreSQLType.isWritten(value, type) == false ? .null : value
    }
    func writtenSlot(_ type: String) -> String {
      PostgreSQLType.isWritten(.text([]), type) == nil ? "salvor_value(?, NULL::\(type))" : "?"
    }
    /// Nothing else measures a temporary table: PostgreSQL takes one of thousands of rows for a small one, and reads it once for each row of another.
    func measuring(_ temporary: String) -> String? { "ANALYZE \(temporary)" }
    /// libpq takes a statement of some 7,500 parameters for a broken answer, and a list may stand in it several times.
    var listedParametersMax: Int { 250 }
    func untyped(_ value: Value) -> Value {
      if case .blob(let bytes) = value { .text(hexadecimal(bytes)) } else { value }
    }
    func excludes(_ value: PayloadReader.Item, _ type: String, names: Bool) -> Bool {
      PostgreSQLType.excludes(value, type, names: names)
    }
    func wanted(_ value: PayloadReader.Item, _ type: String) -> String {
      guard type == "uuid", case .text(let bytes) = value, !PostgreSQLType.lacks(bytes, PostgreSQLType.uuid) else {
        return "Correct it."
      }
      return
        "Write it in lower case: PostgreSQL does, and a key in other letters is another key on a device. Give the row a new key, or have the application make keys in lower case."
    }
    /// A column that is `GENERATED ALWAYS AS IDENTITY` takes a device's value, too.
    var overriding: String { "OVERRIDING SYSTEM VALUE " }

    func standIn(_ type: String, _ random: Int64) -> Value? { PostgreSQLType.standIn(type, random) }

    func insertingFree(_ insert: String) -> String { "\(insert) ON CONFLICT DO NOTHING" }

    func rows(_ types: [String]) -> String? {
      guard !types.isEmpty else { return nil }
      let arrays = types.map(PostgreSQLType.array)
      guard !arrays.contains(nil) else { return nil }
      let slots = arrays.enumerated().map { "?\($0 + 1)::\($1 ?? "")[]" }.joined(separator: ", ")
      let columns = types.indices.map { "c\($0)" } + ["place"]
      return "unnest(\(slots)) WITH ORDINALITY AS rows (\(columns.joined(separator: ", ")))"
    }

    func rowValue(_ place: Int, _ type: String) -> String {
      let isText = PostgreSQLType.array(type) == "text" && !["text", "character varying"].contains(type)
      return isText ? "CAST(rows.c\(place) AS \(type))" : "rows.c\(place)"
    }

    func temporaryTable(_ name: String, _ columns: [TemporaryColumn], indexes: [TemporaryIndex]) -> [String] {
      let columns = columns.map { column in
        switch column.kind {
        case .id: "\(column.name) bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        case .integer: "\(column.name) bigint"
        case .value: "\(column.name) text COLLATE \"C\""
        }
      }
      return [
        "CREATE TEMP TABLE IF NOT EXISTS \(name) (\(columns.joined(separator: ", "))) ON COMMIT \(dropsTemporaryTables ? "DROP" : "DELETE ROWS")"
      ]
        + indexes.map { index in
          "CREATE \(index.isUnique ? "UNIQUE " : "")INDEX IF NOT EXISTS \(name)_\(index.suffix) ON pg_temp.\(name) \(holdingAnyLength(index))"
        } + ["DELETE FROM pg_temp.\(name)"]
    }

    /// An index of PostgreSQL's that keeps values in order does not hold long ones.
    private func holdingAnyLength(_ index: TemporaryIndex) -> String {
      if index.columns == "v" { return "USING hash (v)" }
      guard index.isUnique else { return "(\(index.columns))" }
      return
        "(\(index.columns.split(separator: ", ").map { "md5(\($0)), hashtextextended(\($0), 0)" }.joined(separator: ", ")))"
    }

    func oneOfEach(
      key: String, numbered number: String, _ end: RangeEnd, _ columns: [String], from: String, where condition: String
    ) -> String {
      "SELECT DISTINCT ON (\(key)) \(number) AS seq, \(columns.joined(separator: ", ")) FROM \(from) "
        + "WHERE \(condition) ORDER BY \(key), \(number)\(end == .last ? " DESC" : "")"
    }
  }
#endif
