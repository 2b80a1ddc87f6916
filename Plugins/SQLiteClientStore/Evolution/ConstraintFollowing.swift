import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Gives tables the constraints that the schema has for them now: UNIQUE, CHECK, NOT NULL, DEFAULT and foreign keys of a table
/// that Salvor made. The table is made anew, with its rows.
///
/// What is laxer than before holds at once: the server may send a row that uses it. What is stricter holds as soon as every
/// row here satisfies it, which is tried at each opening: until then the server's constraint refuses what breaks it.
struct ConstraintFollowing {
  private let connection: SQLiteConnection
  private let schema: Schema
  /// The tables as they were defined before.
  private let before: [Table]
  /// Tables that can be given other constraints: they have nothing but what Salvor wrote, and columns of the application's own without
  /// constraints of theirs.
  private(set) var tables: Set<String> = []
  /// Tables that were made anew; their triggers are gone.
  private(set) var remade: Set<String> = []
  /// Tables with a column that has another default now: rows may have been given the former one.
  private(set) var redefaulted: Set<String> = []
  /// What a person should know: names only.
  private(set) var notices: [String] = []

  private static let ddl = TableDDL.device
  /// By table: how its columns may stand in the table's text that the schema does not have.
  private var ownParts: [String: Set<String>] = [:]

  init(_ connection: SQLiteConnection, _ schema: Schema, before: [Table]) throws {
    self.connection = connection
    self.schema = schema
    self.before = before
    for table in schema.tables {
      guard let shape = try connection.tableShape(table.name), let text = try text(of: shape.name) else { continue }
      let checks = (before.first { $0.name == table.name || table.renamedFrom.contains($0.name) })?.check ?? []
      // Another declared type is the application's own word: it made the table.
      let isSalvors = table.columns.allSatisfy { column in
        shape.column(column.name).map { $0.declaredType == column.type.sqliteName } ?? true
      }
      guard isSalvors, let own = ownParts(shape, table, text) else { continue }
      if Self.ddl.hasWritten(text, shape, checks: checks + table.check, besides: own) {
        tables.insert(table.name)
        ownParts[table.name] = own
      }
    }
  }

  /// How columns that the schema does not have stand in the table's text. Nil: one has a constraint, which would be lost.
  private func ownParts(_ shape: TableShape, _ table: Table, _ text: TableText) -> Set<String>? {
    var found: Set<String> = []
    for column in shape.columns
    where !table.columns.contains(where: { $0.name.folded == column.name.folded }) {
      let rest = " \(column.declaredType)\(column.notNull ? " NOT NULL" : "")"
      let values = column.defaultSQL.map { [" DEFAULT \($0)", " DEFAULT (\($0))"] } ?? [""]
      let parts = values.flatMap { [quoted(column.name) + rest + $0, column.name + rest + $0] }
      let known = Set(parts.map { $0.folded })
      guard let part = text.parts.first(where: { known.contains($0.folded) }) else { return nil }
      found.insert(part)
    }
    return found
  }

  private func text(of table: String) throws -> TableText? {
    try connection.scalar("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", .text(table))?.string
      .flatMap { TableText($0) }
  }

