/// Draws SQL statements that an application or another program might run. They do not look at what is in the tables: keys
/// come from a small pool, so that devices meet on the same rows, and some keys are new ones.
struct StatementDrawing {
  /// A blob from this size on travels beside the payload.
  static let blobReferenceBytesMin = 1024

  let schema: DrawnSchema
  let swarm: Swarm
  /// Who writes: a device, or a program on the server. New keys of two writers never meet.
  let writer: String
  /// True on the server, where every table may be written.
  let isProgram: Bool
  let principals: [String]
  /// Of the step: no two writes of a history write the same note.
  let step: Int
  private var count = 0

  init(
    _ schema: DrawnSchema, _ swarm: Swarm, writer: String, isProgram: Bool, principals: [String], step: Int
  ) {
    (self.schema, self.swarm, self.writer) = (schema, swarm, writer)
    (self.isProgram, self.principals, self.step) = (isProgram, principals, step)
  }

  private mutating func note() -> String {
    count += 1
    return "'\(writer).\(step).\(count)'"
  }

  /// A transaction's statements.
  mutating func transaction(_ generator: inout SeededGenerator) -> [String] {
    var statements: [String] = []
    let tables = schema.tables.filter { isProgram ? $0.maintained != "client" : $0.maintained != "server" }
    guard !tables.isEmpty else { return [] }
    for _ in 0..<(1 + generator.below(4)) {
      guard let table = generator.pick(tables) else { continue }
      statements += statement(table, &generator)
    }
    return statements
  }

  /// Whole families of rows are written at once.
  private var hasFamilies: Bool { swarm.has(.partSyncs) || swarm.has(.circles) }

  private mutating func statement(_ table: DrawnTable, _ generator: inout SeededGenerator) -> [String] {
    enum Form {
      case insert, upsert, replace, update, updateMany, keyChange, delete, deleteMany, swap, savepoint, mark, parent,
        family
    }
    let form = generator.pick(weighted: [
      (30, Form.insert), (swarm.has(.upserts) ? 10 : 0, .upsert), (swarm.has(.replaces) ? 8 : 0, .replace),
      (30, .update), (swarm.has(.wholeTable) ? 6 : 0, .updateMany), (swarm.has(.keyChanges) ? 8 : 0, .keyChange),
      (12, .delete), (swarm.has(.wholeTable) ? 2 : 0, .deleteMany), (swarm.has(.swaps) ? 4 : 0, .swap),
      (swarm.has(.rollbacks) ? 4 : 0, .savepoint), (table.hasFlags && !isProgram ? 16 : 0, .mark),
      (hasFamilies && !table.references.isEmpty ? 14 : 0, .parent),
      (hasFamilies && !table.references.isEmpty ? 16 : 0, .family),
    ])
    let or = swarm.has(.replaces) ? generator.pick(["", "", "", " OR IGNORE", " OR REPLACE", " OR FAIL"]) ?? "" : ""
    switch form {
    case nil, .insert: return [insert("INSERT\(or)", table, &generator)]
    case .replace: return [insert("REPLACE", table, &generator)]
    case .upsert:
      let keys = table.keyColumns.joined(separator: ", ")
      return [
        insert("INSERT", table, &generator)
          + " ON CONFLICT (\(keys)) DO UPDATE SET note = excluded.note\(generator.chance(40) ? ", n = excluded.n" : "")"
      ]
    case .update:
      return ["UPDATE\(or) \(table.name) SET \(assignments(table, &generator)) WHERE \(row(table, &generator))"]
    case .updateMany:
      let condition = generator.chance(50) ? "" : " WHERE n > \(generator.below(9))"
      return ["UPDATE \(table.name) SET note = \(note())\(condition)"]
    case .keyChange:
      let column = table.keyColumns[generator.below(table.keyColumns.count)]
      let value = column == "line" ? "\(generator.below(3))" : key(table.keyKind, &generator)
      return ["UPDATE\(or) \(table.name) SET \(column) = \(value) WHERE \(row(table, &generator))"]
    case .delete: return ["DELETE FROM \(table.name) WHERE \(row(table, &generator))"]
    case .deleteMany:
      return ["DELETE FROM \(table.name)\(generator.chance(30) ? "" : " WHERE n > \(generator.below(9))")"]
    case .mark:
      // Set, mostly; taken back, also where it never was set.
      let mark = "\(DrawnTable.deletedFlag) = \(generator.chance(65) ? 1 : 0)"
      return ["UPDATE \(table.name) SET \(mark) WHERE \(row(table, &generator))"]
    case .family: return family(table, &generator).statements
    case .parent:
      // Of a row that is there: what becomes of it, and of what is below it, differs.
      guard let reference = generator.pick(table.references), let parent = schema.table(reference.table),
        isProgram || parent.maintained != "server"
      else { return [] }
      return [
        """
        DELETE FROM \(parent.name) WHERE id = (SELECT \(reference.column) FROM \(table.name) \
        WHERE \(reference.column) IS NOT NULL ORDER BY 1 LIMIT 1 OFFSET \(generator.below(3)))
        """
      ]
    case .swap:
      guard table.hasUnique else { return [] }
      // Two rows exchange their unique values: three updates, the row in the middle without one.
      let (a, b) = (generator.below(5), generator.below(5))
      return [
        "UPDATE \(table.name) SET u = NULL, note = \(note()) WHERE u = 'u\(a)'",
        "UPDATE \(table.name) SET u = 'u\(a)', note = \(note()) WHERE u = 'u\(b)'",
        "UPDATE \(table.name) SET u = 'u\(b)', note = \(note()) WHERE u IS NULL AND \(row(table, &generator))",
      ]
    case .savepoint:
      return ["SAVEPOINT a"] + statement(table, &generator)
        + [generator.chance(50) ? "ROLLBACK TO a" : "RELEASE a"]
    }
  }

