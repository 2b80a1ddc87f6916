import SalvorModel
import SalvorStorage

extension Catalog {
  /// So many values are looked at: each is a question to the database, where the type alone does not tell.
  private static let unfitMax = 100

  /// What scopes ask for that no row can have: of the rows' own columns.
  ///
  /// - Parameter scopes: by group.
  func unfitValues(of scopes: [String: ReadScope], _ connection: any StoreConnection) throws -> [UnfitValue] {
    var asked: [UnfitValue] = []
    for (group, scope) in scopes {
      let reader = ScopeReader(schema, scope)
      for place in members[group] ?? [] { note(tables[place], reader, &asked) }
    }
    var left = Self.unfitMax
    return try asked.withoutRepetitions.filter { value in
      if written(value.value, in: value.table, value.column).isNull { return true }
      let slot = slot(of: value.table, value.column)
      guard slot != "?", left > 0 else { return false }
      left -= 1
      return try connection.integer("SELECT \(slot) IS NULL", value.value) == 1
    }.sorted { ($0.table, $0.column, "\($0.value)") < ($1.table, $1.column, "\($1.value)") }
  }

  private func note(_ table: ServerTable, _ reader: ScopeReader, _ asked: inout [UnfitValue]) {
    for way in table.alternatives {
      let choice = reader.choice(of: table.name, by: way)
      for (place, condition) in way.conditions.enumerated() where !condition.source.isFixed {
        guard let column = table.place(condition.column), !table.types[column].isEmpty else { continue }
        func add(_ values: [Value], isSubscribed: Bool) {
          asked += values.filter { !$0.isNull }.map {
            UnfitValue(
              table: table.name, column: condition.column, type: table.types[column], value: $0,
              isSubscribed: isSubscribed)
          }
        }
        add(reader.allowedValues(condition.source) ?? [], isSubscribed: false)
        let chosen = choice?.options.flatMap(\.self).filter { $0.place == place }.map(\.value) ?? []
        add(chosen, isSubscribed: true)
      }
    }
  }
}
