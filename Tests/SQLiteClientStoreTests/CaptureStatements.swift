import SalvorStorage

/// The statements of a history.
extension CaptureHistory {
  mutating func statement() -> String {
    let table = random.pick(world.tables)
    switch random.below(10) {
    case 0...4: return insert(table)
    case 5...7: return update(table)
    case 8: return "DELETE FROM \(quoted(table.name)) WHERE \(condition(table))"
    default: return insertSelect(table)
    }
  }

  private mutating func insert(_ table: CaptureWorld.FuzzTable) -> String {
    let columns = someColumns(table, all: random.oneIn(2))
    let rows = (0...random.below(3)).map { _ in
      "(" + columns.map { random.pick($0.pool) }.joined(separator: ", ") + ")"
    }
    let upsert = random.oneIn(3) && !table.isPlain
    return
      "INSERT\(clause(table)) INTO \(quoted(table.name)) (\(columns.map { quoted($0.name) }.joined(separator: ", "))) "
      + "VALUES \(rows.joined(separator: ", "))" + (upsert ? onConflict(table) : "")
  }

  private mutating func onConflict(_ table: CaptureWorld.FuzzTable) -> String {
    let target = table.targets.isEmpty ? "" : " " + random.pick(table.targets)
    if random.oneIn(3) { return " ON CONFLICT\(random.oneIn(2) ? "" : target) DO NOTHING" }
    let column = random.pick(table.columns)
    let value = random.oneIn(2) ? "excluded.\(quoted(column.name))" : random.pick(column.pool)
    return " ON CONFLICT\(target) DO UPDATE SET \(quoted(column.name)) = \(value)"
  }

  private mutating func insertSelect(_ table: CaptureWorld.FuzzTable) -> String {
    let columns = table.columns
    let values = columns.map { random.oneIn(3) ? random.pick($0.pool) : quoted($0.name) }
    return
      "INSERT\(clause(table)) INTO \(quoted(table.name)) (\(columns.map { quoted($0.name) }.joined(separator: ", "))) "
      + "SELECT \(values.joined(separator: ", ")) FROM \(quoted(table.name)) WHERE \(condition(table))"
  }

  private mutating func update(_ table: CaptureWorld.FuzzTable) -> String {
    var columns = someColumns(table, all: false)
    if !random.oneIn(4) { columns = columns.filter { !table.key.contains($0.name) } }
    if columns.isEmpty { columns = [random.pick(table.columns)] }
    var sets = columns.map { column -> String in
      let value = random.oneIn(4) ? quoted(random.pick(table.columns).name) : random.pick(column.pool)
      return "\(quoted(column.name)) = \(value)"
    }
    if table.name == "node", random.oneIn(5) { sets = ["rowid = \(random.pick(["1", "2", "3", "4"]))"] }
    var clause = clause(table)
    if table.updateMayRemoveItself, clause == " OR REPLACE" { clause = " OR IGNORE" }
    return "UPDATE\(clause) \(quoted(table.name)) SET \(sets.joined(separator: ", ")) WHERE \(condition(table))"
  }

  /// Without REPLACE a random write fails too often to be of use.
  private mutating func clause(_ table: CaptureWorld.FuzzTable) -> String {
    if table.isPlain { return "" }
    return random.pick([
      "", "", " OR REPLACE", " OR REPLACE", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ABORT", " OR ROLLBACK",
    ])
  }

  private mutating func condition(_ table: CaptureWorld.FuzzTable) -> String {
    if random.oneIn(5) { return "1" }
    let column = random.pick(table.columns.count > 20 ? Array(table.columns.prefix(4)) : table.columns)
    return "\(quoted(column.name)) IS \(random.pick(column.pool))"
  }

  /// The key's columns nearly always, and some of the others.
  private mutating func someColumns(
    _ table: CaptureWorld.FuzzTable, all: Bool
  ) -> [(name: String, pool: [String])] {
    var chosen: [(name: String, pool: [String])] = []
    for column in table.columns {
      if table.columns.count > 20 {
        if table.key.contains(column.name) || random.oneIn(20) || column.name == "c70" { chosen.append(column) }
      } else if all || table.key.contains(column.name) ? !random.oneIn(12) : random.oneIn(2) {
        chosen.append(column)
      }
    }
    return chosen.isEmpty ? [table.columns[0]] : chosen
  }
}
