import CSQLite
import SalvorModel
import SalvorStorage

/// Makes a schema's tables in an empty database in memory, to find out before the real one is opened what SQLite refuses,
/// and which conditions (`check`) would not hold alike for every row, every table's name and every SQLite library.
public struct TableTrial {
  private static let name = "salvor_trial"

  private let connection: SQLiteConnection
  private let schema: Schema
  private let ddl: TableDDL
  /// Functions with the same value for the same arguments, in lower case; nil where this SQLite does not list them.
  private let steadyFunctions: Set<String>?

  /// What is refused; empty: nothing.
  ///
  /// - Parameter schema: the tables that the database will have.
  public static func problems(in schema: Schema, ddl: TableDDL) -> [SchemaProblem] {
    // Without memory for an empty database there is nothing to say of a schema.
    guard let trial = try? TableTrial(schema, ddl) else { return [] }
    return schema.tables.flatMap(trial.problems)
  }

  private init(_ schema: Schema, _ ddl: TableDDL) throws {
    self.schema = schema
    self.ddl = ddl
    connection = try SQLiteConnection(":memory:")
    // A name in double quotes that is no column would be a text otherwise, in some builds of SQLite and not in others.
    _ = csqlite_double_quoted_text(connection.database, 0)
    let known = try? connection.rows("SELECT DISTINCT lower(name) FROM pragma_function_list WHERE flags & 0x800")
    steadyFunctions = known.map { rows in Set(rows.compactMap { $0[0].string }) }
  }

  private func problems(of table: Table) -> [SchemaProblem] {
    let refused = table.check.enumerated().compactMap { index, condition in
      refusal(of: condition, in: table).map {
        SchemaProblem(table: table.name, check: index, message: "is not a condition for the table's rows: \($0)")
      }
    }
    guard refused.isEmpty else { return refused }
    do {
      try connection.execute(ddl.createTable(table, in: schema))
      return []
    } catch {
      return [SchemaProblem(table: table.name, message: "cannot be made by SQLite: \(connection.lastMessage)")]
    }
  }

  private func refusal(of condition: String, in table: Table) -> String? {
    if let flaw = ConditionText.flaw(of: condition) { return "it \(flaw)" }
    let columns = table.maintained == .client ? table.columns : table.travelling
    guard let refusal = refusal(of: condition, over: columns) else { return nil }
    let namesFlag = columns.count < table.columns.count && self.refusal(of: condition, over: table.columns) == nil
    return namesFlag ? "it names a flag column, which never travels" : refusal
  }

  /// The table has another name here, and no rowid: a condition that names its table is lost where the table is made anew
  /// under another name, and a rowid is another one in each database.
  private func refusal(of condition: String, over columns: [Column]) -> String? {
    var key = "salvor_key"
    while columns.contains(where: { $0.name.folded == key }) { key += "_" }
    let definitions = columns.map { "\(quoted($0.name)) \($0.type.sqliteName)" }.joined(separator: ", ")
    var functions: Set<String> = []
    defer {
      connection.clearStatementCache()
      try? connection.execute("DROP TABLE IF EXISTS \(Self.name)")
    }
    do {
      try connection.withAuthorizer({ access in
        if access.action == SQLITE_FUNCTION, let function = access.second { functions.insert(function.folded) }
        return true
      }) {
        try connection.execute(
          "CREATE TABLE \(Self.name) (\(quoted(key)) INTEGER PRIMARY KEY, \(definitions), CHECK (\(condition))) WITHOUT ROWID"
        )
      }
    } catch {
      return connection.lastMessage
    }
    if let steadyFunctions, let other = functions.subtracting(steadyFunctions).min() {
      return "the function \(other) has another value each time, or in another place"
    }
    let names = ([key] + columns.map(\.name)).map(quoted).joined(separator: ", ")
    let nulls = columns.map { _ in "NULL" }.joined(separator: ", ")
    let values = columns.map { Self.sample($0.type) }.joined(separator: ", ")
    return refusal(ofWriting: "INSERT INTO \(Self.name) (\(names)) VALUES (1, \(nulls))")
      ?? refusal(ofWriting: "INSERT INTO \(Self.name) (\(names)) VALUES (2, \(values))")
  }

  /// What SQLite says of a condition only when a row is written: some mistakes when the statement is compiled, `'now'` when
  /// it runs. That this very row does not fulfil the condition is no mistake of it.
  private func refusal(ofWriting sql: String) -> String? {
    guard let statement = try? connection.prepare(sql) else { return connection.lastMessage }
    do {
      while try statement.step() {}
    } catch {
      let message = connection.lastMessage
      if message.hasPrefix("non-deterministic use of") { return message }
    }
    return nil
  }

  private static func sample(_ type: ColumnType) -> String {
    switch type {
    case .text: "'a'"
    case .integer, .boolean: "1"
    case .real: "1.5"
    case .blob: "x'00'"
    case .timestamp: "'2026-01-01T00:00:00Z'"
    case .json: "'{}'"
    }
  }
}

extension SQLiteConnection {
  /// SQLite's own words for the failure of the last call, without the statement.
  var lastMessage: String { sqlite3_errmsg(database).map { String(cString: $0) } ?? "" }
}
