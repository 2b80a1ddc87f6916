import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

/// The triggers that write the change log, in plain SQL, so that the writes of any program are seen.
///
/// REPLACE removes rows without firing delete triggers. So a row that an insert or update conflicts with is copied to the
/// table's pending rows *before* the statement and looked at *after* it: where it is gone, it was replaced. An UPSERT or
/// OR IGNORE leaves a pending row behind; it makes later inserts a little slower until the store clears it.
struct ChangeTriggers {
  let table: ServerTable
  let shape: TableShape

  private var t: Int64 { table.number }
  private var keys: [String] { table.table.primaryKey }

  /// Names and statements, in the order in which they are to be made.
  var all: [(name: String, sql: String)] {
    [
      trigger("bi", "BEFORE INSERT", when: conflicts(excludingOld: false), keepConflicts(excludingOld: false)),
      trigger("ap", "AFTER INSERT", when: hasPending, afterReplacingInsert),
      trigger("ai", "AFTER INSERT", when: "NOT \(hasPending)", [log(LogOperation.insert, "NEW", old: nil)]),
      trigger(
        "bu", "BEFORE UPDATE OF \(uniqueNames)", when: "(\(uniqueChanges)) AND (\(conflicts(excludingOld: true)))",
        keepConflicts(excludingOld: true)),
      trigger("ar", "AFTER UPDATE OF \(uniqueNames)", when: hasPending, afterReplacingUpdate),
      trigger(
        "au", "AFTER UPDATE OF \(quotedList(table.columns.map(\.name)))",
        when: "\(sameKey("OLD", "NEW")) AND \(balanced(table.columns.indices.map { differs("OLD", "NEW", $0) }))",
        [log("\(moveOrUpdate("OLD", "NEW"))", "OLD", old: "OLD", changed: mask("OLD", "NEW"))]),
      trigger(
        "ak", "AFTER UPDATE OF \(keyNames)", when: "NOT (\(sameKey("OLD", "NEW")))",
        [log(LogOperation.delete, "OLD", old: "OLD"), log(LogOperation.insert, "NEW", old: nil), dropOld]),
      trigger("ad", "AFTER DELETE", when: nil, [log(LogOperation.delete, "OLD", old: "OLD"), dropOld]),
    ]
  }

  private func trigger(_ suffix: String, _ event: String, when: String?, _ body: [String]) -> (String, String) {
    let name = "salvor_\(t)_\(suffix)"
    let condition = when.map { "\nWHEN \($0)" } ?? ""
    return (
      name,
      "CREATE TRIGGER \(name) \(event) ON \(table.sql)\(condition)\nBEGIN\n  \(body.joined(separator: ";\n  "));\nEND"
    )
  }

  // MARK: Entries

  private func log(_ operation: Int64, _ row: String, old: String?) -> String { log("\(operation)", row, old: old) }

  /// - Parameter changed: the `ColumnMask` of what was changed; nil: every column.
  private func log(_ operation: String, _ row: String, old: String?, changed: String? = nil) -> String {
    let values =
      keys.map { "\(row).\(quoted($0))" } + (old.map { old in table.relevant.map { "\(old).\(quoted($0))" } } ?? [])
    let (name, mask) = changed.map { ("m, ", "\($0), ") } ?? ("", "")
    return
      "INSERT INTO salvor_change (t, op, \(name)\(slots(values.count))) VALUES (\(t), \(operation), \(mask)\(values.joined(separator: ", ")))"
  }

  /// Which columns differ, as a `ColumnMask`.
  private func mask(_ a: String, _ b: String) -> String {
    balanced(table.columns.indices.map { "((\(differs(a, b, $0))) << \(table.bits[$0]))" }, by: "|")
  }

  private func slots(_ count: Int) -> String { (0..<count).map { "v\($0)" }.joined(separator: ", ") }

