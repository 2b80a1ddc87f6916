#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What PostgreSQL says in its own words.
  struct PostgreSQLDialect: Dialect {
    func isSame(_ left: String, _ right: String) -> String { "\(left) IS NOT DISTINCT FROM \(right)" }
    func differs(_ left: String, _ right: String) -> String { "\(left) IS DISTINCT FROM \(right)" }
    // Salvor's own tables and the keys of synchronized ones compare bytes by their columns' collation.
    func bytewise(_ expression: String) -> String { expression }
    func using(index name: String) -> String { "" }
    var orderedJoin: String { "JOIN" }
    func temporary(_ name: String) -> String { "pg_temp.\(name)" }
    func number(_ condition: String) -> String { "CASE WHEN \(condition) THEN 1 ELSE 0 END" }
    func insertingNumbered(_ insert: String, id: String) -> String { "\(insert) RETURNING \(id)" }
    func insertingNew(_ insert: String) -> String { "\(insert) ON CONFLICT DO NOTHING" }

    func literal(_ value: Value) -> String {
      switch value {
      case .null: return "NULL"
      case .integer(let integer): return "\(integer)"
      case .real(let real):
        return real.isFinite
          ? "'\(real)'::float8" : real.isNaN ? "'NaN'::float8" : "'\(real < 0 ? "-" : "")Infinity'::float8"
      case .text(let bytes):
        return "'\(String(decoding: bytes, as: UTF8.self).replacing("'", with: "''"))'"
      case .blob(let bytes): return "'\\x\(hexadecimal(bytes))'::bytea"
      }
    }

    func temporaryTable(_ name: String, _ columns: [TemporaryColumn], indexes: [TemporaryIndex]) -> [String] {
      let columns = columns.map { column in
        switch column.kind {
        case .id: "\(column.name) bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        case .integer: "\(column.name) bigint"
        case .value: "\(column.name) text COLLATE \"C\""
        }
      }
      return ["CREATE TEMP TABLE IF NOT EXISTS \(name) (\(columns.joined(separator: ", "))) ON COMMIT DELETE ROWS"]
        + indexes.map {
          "CREATE \($0.isUnique ? "UNIQUE " : "")INDEX IF NOT EXISTS \(name)_\($0.suffix) ON pg_temp.\(name) (\($0.columns))"
        } + ["DELETE FROM pg_temp.\(name)"]
    }

    func oneOfEach(
      key: String, numbered number: String, _ end: RangeEnd, _ columns: [String], from: String, where condition: String
    ) -> String {
      "SELECT DISTINCT ON (\(key)) \(number) AS seq, \(columns.joined(separator: ", ")) FROM \(from) "
        + "WHERE \(condition) ORDER BY \(key), \(number)\(end == .last ? " DESC" : "")"
    }
  }
#endif
