import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Tables and columns that are added where there were such before. What the rows get in such a column says nothing: nobody
/// here knows what the server has.
struct ReturningColumns {
  struct Place: Hashable {
    var table: String
    var column: String
  }

  private let connection: SQLiteConnection
  /// Synchronized columns that are gone from their table: somebody migrated it without a word to Salvor (semantics 3).
  private(set) var missing: [Place] = []
  /// Columns that a schema brings back: an earlier one dropped them, or a server that was restored has an earlier one.
  private(set) var former: [Place] = []
  /// Tables that a schema brings back so.
  private(set) var tables: Set<String> = []

  /// Before anything is added.
  ///
  /// - Parameter delivered: the server's schema, delivered just now; nil: it is the one of before.
  init(_ additions: [SchemaComparison.Addition], delivered: Schema?, on connection: SQLiteConnection) throws {
    self.connection = connection
    guard !additions.isEmpty, try connection.tableShape("salvor_table") != nil else { return }
    let isOlder = try delivered.map { try $0.version <= connection.state(.schemaVersion)?.integer ?? 0 } ?? false
    for addition in additions {
      switch addition {
      case .column(let column, let table):
        let place = Place(table: table.name, column: column.name)
        if try isCaptured(place) {
          missing.append(place)
        } else if delivered != nil, try isOlder || wasDropped(place) {
          former.append(place)
        }
      case .table(let table):
        if delivered != nil, table.maintained != .client, try isOlder || wasDropped(table.name) {
          tables.insert(table.name)
        }
      }
    }
  }

  private func isCaptured(_ place: Place) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_column c JOIN salvor_table t ON t.id = c.t WHERE t.name = ?1 COLLATE NOCASE AND c.name = ?2 COLLATE NOCASE",
      .text(place.table), .text(place.column)) != nil
  }

  private func wasDropped(_ place: Place) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_column c JOIN salvor_retired_table t ON t.id = c.t WHERE t.name = ?1 COLLATE NOCASE AND c.name = ?2 COLLATE NOCASE",
      .text(place.table), .text(place.column)) != nil
  }

  private func wasDropped(_ table: String) throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_retired_table WHERE name = ?1 COLLATE NOCASE", .text(table)) != nil
  }

  // MARK: Columns with another name

  /// Where the application gave a column another name (`ALTER TABLE … RENAME COLUMN`), Salvor's triggers followed it, and
  /// nothing is lost: the column that was added has the values of that one. When the columns are there, before the triggers are
  /// made anew.
  ///
  /// - Returns: notices.
  mutating func takeRenamed(_ schema: Schema) throws -> [String] {
    guard !missing.isEmpty else { return [] }
    let known = try schema.synchronized.filter {
      try connection.integer("SELECT 1 FROM salvor_table WHERE name = ?1 COLLATE NOCASE", .text($0.name)) != nil
    }
    let catalog = try CaptureCatalog.found(known, on: connection)
    var notices: [String] = []
    for name in Set(missing.map(\.table)).sorted() {
      guard let table = catalog.table(name), let shape = try connection.tableShape(name),
        let names = try renames(table, shape)
      else { continue }
      for place in missing.filter({ $0.table == name }) {
        guard let now = names[place.column] else { continue }
        // NULL, too: the column that was added has its default.
        try connection.execute("UPDATE \(quoted(name)) SET \(quoted(place.column)) = \(quoted(now))")
        missing.removeAll { $0 == place }
        notices.append(
          "\(name).\(place.column) is called \(now) here now, which the schema does not know. The column \(place.column) was made again, with its values; what is written to \(now) is not synchronized. Give the server a schema with renamedFrom: what was written to \(now) goes up then."
        )
      }
    }
    return notices
  }

  /// What the triggers that are there call columns that are gone; nil: they differ in something else, or are not all there.
  private func renames(_ table: CapturedTable, _ shape: TableShape) throws -> [String: String]? {
    let gone = Set(missing.filter { $0.table == table.name }.map(\.column))
    var names: [String: String] = [:]
    for trigger in CaptureTriggers(table).triggers {
      let sql = try connection.scalar(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?1", .text(trigger.name))
      guard let found = sql?.string else { return nil }
      let expected = trigger.sql.split(separator: "\"", omittingEmptySubsequences: false)
      let actual = found.split(separator: "\"", omittingEmptySubsequences: false)
      guard expected.count == actual.count else { return nil }
      for (old, new) in zip(expected, actual) where old != new {
        let (old, new) = (String(old), String(new))
        guard gone.contains(old), shape.column(new) != nil, names[old] ?? new == new else { return nil }
        names[old] = new
      }
    }
    return names
  }

  // MARK: Columns whose values nobody here knows

  /// When capture is in place.
  ///
  /// - Returns: notices.
  func forgetValues(_ context: StoreContext) throws -> [String] {
    let unproven = UnprovenTables(context)
    var notices: [String] = []
    for place in former + missing {
      guard let table = context.catalog.table(place.table),
        let slot = table.columns.firstIndex(where: { $0.name.folded == place.column.folded })
      else { continue }
      let count = try unproven.forgetValues(of: slot, in: table)
      guard missing.contains(place) else { continue }
      let lost = count == 0 ? "" : " What \(count) waiting changes had written to it is gone."
      notices.append(
        "\(place.table).\(place.column) was not there any more, and the schema declares no rule for it (renamedFrom, dropped). It was made again, and takes the server's values with the next sync; nothing of it was sent.\(lost) To rename or drop it, give the server the schema that says so first."
      )
    }
    try unproven.mark(tables.sorted(), servers: tables)
    return notices
  }
}
