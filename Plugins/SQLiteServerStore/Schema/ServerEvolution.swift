import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// Carries a database along with the declared rules of its schema (`renamedFrom`, `dropped`): tables and columns get their
/// new names, and so does what Salvor keeps under the old ones; what is dropped stays where it is, and is synchronized no
/// more.
struct ServerEvolution {
  let connection: SQLiteConnection
  let schema: Schema
  private(set) var notices: [String] = []
  private var hasChanged = false

  init(connection: SQLiteConnection, schema: Schema) {
    self.connection = connection
    self.schema = schema
  }

  /// Answers what is known of the tables under their new names.
  mutating func run(_ known: [String: KnownTable]) throws -> [String: KnownTable] {
    let renames = try SchemaRenames(schema, in: connection)
    let carried = try carry(known)
    for name in schema.dropped where schema.table(name) == nil {
      guard let table = known[name] else { continue }
      try dropTriggers(table.number)
    }
    for step in renames.steps {
      guard let table = carried[step.table] ?? known[step.old] else { continue }
      try dropTriggers(table.number)
    }
    notices += try renames.apply(to: connection)
    for step in renames.steps {
      hasChanged = true
      notices.append(
        step.column.map { "\(step.table).\(step.old) was renamed to \(step.table).\($0)." }
          ?? "\(step.old) was renamed to \(step.table).")
    }
    for table in schema.tables { try setAside(table, carried[table.name]) }
    // A half-sent upload has the names of before: its device sends it anew.
    if hasChanged { try Staging(connection: connection).forgetAll() }
    return carried
  }

  /// The same facts under the new names, in the database, too.
  private mutating func carry(_ known: [String: KnownTable]) throws -> [String: KnownTable] {
    var carried: [String: KnownTable] = [:]
    for (name, var facts) in known {
      guard let table = schema.tables.table(formerly: name), known[table.name] == nil || table.name == name else {
        if let table = schema.tables.table(formerly: name), schema.table(name) == nil {
          throw SalvorError.nameUsedBefore(table.name, by: name)
        }
        carried[name] = facts
        continue
      }
      var names: [(old: String, new: String)] = []
      facts.columns = try facts.columns.map { column in
        let new = table.column(formerly: column)?.name ?? column
        if new == column { return new }
        guard !facts.columns.contains(new) else {
          throw SalvorError(
            .schemaRefused,
            "\(table.name).\(new) was synchronized until now, and \(column), which the schema calls a former name of it, too. Give the renamed column a name that is free, and declare the other one dropped.",
            context: ["table": table.name, "column": new])
        }
        let shape = try connection.tableShape(name) ?? connection.tableShape(table.name)
        if column.folded != new.folded, let shape, shape.column(column) != nil, shape.column(new) != nil {
          throw SalvorError.nameTaken("\(table.name).\(new)", by: column, table: table.name)
        }
        names.append((column, new))
        return new
      }
      if table.name.folded != name.folded, try connection.tableShape(name) != nil,
        try connection.tableShape(table.name) != nil
      {
        throw SalvorError.nameTaken(table.name, by: name, table: table.name)
      }
      if table.name != name {
        try connection.run(
          "UPDATE salvor_table SET name = ?1 WHERE t = ?2", .text(table.name), .integer(facts.number))
      }
      if table.name != name || !names.isEmpty {
        hasChanged = true
        try ConflictBook.rename(from: name, to: table.name, names, connection)
        try WaitingBook.rename(from: name, to: table.name, names, connection)
      }
      carried[table.name] = facts
    }
    return carried
  }

  private func dropTriggers(_ number: Int64) throws {
    for row in try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB ?1", .text("salvor_\(number)_*"))
    {
      if let name = row[0].string { try connection.execute("DROP TRIGGER \(quoted(name))") }
    }
  }

  /// Salvor's own that begin with a column: by it a reference, or a scope, was looked up.
  private func dropIndexes(of column: String, in table: String) throws {
    for row in try connection.rows(
      """
      SELECT l.name FROM pragma_index_list(?1) l JOIN pragma_index_info(l.name) i
        WHERE l.name GLOB 'salvor_*' AND i.name = ?2 COLLATE NOCASE
      """, .text(table), .text(column))
    {
      if let name = row[0].string { try connection.execute("DROP INDEX \(quoted(name))") }
    }
  }

  /// A dropped column stays in its table, unless every new row would need a value for it: then its values move to a table
  /// of their own, with the keys.
  private mutating func setAside(_ table: Table, _ known: KnownTable?) throws {
    guard let shape = try connection.tableShape(table.name) else { return }
    for column in shape.columns where table.hasDropped(column.name) {
      if known?.columns.contains(column.name) == true {
        hasChanged = true
        notices.append("\(table.name).\(column.name) was dropped from the schema: it stays, and is not synchronized.")
      }
      guard column.notNull, column.defaultSQL == nil else { continue }
      let aside = "salvor_dropped_\(table.name)_\(column.name)"
      if let number = known?.number { try dropTriggers(number) }
      try dropIndexes(of: column.name, in: table.name)
      do {
        try connection.execute(
          "CREATE TABLE \(quoted(aside)) AS SELECT \(quotedList(table.primaryKey + [column.name])) FROM \(quoted(table.name))"
        )
        notices += try connection.alter("ALTER TABLE \(quoted(table.name)) DROP COLUMN \(quoted(column.name))")
      } catch let error as SalvorError where error.code == .storage {
        throw SalvorError(
          .schemaRefused,
          "\(table.name).\(column.name) is dropped, but new rows need a value for it, and it cannot be taken out of the table: \(error.message) Drop it in the database.",
          context: ["table": table.name, "column": column.name])
      }
      notices.append(
        "\(table.name).\(column.name) was dropped from the schema. New rows have no value for it: its values are in \(aside)."
      )
    }
  }
}
