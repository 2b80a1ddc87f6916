import SQLiteSupport
import SalvorStorage

/// The expressions that the triggers are put together from.
extension CapturedTable {
  /// Joins terms as a balanced tree: a chain of hundreds would be deeper than SQLite allows an expression to be.
  static func balanced(_ terms: [String], _ operation: String) -> String {
    if terms.count <= 1 { return terms.first ?? "0" }
    let middle = terms.count / 2
    let left = balanced(Array(terms[..<middle]), operation)
    let right = balanced(Array(terms[middle...]), operation)
    return "(\(left) \(operation) \(right))"
  }

  /// Whether the values differ in storage class or bytes, whatever the column's collation (semantics 3, *changed*).
  /// Typed columns give one storage class for equal numbers, so that only untyped ones need their types compared.
  func differs(_ slot: Int, _ a: String, _ b: String) -> String {
    let column = columns[slot]
    let bytes = "\(a) IS NOT \(b) COLLATE BINARY"
    return column.isUntyped ? "(\(bytes) OR typeof(\(a)) <> typeof(\(b)))" : "\(bytes)"
  }

  func same(_ slot: Int, _ a: String, _ b: String) -> String {
    let bytes = "\(a) IS \(b) COLLATE BINARY"
    return columns[slot].isUntyped ? "(\(bytes) AND typeof(\(a)) = typeof(\(b)))" : bytes
  }

  /// Whether the row has a key; empty where it always has.
  func hasKey(_ value: (Int) -> String) -> String {
    nullableKeySlots.map { "\(value($0)) IS NOT NULL" }.joined(separator: " AND ")
  }

  /// ` AND …`, empty where the row always has a key.
  func andHasKey(_ value: (Int) -> String) -> String { nullableKeySlots.isEmpty ? "" : " AND " + hasKey(value) }

  /// The same key, byte for byte. `a` and `b` make an SQL expression from a slot.
  func sameKey(_ a: (Int) -> String, _ b: (Int) -> String) -> String {
    (0..<keyCount).map { same($0, a($0), b($0)) }.joined(separator: " AND ")
  }

  func anyDiffers(_ slots: some Sequence<Int>, _ a: (Int) -> String, _ b: (Int) -> String) -> String {
    Self.balanced(slots.map { differs($0, a($0), b($0)) }, "OR")
  }

  func old(_ slot: Int) -> String { "OLD." + quoted(columns[slot].name) }
  func new(_ slot: Int) -> String { "NEW." + quoted(columns[slot].name) }
  /// A row kept aside in a SELECT, under the alias `p`; `keptColumn` in a DELETE or UPDATE, which know no alias inside a
  /// trigger.
  func pendingColumn(_ slot: Int) -> String { "p.v\(slot)" }
  func keptColumn(_ slot: Int) -> String { "\(pending).v\(slot)" }
  func tableColumn(_ slot: Int) -> String { "x." + quoted(columns[slot].name) }

  /// A flag column of a row is set: it has anything but NULL and zero.
  static func isSet(_ flag: String, _ alias: String) -> String { "ifnull(\(alias).\(quoted(flag)) <> 0, 0)" }

  /// ` AND …`: the row has no deleted mark; empty where the table has no such column.
  func andUnmarked(_ alias: String = "x") -> String {
    deletedFlag.map { " AND NOT \(Self.isSet($0, alias))" } ?? ""
  }

  /// The row of the table (alias `x`) that has exactly this key. The first term of each column is for the index; the
  /// second tells apart what its collation holds equal.
  ///
  /// A row with a deleted mark is not there, since a request deletes it.
  ///
  /// - Parameter markedToo: the row in the table, marked or not.
  func rowAt(markedToo: Bool = false, _ key: (Int) -> String) -> String {
    let terms = (0..<keyCount).map { slot in
      let collation = keyCollations[slot]
      let lookup = "\(tableColumn(slot)) = \(key(slot))"
      if collation == "BINARY", !columns[slot].isUntyped { return lookup }
      return "\(tableColumn(slot)) COLLATE \(quoted(collation)) = \(key(slot)) AND "
        + same(slot, tableColumn(slot), key(slot))
    }
    return terms.joined(separator: " AND ") + (markedToo ? "" : andUnmarked())
  }

  /// The primary key's index holds rows equal whose keys are other bytes.
  var hasCollatedKey: Bool { !hasRowidKey && keyCollations.contains { $0 != "BINARY" } }

  /// The row of the table (alias `x`) that the primary key's index takes for one with this key, and whose key is another one.
  func otherRowAt(_ key: (Int) -> String) -> String {
    let equal = (0..<keyCount).map { "\(tableColumn($0)) COLLATE \(quoted(keyCollations[$0])) = \(key($0))" }
    let sameBytes = (0..<keyCount).map { same($0, tableColumn($0), key($0)) }
    return equal.joined(separator: " AND ") + " AND NOT (\(sameBytes.joined(separator: " AND ")))"
  }

  /// The rows of the table (alias `x`) that the primary key's index holds equal to the new row.
  var keyConflict: String {
    (0..<keyCount).map { slot in
      hasRowidKey
        ? "\(tableColumn(slot)) = \(new(slot))"
        : "\(tableColumn(slot)) COLLATE \(quoted(keyCollations[slot])) = \(new(slot))"
    }.joined(separator: " AND ") + andUnmarked()
  }

  /// The rows of the table (alias `x`) that a unique index holds equal to the new row.
  func uniqueConflict(_ unique: Unique) -> String {
    let parts = unique.parts.map {
      "x.\(quoted($0.name)) COLLATE \(quoted($0.collation)) = NEW.\(quoted($0.name))"
    }
    // The condition names its columns bare: they are x's, the only table in sight.
    return (parts + (unique.condition.map { ["(\($0))"] } ?? [])).joined(separator: " AND ") + andUnmarked()
  }

  var conflicts: [String] { [keyConflict] + uniques.map(uniqueConflict) }

  /// A row kept aside (alias `p`) that stood in the new row's way. A unique index on a generated column cannot be asked,
  /// since those have no slot; that the row is gone says enough then.
  var pendingConflict: String {
    let key = (0..<keyCount).map { "\(pendingColumn($0)) = \(new($0)) COLLATE \(quoted(keyCollations[$0]))" }
    let others = uniques.map { unique in
      unique.parts.map { part -> String in
        guard let slot = columns.firstIndex(where: { $0.name.folded == part.name.folded }) else {
          return "1"
        }
        return "\(pendingColumn(slot)) = \(new(slot)) COLLATE \(quoted(part.collation))"
      }.joined(separator: " AND ")
    }
    return "(" + ([key.joined(separator: " AND ")] + others).map { "(\($0))" }.joined(separator: " OR ") + ")"
  }

  /// The row kept aside is no longer in the table.
  func isGone(_ kept: (Int) -> String) -> String {
    "NOT EXISTS (SELECT 1 FROM \(quoted(name)) x WHERE \(rowAt(markedToo: true, kept)))"
  }

  /// Of several copies of one row kept aside (alias `p`), the newest.
  var pendingIsNewest: String {
    "p.id = (SELECT max(q.id) FROM \(pending) q WHERE \(sameKey({ "q.v\($0)" }, pendingColumn)))"
  }

  var keySlots: Range<Int> { 0..<keyCount }
  var otherSlots: Range<Int> { keyCount..<columns.count }
  func logColumns(_ slots: some Sequence<Int>) -> String { slots.map { "v\($0)" }.joined(separator: ", ") }
}
