import SalvorModel
import SalvorStorage

/// The text of a `CREATE TABLE`, taken apart into what it lists: columns and constraints.
public struct TableText: Sendable, Hashable {
  /// Without blanks around them.
  public var parts: [String]

  /// Nil: it is no plain list in parentheses (`AS SELECT`, `WITHOUT ROWID`, `STRICT`).
  public init?(_ sql: String) {
    var scan = SQLScan(sql)
    var parts: [String] = []
    var depth = 0
    var start = 0
    while let piece = scan.next() {
      switch piece {
      case .bare(UInt8(ascii: "(")):
        depth += 1
        if depth == 1 { start = scan.end }
      case .bare(UInt8(ascii: ",")) where depth == 1:
        parts.append(Self.trimmed(scan.bytes[start..<scan.start]))
        start = scan.end
      case .bare(UInt8(ascii: ")")):
        depth -= 1
        guard depth == 0 else { continue }
        parts.append(Self.trimmed(scan.bytes[start..<scan.start]))
        guard Self.trimmed(scan.bytes[scan.end...]).isEmpty else { return nil }
      // A comment is somebody's own hand.
      case .comment, .quotation(isClosed: false): return nil
      default: break
      }
    }
    guard depth == 0, !parts.isEmpty else { return nil }
    self.parts = parts
  }

  private static func trimmed(_ bytes: ArraySlice<UInt8>) -> String {
    func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0D).contains(byte) }
    let front = bytes.drop(while: isBlank)
    guard let last = front.lastIndex(where: { !isBlank($0) }) else { return "" }
    return String(decoding: front[...last], as: UTF8.self)
  }
}

extension TableDDL {
  /// Whether a table has nothing but what this writes: nobody has given it a constraint, a collation or a type of their own.
  ///
  /// - Parameters:
  ///   - text: the table's, as the database has it.
  ///   - checks: those that this may have written.
  ///   - others: what the table may have besides.
  public func hasWritten(
    _ text: TableText, _ shape: TableShape, checks: [String], besides others: Set<String>
  ) -> Bool {
    var known = others.union(checks.map { "CHECK (\($0))" })
    known.insert("PRIMARY KEY (\(quotedList(shape.primaryKey)))")
    for index in shape.uniqueIndexes { known.insert("UNIQUE (\(quotedList(index.columns.compactMap(\.name))))") }
    let clauses = shape.foreignKeys.map { key -> (columns: [String], text: String) in
      let action = key.onDelete == "NO ACTION" ? "" : " ON DELETE \(key.onDelete)"
      return (key.columns, "REFERENCES \(quoted(key.parent)) (\(quotedList(key.parentColumns)))\(action)")
    }
    for clause in clauses { known.insert("FOREIGN KEY (\(quotedList(clause.columns))) \(clause.text)") }
    for column in shape.columns {
      var definition = "\(quoted(column.name)) \(column.declaredType)"
      if column.notNull { definition += " NOT NULL" }
      if let value = column.defaultSQL { definition += " DEFAULT \(value)" }
      known.insert(definition)
      if column.declaredType == "INTEGER" { known.insert(definition + " PRIMARY KEY") }
      for clause in clauses where clause.columns == [column.name] { known.insert("\(definition) \(clause.text)") }
    }
    return text.parts.allSatisfy(known.contains)
  }
}