  private func moveOrUpdate(_ a: String, _ b: String) -> String {
    let moved = table.relevant.compactMap(table.place).map { differs(a, b, $0) }
    return moved.isEmpty
      ? "\(LogOperation.update)"
      : "CASE WHEN \(balanced(moved)) THEN \(LogOperation.move) ELSE \(LogOperation.update) END"
  }

  // MARK: Comparing

  /// Another storage class or other bytes, whatever the column's collation.
  private func differs(_ a: String, _ b: String, _ place: Int) -> String {
    let name = quoted(table.columns[place].name)
    let left = a == "p" ? "p.c\(place)" : "\(a).\(name)"
    let right = "\(b).\(name)"
    let byValue = "\(left) IS NOT \(right) COLLATE BINARY"
    // Only a column without affinity can hold 1 and 1.0.
    let affinity = shape.column(table.columns[place].name)?.affinity ?? .blob
    return affinity == .blob ? "(\(byValue) OR typeof(\(left)) <> typeof(\(right)))" : byValue
  }

  private func sameKey(_ a: String, _ b: String) -> String {
    keys.map { "\(a).\(quoted($0)) IS \(b).\(quoted($0)) COLLATE BINARY" }.joined(separator: " AND ")
  }

  private func pendingIs(_ row: String, alias: String) -> String {
    zip(keys, table.keyPlaces).map { "\(alias).c\($1) IS \(row).\(quoted($0)) COLLATE BINARY" }.joined(
      separator: " AND ")
  }

  /// The pending row `alias` is still in the table.
  private func stillThere(_ alias: String) -> String {
    let matches = zip(keys, table.keyPlaces).map {
      "x.\(quoted($0)) = \(alias).c\($1) AND x.\(quoted($0)) IS \(alias).c\($1) COLLATE BINARY"
    }
    return "EXISTS (SELECT 1 FROM \(table.sql) x WHERE \(matches.joined(separator: " AND ")))"
  }

  private var hasPending: String { "EXISTS (SELECT 1 FROM \(table.pending))" }

  // MARK: REPLACE

  /// The columns of each unique index, the key first, with the collation the index compares them by.
  private var uniques: [[(name: String, collation: String)]] {
    let others = shape.uniqueIndexes.filter { !$0.isPrimaryKey }
    let key = shape.uniqueIndexes.first(where: \.isPrimaryKey)
    let keyColumns = key.map { $0.columns.map { ($0.name ?? "", $0.collation) } } ?? keys.map { ($0, "BINARY") }
    return [keyColumns]
      + others.map { $0.columns.compactMap { column in column.name.map { ($0, column.collation) } } }
      .filter { !$0.isEmpty }
  }

  private var keyNames: String { quotedList(keys) + ", rowid, oid, _rowid_" }

  private var uniqueNames: String {
    var names = keys
    for unique in uniques { for column in unique where !names.contains(column.name) { names.append(column.name) } }
    return quotedList(names) + ", rowid, oid, _rowid_"
  }

  private var uniqueChanges: String {
    var seen: Set<String> = []
    let names = (keys + uniques.flatMap { $0.map(\.name) }).filter { seen.insert($0).inserted }
    return balanced(names.map { "OLD.\(quoted($0)) IS NOT NEW.\(quoted($0)) COLLATE BINARY" })
  }

  private func conflicting(_ unique: [(name: String, collation: String)], excludingOld: Bool) -> String {
    let equal = unique.map { "x.\(quoted($0.name)) = NEW.\(quoted($0.name)) COLLATE \(quoted($0.collation))" }
    let other = excludingOld ? " AND NOT (\(sameKey("x", "OLD")))" : ""
    return equal.joined(separator: " AND ") + other
  }

  private func conflicts(excludingOld: Bool) -> String {
    uniques.map { "EXISTS (SELECT 1 FROM \(table.sql) x WHERE \(conflicting($0, excludingOld: excludingOld)))" }
      .joined(separator: " OR ")
  }

