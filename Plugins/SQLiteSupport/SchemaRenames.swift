import SalvorModel
import SalvorStorage

/// Tables and columns of a database that a schema has under other names now (`renamedFrom`).
///
/// What decides is the database: a table is renamed where its new name is not there and a former one is. Whoever has
/// renamed it by hand has done the same.
public struct SchemaRenames: Sendable, Hashable {
  /// One `ALTER TABLE … RENAME`.
  public struct Step: Sendable, Hashable {
    /// The table's new name.
    public var table: String
    /// Nil: the table itself is renamed.
    public var column: String?
    /// The name in the database: of the column, or of the table where `column` is nil.
    public var old: String
  }

  /// In the schema's order; a table before its columns.
  public private(set) var steps: [Step] = []

  /// True where nothing of the database has a former name.
  public var isEmpty: Bool { steps.isEmpty }

  /// Reads the shapes of the tables that have former names, and changes nothing. Where several former names are there,
  /// the one that `renamedFrom` names last counts. Throws SQLite's errors.
  public init(_ schema: Schema, in connection: SQLiteConnection) throws {
    for table in schema.tables
    where !table.renamedFrom.isEmpty || table.columns.contains(where: { !$0.renamedFrom.isEmpty }) {
      var shape = try connection.tableShape(table.name)
      if shape == nil {
        for name in table.renamedFrom.reversed() where schema.table(name) == nil {
          guard let found = try connection.tableShape(name) else { continue }
          steps.append(Step(table: table.name, column: nil, old: found.name))
          shape = found
          break
        }
      }
      guard let shape else { continue }
      for column in table.columns where shape.column(column.name) == nil {
        for name in column.renamedFrom.reversed() where table.columnIndex(name) == nil {
          guard let found = shape.column(name) else { continue }
          steps.append(Step(table: table.name, column: column.name, old: found.name))
          break
        }
      }
    }
  }

  /// Renames. What else in the database names a table or column (foreign keys, indexes, triggers, views) follows. Throws
  /// `schema-refused` where SQLite does not do it.
  ///
  /// - Returns: notices, of views and triggers that could not follow (`SQLiteConnection.alter`).
  public func apply(to connection: SQLiteConnection) throws -> [String] {
    var notices: [String] = []
    for step in steps {
      do {
        if let column = step.column {
          notices += try connection.alter(
            "ALTER TABLE \(quoted(step.table)) RENAME COLUMN \(quoted(step.old)) TO \(quoted(column))")
        } else {
          notices += try connection.alter("ALTER TABLE \(quoted(step.old)) RENAME TO \(quoted(step.table))")
        }
      } catch let error as SalvorError where error.code == .storage {
        let what = step.column.map { "\(step.table).\(step.old) cannot become \(step.table).\($0)" }
        throw SalvorError(
          .schemaRefused, "\(what ?? "\(step.old) cannot become \(step.table)"): \(error.message)",
          context: ["table": step.table])
      }
    }
    return notices
  }
}
