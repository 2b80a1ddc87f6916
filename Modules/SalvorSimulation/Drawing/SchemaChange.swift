/// What a later version of the server's schema has otherwise.
public enum SchemaChange: Sendable, Hashable {
  /// A column more, as it stands in the schema: `text?`, `integer = 3`.
  case addColumn(table: Int, declaration: String)
  /// The column that came last is gone.
  case dropColumn(table: Int)
  /// A column has another name.
  case renameColumn(table: Int, column: String)
  /// A table has another name.
  case renameTable(table: Int)
  /// The table that waits for it is there.
  case addTable
  /// A table is gone.
  case dropTable(table: Int)

  static func draw(_ generator: inout SeededGenerator, tables: Int) -> SchemaChange {
    let table = generator.below(tables)
    return switch generator.below(10) {
    case 0, 1:
      .addColumn(table: table, declaration: generator.pick(["text?", "integer = 3", "text = '-'"]) ?? "text?")
    case 2: .dropColumn(table: table)
    case 3, 4: .renameColumn(table: table, column: generator.chance(50) ? "note" : "n")
    case 5, 6: .renameTable(table: table)
    case 7: .addTable
    default: generator.chance(40) ? .dropTable(table: table) : .addTable
    }
  }
}

extension DrawnSchema {
  /// The next version; nil: it would be the same one.
  ///
  /// - Parameter number: no two changes of a history have the same one. It is in new names.
  func changed(_ change: SchemaChange, number: Int) -> DrawnSchema? {
    var next = self
    next.version += 1
    func canChange(_ place: Int) -> Bool {
      tables[place].presence == .there && tables[place].maintained != "client" && tables[place].memberType == nil
    }
    switch change {
    case .addColumn(let place, let declaration):
      guard canChange(place), tables[place].extras.count < 2 else { return nil }
      next.tables[place].extras.append(.init(name: "extra\(number)", declaration: declaration))
    case .dropColumn(let first):
      // The first table from there on that has one.
      let places = tables.indices.map { (first + $0) % tables.count }
      guard let place = places.first(where: { canChange($0) && !tables[$0].extras.isEmpty }) else { return nil }
      next.tables[place].droppedColumns.append(next.tables[place].extras.removeLast().name)
    case .renameColumn(let place, let column):
      guard canChange(place) else { return nil }
      next.tables[place].laterColumnNames[column, default: []].append("\(column)_\(number)")
    case .renameTable(let place):
      guard canChange(place) else { return nil }
      next.tables[place].laterNames.append("\(tables[place].name)_\(number)")
    case .addTable:
      guard let place = tables.firstIndex(where: { $0.presence == .later }),
        tables[place].references.allSatisfy({ table($0.table)?.presence == .there })
      else { return nil }
      next.tables[place].presence = .there
    case .dropTable(let place):
      let name = tables[place].name
      let others = present.filter { $0.name != name }
      guard canChange(place), !tables[place].isJoined, others.contains(where: { $0.maintained == "dual" }),
        !others.contains(where: { $0.references.contains { $0.table == name } })
      else { return nil }
      next.tables[place].presence = .dropped
    }
    return next
  }
}
