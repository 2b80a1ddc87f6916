import SalvorModel

/// What the tables and columns of a history are called in one database: versions of the schema rename them, and a file may be of any
/// version.
struct SQLNames {
  struct Table {
    var name: String
    /// By their names in the simulation.
    var columns: [String: String]
    /// Columns of later versions of the schema, with their names in SQL.
    var extras: [DrawnTable.Extra]
  }

  private(set) var tables: [String: Table] = [:]
  private let every: [String: Set<String>]

  /// - Parameter schema: the newest one. It knows each name that there ever was.
  init(_ database: any SimulatedDatabase, _ schema: DrawnSchema) throws {
    var there: [String: Set<String>] = [:]
    let query = """
      SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
      WHERE t.type = 'table' AND t.name NOT LIKE 'salvor%'
      """
    for row in try database.rows(query) { there[row[0].description, default: []].insert(row[1].description) }
    every = Dictionary(
      uniqueKeysWithValues: schema.tables.map { ($0.name, Set($0.columnList(schema).map(\.name))) })
    for table in schema.tables {
      guard let name = table.everyName.first(where: { there[$0] != nil }), let columns = there[name] else { continue }
      let pairs = table.columnList(schema).compactMap { column in
        table.everyName(of: column.name).first(where: columns.contains).map { (column.name, $0) }
      }
      tables[table.name] = Table(
        name: name, columns: Dictionary(uniqueKeysWithValues: pairs),
        extras: table.extras.filter { columns.contains($0.name) })
    }
  }

  /// A statement that was drawn with the names of the simulation, as this database takes it; nil: it lacks a table or column of the statement.
  ///
  /// An update of a table with a column of a later version writes that, too.
  func adapted(_ sql: String) -> String? {
    let words = Self.words(sql)
    guard let main = words.first(where: { every[String(sql[$0])] != nil }).map({ String(sql[$0]) }) else { return sql }
    guard let table = tables[main], let columns = every[main] else { return nil }
    var adapted = ""
    var place = sql.startIndex
    for range in words {
      let word = String(sql[range])
      adapted += sql[place..<range.lowerBound]
      if every[word] != nil {
        guard let other = tables[word] else { return nil }
        adapted += other.name
      } else if columns.contains(word) {
        guard let name = table.columns[word] else { return nil }
        adapted += name
      } else {
        adapted += word
      }
      place = range.upperBound
    }
    adapted += sql[place...]
    guard sql.hasPrefix("UPDATE"), let extra = table.extras.last else { return adapted }
    let value = extra.declaration.hasPrefix("integer") ? "\(sql.utf8.count)" : "'x\(sql.utf8.count)'"
    return adapted.replacing(" SET ", with: " SET \(extra.name) = \(value), ", maxReplacements: 1)
  }

  /// The words of a statement outside of quotes.
  private static func words(_ sql: String) -> [Range<String.Index>] {
    var found: [Range<String.Index>] = []
    var isQuoted = false
    var start: String.Index?
    for place in sql.indices {
      let character = sql[place]
      let isPart = !isQuoted && (character.isLetter || character.isNumber || character == "_")
      if isPart {
        if start == nil { start = place }
      } else if let begun = start {
        found.append(begun..<place)
        start = nil
      }
      if character == "'" { isQuoted.toggle() }
    }
    if let start { found.append(start..<sql.endIndex) }
    return found
  }
}
