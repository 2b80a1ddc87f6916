import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Runs an application's writes for hosts without a SQLite library of their own: triggers and foreign keys are on.
struct ApplicationWriter {
  let context: StoreContext

  func run(_ write: ApplicationWrite) throws {
    let connection = context.connection
    switch write {
    case .insert(let name, let values):
      let table = try table(name, values)
      if values.isEmpty {
        try connection.run("INSERT INTO \(quoted(table.name)) DEFAULT VALUES")
        return
      }
      let slots = (1...values.count).map { "?\($0)" }.joined(separator: ", ")
      try connection.run(
        "INSERT INTO \(quoted(table.name)) (\(quotedList(values.map(\.name)))) VALUES (\(slots))", values.map(\.value))
    case .update(let name, let key, let values):
      let table = try table(name, values)
      guard !values.isEmpty else { return }
      let sets = values.enumerated().map { "\(quoted($1.name)) = ?\($0 + 1)" }.joined(separator: ", ")
      try connection.run(
        "UPDATE \(quoted(table.name)) SET \(sets) WHERE \(try condition(table, key, firstParameter: values.count + 1))",
        values.map(\.value) + key)
    case .delete(let name, let key):
      let table = try table(name, [])
      try connection.run(
        "DELETE FROM \(quoted(table.name)) WHERE \(try condition(table, key, firstParameter: 1))", key)
    case .deferReferences: try connection.execute("PRAGMA defer_foreign_keys = ON")
    case .beginRequest(let tag):
      try connection.run("INSERT INTO salvor_request (tag) VALUES (?1)", tag.map { .text($0) } ?? .null)
    case .endRequest: try connection.run("DELETE FROM salvor_request")
    }
  }

  private func table(_ name: String, _ values: [NamedValue]) throws -> Table {
    guard let table = context.schema.table(name) else {
      throw SalvorError(.usage, "The schema has no table \(name).", context: ["table": name])
    }
    for value in values where table.columnIndex(value.name) == nil {
      throw SalvorError(
        .usage, "The table \(name) has no column \(value.name).", context: ["table": name, "column": value.name])
    }
    return table
  }

  private func condition(_ table: Table, _ key: Key, firstParameter: Int) throws -> String {
    guard key.count == table.primaryKey.count else {
      throw SalvorError(
        .usage, "The key of \(table.name) has \(table.primaryKey.count) columns.", context: ["table": table.name])
    }
    return table.primaryKey.enumerated().map { "\(quoted($1)) = ?\($0 + firstParameter)" }.joined(separator: " AND ")
  }
}