  private func keepConflicts(excludingOld: Bool) -> [String] {
    let targets = table.columns.indices.map { "c\($0)" }.joined(separator: ", ")
    let copies = uniques.map {
      "INSERT INTO \(table.pending) (\(targets)) SELECT \(table.columnList("x")) FROM \(table.sql) x "
        + "WHERE \(conflicting($0, excludingOld: excludingOld))"
    }
    // Statements nested in an application's own triggers need a few more than one statement's.
    let kept = 4 + 2 * uniques.count
    let isOld = "id <= (SELECT max(id) FROM \(table.pending)) - \(kept)"
    return copies + [removed(where: "p.\(isOld)")].compactMap { $0 }
      + ["DELETE FROM \(table.pending) WHERE \(isOld)"]
  }

  /// Logs the deletes of pending rows (alias `p`) that are gone, and that no AFTER trigger asked for: an UPDATE OR REPLACE removed a row that
  /// the updated one hung on, and a foreign key's cascade took the updated one along. Nil: no row of the table can hang on another one.
  func removed(where condition: String) -> String? {
    guard shape.foreignKeys.contains(where: { $0.onDelete == "CASCADE" }) else { return nil }
    let same = table.keyPlaces.map { "q.c\($0) IS p.c\($0) COLLATE BINARY" }.joined(separator: " AND ")
    return logPending(
      "\(LogOperation.delete)",
      "\(condition) AND p.id = (SELECT max(q.id) FROM \(table.pending) q WHERE \(same)) AND NOT \(stillThere("p"))")
  }

  private func logPending(_ operation: String, _ condition: String, changed: String = "NULL") -> String {
    let values =
      table.keyPlaces.map { "p.c\($0)" } + table.relevant.compactMap(table.place).map { "p.c\($0)" }
    return "INSERT INTO salvor_change (t, op, m, \(slots(values.count))) SELECT \(t), \(operation), \(changed), "
      + "\(values.joined(separator: ", ")) FROM \(table.pending) p WHERE \(condition)"
  }

  private var newestOwn: String {
    "p.id = (SELECT max(q.id) FROM \(table.pending) q WHERE \(pendingIs("NEW", alias: "q")))"
  }

  /// Else a later insert of this very row would look like one that changes nothing.
  private var dropOld: String { "DELETE FROM \(table.pending) WHERE \(pendingIs("OLD", alias: table.pending))" }

  private var dropSettled: String {
    "DELETE FROM \(table.pending) WHERE \(pendingIs("NEW", alias: table.pending)) OR NOT \(stillThere(table.pending))"
  }

  private var afterReplacingInsert: [String] {
    let changed = balanced(table.columns.indices.map { differs("p", "NEW", $0) })
    let key = keys.map { "NEW.\(quoted($0))" }
    return [
      // Other rows that the statement replaced.
      logPending("\(LogOperation.delete)", "NOT (\(pendingIs("NEW", alias: "p"))) AND NOT \(stillThere("p"))"),
      // The row with this key was replaced: an update of what differs.
      logPending(moveOrUpdate("p", "NEW"), "\(newestOwn) AND \(changed)", changed: mask("p", "NEW")),
      // No row had this key.
      "INSERT INTO salvor_change (t, op, \(slots(key.count))) SELECT \(t), \(LogOperation.insert), "
        + "\(key.joined(separator: ", ")) WHERE NOT EXISTS (SELECT 1 FROM \(table.pending) q WHERE \(pendingIs("NEW", alias: "q")))",
      dropSettled,
    ]
  }

  private var afterReplacingUpdate: [String] {
    [
      logPending("\(LogOperation.delete)", "NOT (\(pendingIs("NEW", alias: "p"))) AND NOT \(stillThere("p"))"),
      // The row took the key of one that it replaced; where that one was must be known.
      logPending("\(LogOperation.replaced)", "\(newestOwn) AND NOT (\(sameKey("OLD", "NEW")))"),
      dropSettled,
    ]
  }
}