  /// A row, and before it one that it references, and so on.
  private mutating func family(
    _ table: DrawnTable, _ generator: inout SeededGenerator
  ) -> (statements: [String], key: String) {
    let key = key(table.keyKind, &generator)
    guard isProgram || table.maintained != "server" else { return ([], key) }
    var (statements, fixed) = ([String](), ["id": key])
    let others = table.references.filter { isEarlier($0.table, than: table) }
    if let reference = generator.pick(others), let parent = schema.table(reference.table) {
      let above = family(parent, &generator)
      statements = above.statements
      fixed[reference.column] = above.key
    }
    statements.append(insert("INSERT OR IGNORE", table, &generator, fixed: fixed))
    // The circle is closed once both are there.
    for reference in others {
      guard let above = fixed[reference.column],
        let back = schema.table(reference.table)?.references.first(where: { $0.table == table.name }),
        generator.chance(60)
      else { continue }
      statements.append("UPDATE \(reference.table) SET \(back.column) = \(key) WHERE id = \(above)")
    }
    return (statements, key)
  }

  /// Also where both reference each other.
  private func isEarlier(_ name: String, than table: DrawnTable) -> Bool {
    func place(_ name: String) -> Int { schema.tables.firstIndex { $0.name == name } ?? 0 }
    return name != table.name && (!swarm.has(.circles) || place(name) < place(table.name))
  }

  /// - Parameter fixed: the values of some columns.
  private mutating func insert(
    _ verb: String, _ table: DrawnTable, _ generator: inout SeededGenerator, fixed: [String: String] = [:]
  ) -> String {
    let columns = table.columnList(schema).map(\.name).filter { name in
      // Columns that are left out take their default.
      !["n", "u", "extra"].contains(name) || generator.chance(70)
    }
    let count = fixed.isEmpty && generator.chance(20) ? 2 + generator.below(3) : 1
    var rows: [String] = []
    for _ in 0..<count {
      let values = columns.map { fixed[$0] ?? value($0, table, &generator) }
      rows.append("(\(values.joined(separator: ", ")))")
    }
    return "\(verb) INTO \(table.name) (\(columns.joined(separator: ", "))) VALUES \(rows.joined(separator: ", "))"
  }

  private mutating func assignments(_ table: DrawnTable, _ generator: inout SeededGenerator) -> String {
    let others = table.columnList(schema).map(\.name).filter { !table.keyColumns.contains($0) && $0 != "note" }
    var chosen = generator.chance(80) ? ["note"] : []
    chosen += others.filter { _ in generator.chance(25) }
    if chosen.isEmpty { chosen = ["note"] }
    return chosen.map { column in
      // Rows leave a scope by an update.
      "\(column) = \(column == "open" ? "\(generator.below(2))" : value(column, table, &generator))"
    }.joined(separator: ", ")
  }

  private func row(_ table: DrawnTable, _ generator: inout SeededGenerator) -> String {
    let id = "id = \(key(table.keyKind, &generator))"
    return table.keyKind == .composite && generator.chance(70) ? id + " AND line = \(generator.below(3))" : id
  }

  private mutating func value(_ column: String, _ table: DrawnTable, _ generator: inout SeededGenerator) -> String {
    if let reference = table.references.first(where: { $0.column == column }) {
      if reference.isNullable && generator.chance(30) { return "NULL" }
      let kind = schema.table(reference.table)?.keyKind ?? .text
      return key(kind, &generator)
    }
    switch column {
    case "id": return key(table.keyKind, &generator)
    case "line": return "\(generator.below(3))"
    case "note", "extra": return note()
    case "n": return "\(generator.below(generator.chance(5) ? 120 : 12))"
    case "u": return generator.chance(20) ? "NULL" : "'u\(generator.below(5))'"
    case "region":
      let regions = principals.compactMap { SimulatedAuthentication.regions[$0] }
      return "'\(generator.pick(generator.chance(85) ? regions[0] : regions.flatMap { $0 }) ?? "north")'"
    case "subject":
      return key(schema.tables.first(where: \.isJoined)?.keyKind ?? .text, &generator)
    case "photo":
      count += 1
      // Some of them travel beside the payload, and no two are the same.
      let size = generator.pick([3, 40, Self.blobReferenceBytesMin, 3 * Self.blobReferenceBytesMin]) ?? 3
      return generator.chance(20)
        ? "NULL"
        : "CAST(substr(replace(hex(zeroblob(\(size))), '00', '\(writer)-\(step)-\(count) '), 1, \(size)) AS BLOB)"
    case "owner":
      // Mostly the writer's own: others' rows are refused.
      return "'\(generator.chance(85) ? principals[0] : generator.pick(principals) ?? principals[0])'"
    case "open": return generator.chance(75) ? "1" : "0"
    default: return "NULL"
    }
  }

  private func key(_ kind: DrawnTable.KeyKind, _ generator: inout SeededGenerator) -> String {
    let isNew = generator.chance(15)
    let place = generator.below(7)
    switch kind {
    case .text, .composite: return isNew ? "'\(writer)\(generator.below(20))'" : "'k\(place)'"
    case .integer: return isNew ? "\(100 + generator.below(900))" : "\(1 + place)"
    case .blob: return isNew ? "x'00\(10 + generator.below(80))'" : "x'0\(place)'"
    }
  }
}
