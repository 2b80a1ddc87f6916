import SalvorModel
import SalvorStorage

/// The text of a `CREATE TABLE`, taken apart into what it lists: columns and constraints.
public struct TableText: Sendable, Hashable {
  /// Without blanks around them.
  public var parts: [String]

  /// Nil: it is no plain list in parentheses (`AS SELECT`, `WITHOUT ROWID`, `STRICT`).
  public init?(_ sql: String) {
    let bytes = Array(sql.utf8)
    guard let open = bytes.firstIndex(of: UInt8(ascii: "(")) else { return nil }
    var parts: [String] = []
    var depth = 1
    var start = open + 1
    var place = start
    while place < bytes.count, depth > 0 {
      switch bytes[place] {
      case UInt8(ascii: "\""), UInt8(ascii: "'"), UInt8(ascii: "`"):
        // A doubled quote reads as two quoted pieces side by side, which ends at the same place.
        let quote = bytes[place]
        repeat { place += 1 } while place < bytes.count && bytes[place] != quote
      case UInt8(ascii: "["):
        repeat { place += 1 } while place < bytes.count && bytes[place] != UInt8(ascii: "]")
      case UInt8(ascii: "-") where place + 1 < bytes.count && bytes[place + 1] == UInt8(ascii: "-"),
        UInt8(ascii: "/") where place + 1 < bytes.count && bytes[place + 1] == UInt8(ascii: "*"):
        // A comment is somebody's own hand.
        return nil
      case UInt8(ascii: "("): depth += 1
      case UInt8(ascii: ")"): depth -= 1
      case UInt8(ascii: ",") where depth == 1:
        parts.append(Self.trimmed(bytes[start..<place]))
        start = place + 1
      default: break
      }
      place += 1
    }
    guard depth == 0, Self.trimmed(bytes[place...]).isEmpty else { return nil }
    parts.append(Self.trimmed(bytes[start..<(place - 1)]))
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
  public func hasWritten(_ text: TableText, _ shape: TableShape, checks: [String]) -> Bool {
    var known = Set(checks.map { "CHECK (\($0))" })
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
      known.formUnion([definition, definition + " PRIMARY KEY"])
      for clause in clauses where clause.columns == [column.name] { known.insert("\(definition) \(clause.text)") }
    }
    return text.parts.allSatisfy(known.contains)
  }
}