  /// After what is missing was added. In a transaction with triggers and foreign keys off.
  mutating func run() throws {
    for table in schema.tables where tables.contains(table.name) {
      guard let shape = try connection.tableShape(table.name), let text = try text(of: shape.name),
        parts(of: text, table) != Set(Self.ddl.parts(of: table, in: schema))
      else { continue }
      let lax = laxer(table, shape, text)
      let stricter = try broken(table, than: lax)
      if let stricter {
        notices.append(
          "\(table.name): rows on this device do not satisfy \(stricter) yet, which the schema has now. The server refuses what breaks it; the table here gets it when no row does any more."
        )
      }
      if table.columns.contains(where: { Self.default(of: $0) != shape.column($0.name)?.defaultSQL }) {
        redefaulted.insert(table.name)
      }
      let made = stricter == nil ? table : lax
      guard parts(of: text, table) != Set(Self.ddl.parts(of: made, in: schema)) else { continue }
      let hadTriggers = try connection.integer(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE AND name LIKE 'salvor\\_%' ESCAPE '\\')",
        .text(table.name))
      let lost = try TableRebuild(connection, Self.ddl).run(made, in: schema) { $0.folded.hasPrefix("salvor_") }
      // One without its triggers before stays unproven.
      if hadTriggers == 1 { remade.insert(table.name) }
      notices += lost.map { "\(table.name) was made anew, without \($0), which names what is not there any more." }
    }
  }

  private static func `default`(of column: Column) -> String? {
    column.defaultValue.flatMap { $0.isNull ? nil : literal($0) }
  }

  /// What the table has of the schema's.
  private func parts(of text: TableText, _ table: Table) -> Set<String> {
    Set(text.parts.flatMap { apart($0, table) }).subtracting(ownParts[table.name] ?? [])
  }

  /// A column that was added later brings its foreign key with it.
  private func apart(_ part: String, _ table: Table) -> [String] {
    for reference in table.references {
      guard let clause = Self.ddl.referenceClause(reference, in: schema), part.hasSuffix(" " + clause),
        part.hasPrefix(quoted(reference.column) + " ")
      else { continue }
      return [String(part.dropLast(clause.count + 1)), "FOREIGN KEY (\(quoted(reference.column))) \(clause)"]
    }
    return [part]
  }

  /// The definition without what the table does not have yet.
  private func laxer(_ table: Table, _ shape: TableShape, _ text: TableText) -> Table {
    var lax = table
    for place in lax.columns.indices where !table.primaryKey.contains(lax.columns[place].name) {
      if shape.column(lax.columns[place].name)?.notNull == false { lax.columns[place].nullable = true }
    }
    // A partial one of the application's promises nothing of the other rows.
    let indexes = shape.uniqueIndexes.filter { $0.condition == nil }.map { Set($0.columns.map { $0.name ?? "" }) }
    lax.unique.removeAll { !indexes.contains(Set($0)) }
    lax.check.removeAll { !text.parts.contains("CHECK (\($0))") }
    lax.references.removeAll { reference in
      !shape.foreignKeys.contains { $0.columns == [reference.column] && $0.parent == reference.table }
    }
    return lax
  }

  // MARK: Stricter

  /// What of the definition some row breaks, beyond what the table has already. Nil: nothing.
  private func broken(_ table: Table, than lax: Table) throws -> String? {
    func finds(_ condition: String) throws -> Bool {
      try connection.integer("SELECT EXISTS (SELECT 1 FROM \(quoted(table.name)) x \(condition))") == 1
    }
    for (column, other) in zip(table.columns, lax.columns) where other.nullable && !column.nullable {
      if try finds("WHERE \(quoted(column.name)) IS NULL") { return "\(column.name) NOT NULL" }
    }
    for check in table.check where !lax.check.contains(check) {
      if try finds("WHERE NOT (\(check))") { return "CHECK (\(check))" }
    }
    for unique in table.unique where !lax.unique.contains(unique) {
      let there = unique.map { "\(quoted($0)) IS NOT NULL" }.joined(separator: " AND ")
      if try finds("WHERE \(there) GROUP BY \(quotedList(unique)) HAVING count(*) > 1") {
        return "UNIQUE (\(unique.joined(separator: ", ")))"
      }
    }
    for reference in table.references where !reference.soft && !lax.references.contains(reference) {
      guard let parent = schema.table(reference.table), parent.primaryKey.count == 1 else { continue }
      let column = "x.\(quoted(reference.column))"
      if try finds(
        "WHERE \(column) IS NOT NULL AND NOT EXISTS (SELECT 1 FROM \(quoted(parent.name)) p WHERE p.\(quoted(parent.primaryKey[0])) = \(column))"
      ) {
        return "the reference \(reference.column) to \(reference.table)"
      }
    }
    return nil
  }
}
