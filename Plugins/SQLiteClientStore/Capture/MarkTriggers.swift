import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a table's own dirty and deleted columns need of its triggers (semantics 3).
///
/// To set the deleted mark is a delete, to take it back an insert; a marked row is not there for requests and bases. The
/// rows below a marked one are found by references and deleted with it, one request: their deletes are joined to its own,
/// the lowest rows first. All is done by set, from the list of rows in `salvor_marking`, and not by the rows' own triggers:
/// with `recursive_triggers` off these do not fire for rows of a table that references itself.
extension TriggerParts {
  private var hasMark: Bool { t.deletedFlag != nil }

  var flagTriggers: [CaptureTriggers.Trigger] {
    [insertOverMark, deleteOfMarked, markSet, markTakenBack, dirtyInserted, dirtyChanged].compactMap { $0 }
  }

  // MARK: Rows under way

  /// ` AND …`: the row is none that a mark takes along or brings back right now. What the application's triggers write to
  /// such a row meanwhile belongs to the mark.
  func andNotTaken(_ key: (Int) -> String) -> String {
    t.hasRowsOfMarks ? " AND NOT EXISTS (SELECT 1 FROM salvor_marking m WHERE \(isRow("m", key)))" : ""
  }

  /// The engine writes rows, with the application's triggers on.
  private var andNotByEngine: String { " AND NOT EXISTS (SELECT 1 FROM salvor_marking m WHERE m.t = 0)" }

  private func isRow(_ alias: String, _ key: (Int) -> String) -> String {
    (["\(alias).t = \(t.number)"] + t.keySlots.map { "\(alias).k\($0) = \(key($0))" }).joined(separator: " AND ")
  }

  private func keys(_ count: Int, _ alias: String = "") -> String {
    (0..<count).map { alias + "k\($0)" }.joined(separator: ", ")
  }

  /// A row of this table, in a statement that knows no alias.
  private func own(_ key: (Int) -> String) -> String {
    t.keySlots.map { "\(name).\(quoted(t.columns[$0].name)) = \(key($0))" }.joined(separator: " AND ")
  }

  // MARK: Dirty

  /// The row has a request now. Nothing is done where it says so already.
  ///
  /// In triggers of their own, which fire after those that capture: what the application's triggers write to the table when they see the column change
  /// is captured too. SQLite fires no trigger within itself.
  var dirtyTriggers: [CaptureTriggers.Trigger] {
    guard let dirty = t.dirtyFlag else { return [] }
    let isClean = "NOT \(CapturedTable.isSet(dirty, "NEW"))"
    let set = [
      "UPDATE \(name) SET \(quoted(dirty)) = 1 WHERE \(own(t.new)) AND NOT \(CapturedTable.isSet(dirty, name))\(andNotByEngine)"
    ]
    let changes =
      ["(\(keyChanges))"] + (t.otherSlots.isEmpty ? [] : ["(\(updates))"])
      + (t.deletedFlag.map { ["(\(marks($0)))"] } ?? [])
    return [
      trigger(
        "ti", "AFTER INSERT", when: isClean + t.andHasKey(t.new) + t.andUnmarked("NEW") + andNotTaken(t.new), set),
      trigger("tu", "AFTER UPDATE", when: "\(isClean) AND (\(changes.joined(separator: " OR ")))", set),
    ]
  }

  /// Which rows to look at when requests have left.
  private var noteDirty: String {
    "INSERT INTO salvor_dirty (t, \(keys(t.keyCount))) VALUES (\(t.number), \(values(t.keySlots, t.new)))"
  }

  private var dirtyInserted: CaptureTriggers.Trigger? {
    t.dirtyFlag.map { trigger("di", "AFTER INSERT", when: CapturedTable.isSet($0, "NEW"), [noteDirty]) }
  }

  private var dirtyChanged: CaptureTriggers.Trigger? {
    t.dirtyFlag.map {
      trigger(
        "dd", "AFTER UPDATE OF \(quoted($0))",
        when: "\(CapturedTable.isSet($0, "NEW")) <> \(CapturedTable.isSet($0, "OLD"))", [noteDirty])
    }
  }

  // MARK: What else becomes of a marked row

  private func forgetMark(_ key: (Int) -> String) -> String {
    "DELETE FROM salvor_mark WHERE t = \(t.number) AND "
      + t.keySlots.map { "k\($0) = \(key($0))" }.joined(separator: " AND ")
  }

  /// A row that came with a mark, or under one, deletes nothing by it.
  private var noteMark: String {
    "INSERT INTO salvor_mark (t, \(keys(t.keyCount))) SELECT \(t.number), \(values(t.keySlots, t.new)) "
      + "WHERE \(t.deletedFlag.map { CapturedTable.isSet($0, "NEW") } ?? "0")"
  }

  private var insertOverMark: CaptureTriggers.Trigger? {
    guard hasMark || t.hasRowsOfMarks else { return nil }
    let isKnown = "EXISTS (SELECT 1 FROM salvor_mark s WHERE \(isRow("s", t.new)))"
    let isMarked = t.deletedFlag.map { CapturedTable.isSet($0, "NEW") + " OR " } ?? ""
    return trigger(
      "mi", "AFTER INSERT", when: "(\(isMarked)\(isKnown))\(andNotTaken(t.new))",
      [forgetMark(t.new)] + (hasMark ? [noteMark] : []))
  }

  private var deleteOfMarked: CaptureTriggers.Trigger? {
    t.deletedFlag.map {
      trigger("md", "AFTER DELETE", when: CapturedTable.isSet($0, "OLD") + andNotTaken(t.old), [forgetMark(t.old)])
    }
  }

  /// Under another key a row is another one.
  var forgetMarksOfChangedKey: [String] {
    (hasMark || t.hasRowsOfMarks ? [forgetMark(t.old), forgetMark(t.new)] : []) + (hasMark ? [noteMark] : [])
      + (t.dirtyFlag == nil ? [] : [noteDirty])
  }

  // MARK: A mark is set, or taken back

  /// The rows of `salvor_marking` (alias `m`) that belong to the row whose mark changes. Only a key of one column can be
  /// referenced, so that its first value names it.
  private var group: String { "m.rt = \(t.number) AND m.rk = \(root(0))" }
  private var groupInStatement: String { "rt = \(t.number) AND rk = \(root(0))" }
  private var endGroup: String { "DELETE FROM salvor_marking WHERE \(groupInStatement)" }
  private var width: Int { ([t.keyCount] + t.descent.map(\.table.keyCount)).max() ?? 1 }

  private func markTrigger(_ what: String, _ deleted: String, from: String, to: String, _ statements: [String])
    -> CaptureTriggers.Trigger
  {
    trigger(what, "AFTER UPDATE OF \(quoted(deleted))", when: marks(deleted, from: from, to: to), statements)
  }

  private func marks(_ deleted: String, from: String = "OLD", to: String = "NEW") -> String {
    "\(CapturedTable.isSet(deleted, to)) AND NOT \(CapturedTable.isSet(deleted, from)) AND \(keyIsSame)"
      + t.andHasKey(t.new) + andNotTaken(t.new) + andNotByEngine
  }

  private var markSet: CaptureTriggers.Trigger? {
    guard let deleted = t.deletedFlag else { return nil }
    let spreading = spreading()
    return markTrigger(
      "ms", deleted, from: "OLD", to: "NEW",
      spreading.log + [logDelete(.delete, t.old)] + spreading.mark
        + ["DELETE FROM \(t.pending) WHERE \(t.sameKey(t.keptColumn, t.new))"])
  }

  /// What a mark does to the rows below: the statements before the row's own delete is logged, and those after it.
  ///
  /// - Parameter isLogged: by table number, of tables whose rows are adopted: whether the log has the row (alias `x`). What
  ///   it does not have the server may not have either.
  func spreading(isLogged: [Int64: String] = [:]) -> (log: [String], mark: [String]) {
    let noted =
      "INSERT INTO salvor_mark (t, \(keys(t.keyCount)), seq, rt, rk) VALUES (\(t.number), \(values(t.keySlots, root)), (SELECT max(seq) FROM \(log)), \(t.number), \(root(0)))"
    if t.descent.isEmpty { return ([], [forgetMark(root), noted]) }
    let below =
      [findBelow, numberBelow] + t.descent.reversed().map { logBelow($0, isLogged: isLogged[$0.table.number]) }
    let carriedOn =
      [
        forgetMarksOfGroup,
        "INSERT INTO salvor_mark (t, \(keys(width)), seq, rt, rk) SELECT m.t, \(keys(width, "m.")), m.seq, m.rt, m.rk FROM salvor_marking m WHERE \(group) ORDER BY m.id",
      ] + t.descent.filter(\.stays).map { flagBelow($0, "1", dirtyToo: true) }
      + t.descent.reversed().filter { !$0.stays }.map(deleteBelow)
      + t.descent.map(dropCopies) + [endGroup]
    return (below, [forgetMark(root), noted] + carriedOn)
  }

  /// The rows below whose dirty columns `spreading` sets, for the engine: its statements fire no trigger.
  var dirtyBelow: [String] {
    t.descent.filter { $0.table.dirtyFlag != nil }.map {
      "INSERT INTO salvor_dirty (t, \(keys($0.table.keyCount))) SELECT m.t, \(keys($0.table.keyCount, "m.")) FROM salvor_marking m WHERE \(group) AND m.t = \($0.table.number)"
    }
  }

  /// Those rows are there again. A delete that waits is withdrawn, and what was written to its row meanwhile is an update;
  /// one that does not wait any more is followed by an insert.
  private var markTakenBack: CaptureTriggers.Trigger? {
    guard let deleted = t.deletedFlag else { return nil }
    let steps = [MarkStep(table: t, links: [], stays: true)] + t.descent.filter { $0.table.number != t.number }
    let isGroup = steps.count > 1 || !t.descent.isEmpty
    func marker(_ operation: LogOperation) -> [String] {
      isGroup
        ? ["INSERT INTO \(log) (t, op) SELECT 0, \(operation.rawValue) WHERE NOT EXISTS (SELECT 1 FROM salvor_request)"]
        : []
    }
    let found =
      [
        "INSERT INTO salvor_marking (t, \(keys(t.keyCount)), rt, rk, seq) VALUES (\(t.number), \(values(t.keySlots, t.new)), \(t.number), \(root(0)), (SELECT s.seq FROM salvor_mark s WHERE \(isRow("s", t.new)) ORDER BY s.id DESC LIMIT 1))"
      ] + (isGroup ? [findMarked] : [])
    let shown =
      t.descent.flatMap { $0.stays ? [flagBelow($0, "0", dirtyToo: false)] : restore($0) }
    let logged = steps.flatMap { [logInserts($0), logUpdates($0)].compactMap { $0 } }
    return markTrigger(
      "mt", deleted, from: "NEW", to: "OLD",
      found + [decide] + shown + marker(.open) + logged + marker(.close) + withdraw + steps.compactMap(setDirtyBelow)
        + [forgetMarksOfGroup, endGroup])
  }

  private var forgetMarksOfGroup: String {
    let same = (0..<width).map { "s.k\($0) IS m.k\($0)" }.joined(separator: " AND ")
    return
      "DELETE FROM salvor_mark WHERE id IN (SELECT s.id FROM salvor_marking m CROSS JOIN salvor_mark s WHERE \(group) AND s.t = m.t AND s.k0 = m.k0 AND \(same))"
  }

  // MARK: Setting

  /// The undeleted rows below, the nearest first.
  private var findBelow: String {
    let padding = { (count: Int) in String(repeating: ", NULL", count: self.width - count) }
    let terms = t.descent.flatMap { step in
      step.links.map { link in
        let child = step.table
        let keys = child.keySlots.map(child.tableColumn).joined(separator: ", ") + padding(child.keyCount)
        return
          "UNION SELECT \(child.number), \(keys) FROM d CROSS JOIN \(quoted(child.name)) x WHERE d.t = \(link.parent) AND \(child.tableColumn(link.slot)) = d.k0\(child.andUnmarked())"
      }
    }
    return
      "INSERT INTO salvor_marking (t, \(keys(width)), rt, rk) SELECT d.t, \(keys(width, "d.")), \(t.number), \(root(0)) FROM "
      + "(WITH RECURSIVE d(t, \(keys(width))) AS (SELECT \(t.number), \(root(0))\(padding(1)) \(terms.joined(separator: " "))) SELECT * FROM d) d "
      + "WHERE NOT (d.t = \(t.number) AND d.k0 = \(root(0)))"
  }

  /// The lowest first, so that the marked row's own delete is next.
  private var numberBelow: String {
    "UPDATE salvor_marking SET seq = coalesce((SELECT max(seq) FROM \(log)), 0) + 1 + (SELECT max(m.id) FROM salvor_marking m WHERE \(group)) - id WHERE \(groupInStatement)"
  }

  private func logBelow(_ step: MarkStep, isLogged: String?) -> String {
    let child = step.table
    let all = 0..<child.columns.count
    let kind = "\(LogOperation.joinedDelete.rawValue)"
    let mask = isLogged.map { ("m0, ", "CASE WHEN \($0) THEN NULL ELSE 1 END, ") } ?? ("", "")
    return
      "INSERT INTO \(log) (seq, t, op, \(mask.0)\(child.logColumns(all))) SELECT m.seq, \(child.number), \(kind), \(mask.1)\(all.map(child.tableColumn).joined(separator: ", ")) "
      + "FROM salvor_marking m CROSS JOIN \(quoted(child.name)) x WHERE \(group) AND m.t = \(child.number) AND \(child.rowAt { "m.k\($0)" })"
  }

  /// A row of a step's table is in the group, in a statement that knows no alias.
  private func isInGroup(_ step: MarkStep, _ condition: String = "") -> String {
    let child = step.table
    let columns = child.keySlots.map { "\(quoted(child.name)).\(quoted(child.columns[$0].name))" }
    let left = columns.count == 1 ? columns[0] : "(\(columns.joined(separator: ", ")))"
    return
      "\(left) IN (SELECT \(keys(child.keyCount, "m.")) FROM salvor_marking m WHERE \(group) AND m.t = \(child.number)\(condition))"
  }

  private func flagBelow(_ step: MarkStep, _ value: String, dirtyToo: Bool) -> String {
    let flags =
      [step.table.deletedFlag.map { "\(quoted($0)) = \(value)" }]
      + [dirtyToo ? step.table.dirtyFlag.map { "\(quoted($0)) = 1" } : nil]
    return
      "UPDATE \(quoted(step.table.name)) SET \(flags.compactMap { $0 }.joined(separator: ", ")) WHERE \(isInGroup(step))"
  }

  /// With the rows that were marked before, where their parent goes.
  private func deleteBelow(_ step: MarkStep) -> String {
    let name = quoted(step.table.name)
    let going = t.descent.filter { !$0.stays }.map(\.table.number)
    let orphans = step.links.filter { going.contains($0.parent) }.map {
      "\(name).\(quoted(step.table.columns[$0.slot].name)) IN (SELECT m.k0 FROM salvor_marking m WHERE \(group) AND m.t = \($0.parent))"
    }
    guard let deleted = step.table.deletedFlag, !orphans.isEmpty else {
      return "DELETE FROM \(name) WHERE \(isInGroup(step))"
    }
    return
      "DELETE FROM \(name) WHERE \(isInGroup(step)) OR (\(CapturedTable.isSet(deleted, name)) AND (\(orphans.joined(separator: " OR "))))"
  }

  /// Copies of rows that are deleted are no rows that a REPLACE removes.
  private func dropCopies(_ step: MarkStep) -> String {
    let same = step.table.keySlots.map { "m.k\($0) = \(step.table.keptColumn($0))" }.joined(separator: " AND ")
    return
      "DELETE FROM \(step.table.pending) WHERE EXISTS (SELECT 1 FROM salvor_marking m WHERE \(group) AND m.t = \(step.table.number) AND \(same))"
  }

  // MARK: Taking back

  /// The other rows that the mark took along.
  private var findMarked: String {
    "INSERT INTO salvor_marking (t, \(keys(width)), rt, rk, seq) SELECT s.t, \(keys(width, "s.")), \(t.number), \(root(0)), s.seq FROM salvor_mark s "
      + "WHERE s.rt = \(t.number) AND s.rk = \(root(0)) AND NOT (s.t = \(t.number) AND s.k0 = \(root(0))) ORDER BY s.id"
  }

  /// What a delete in the log (alias `g`) deletes now, where it saw something else (alias `w`).
  private static let joinStored = "LEFT JOIN salvor_value w ON w.seq = g.seq"
  private static func deleted(_ slot: Int) -> String { "CASE WHEN w.seq IS NULL THEN g.v\(slot) ELSE w.v\(slot) END" }

  /// Which deletes wait: they are in the log, not in error, and not in an upload, and delete something.
  private var decide: String {
    let seq = "salvor_marking.seq"
    return
      "UPDATE salvor_marking SET withdrawn = 1 WHERE \(groupInStatement) AND EXISTS (SELECT 1 FROM \(log) g \(Self.joinStored) WHERE g.seq = \(seq) AND g.t = salvor_marking.t AND g.v0 = salvor_marking.k0 AND g.op IN \(Self.wholeDeletes) AND CASE WHEN w.seq IS NULL THEN ifnull(g.m0, 0) = 0 ELSE w.m0 <> 0 END) "
      + "AND (\(seq) > coalesce((SELECT value FROM salvor_state WHERE name = '\(StateName.uploadLast.rawValue)'), 0) OR EXISTS (SELECT 1 FROM salvor_outstanding e WHERE e.apart = 1 AND \(seq) BETWEEN e.first AND e.last)) "
      + "AND NOT EXISTS (SELECT 1 FROM salvor_outstanding r WHERE r.state IN ('refused', 'blocked') AND \(seq) BETWEEN r.first AND r.last)"
  }

  private static let wholeDeletes = "(\(LogOperation.delete.rawValue), \(LogOperation.joinedDelete.rawValue))"

  /// Rows that went at once come back as they were.
  private func restore(_ step: MarkStep) -> [String] {
    let child = step.table
    let names = child.columns.map { quoted($0.name) }.joined(separator: ", ")
    let old = child.columns.indices.map(Self.deleted).joined(separator: ", ")
    var statements = [
      "INSERT INTO \(quoted(child.name)) (\(names)) SELECT \(old) FROM salvor_marking m CROSS JOIN \(log) g \(Self.joinStored) WHERE \(group) AND m.t = \(child.number) "
        + "AND g.seq = m.seq AND g.t = \(child.number) AND g.op IN \(Self.wholeDeletes) AND ifnull(w.m0, 1) <> 0 "
        + "AND NOT EXISTS (SELECT 1 FROM \(quoted(child.name)) x WHERE \(child.rowAt(markedToo: true) { "m.k\($0)" })) ORDER BY m.id"
    ]
    if child.dirtyFlag != nil {
      statements.append(
        "INSERT INTO salvor_dirty (t, \(keys(child.keyCount))) SELECT m.t, \(keys(child.keyCount, "m.")) FROM salvor_marking m WHERE \(group) AND m.t = \(child.number)"
      )
    }
    return statements
  }

  private func logInserts(_ step: MarkStep) -> String {
    let child = step.table
    return
      "INSERT INTO \(log) (t, op, \(child.logColumns(child.keySlots))) SELECT \(child.number), \(LogOperation.insert.rawValue), \(child.keySlots.map(child.tableColumn).joined(separator: ", ")) "
      + "FROM salvor_marking m CROSS JOIN \(quoted(child.name)) x WHERE \(group) AND m.t = \(child.number) AND m.withdrawn IS NULL AND \(child.rowAt { "m.k\($0)" }) ORDER BY m.id"
  }

  private func logUpdates(_ step: MarkStep) -> String? {
    let child = step.table
    guard !child.otherSlots.isEmpty else { return nil }
    let old = Self.deleted
    return TriggerParts(child).logUpdate(
      from:
        "FROM salvor_marking m CROSS JOIN \(log) g CROSS JOIN \(quoted(child.name)) x \(Self.joinStored) WHERE \(group) AND m.t = \(child.number) "
        + "AND m.withdrawn AND g.seq = m.seq AND \(child.rowAt { "m.k\($0)" }) AND \(child.anyDiffers(child.otherSlots, old, child.tableColumn))",
      old: old, new: child.tableColumn)
  }

  private var withdraw: [String] {
    let withdrawn = "SELECT m.seq FROM salvor_marking m WHERE \(group) AND m.withdrawn"
    return [
      "UPDATE \(log) SET op = CASE op WHEN \(LogOperation.delete.rawValue) THEN \(LogOperation.withdrawn.rawValue) ELSE \(LogOperation.withdrawnJoined.rawValue) END WHERE seq IN (\(withdrawn))",
      "INSERT INTO salvor_withdrawn (seq) \(withdrawn)",
      "UPDATE salvor_state SET value = lower(hex(randomblob(8))) WHERE name = '\(StateName.logGeneration.rawValue)' AND EXISTS (\(withdrawn))",
    ]
  }

  private func setDirtyBelow(_ step: MarkStep) -> String? {
    step.table.dirtyFlag.map {
      "UPDATE \(quoted(step.table.name)) SET \(quoted($0)) = 1 WHERE \(isInGroup(step, " AND m.withdrawn IS NULL")) AND NOT \(CapturedTable.isSet($0, quoted(step.table.name)))"
    }
  }
}

extension CaptureCatalog {
  /// Says of each table with a deleted column what a mark takes along.
  ///
  /// - Parameter definitions: of the tables, as the schema has them.
  mutating func link(_ definitions: [Table]) throws {
    guard tables.contains(where: { $0.deletedFlag != nil }) else { return }
    // In an order of the file's own: that of a schema that the server delivers is another one, and circles of references have none.
    let numbers = Dictionary(tables.map { ($0.name.folded, $0.number) }) { $1 }
    let schema = Schema(
      tables: definitions.sorted { (numbers[$0.name.folded] ?? 0) < (numbers[$1.name.folded] ?? 0) })
    let plain = tables
    var below: Set<Int64> = []
    for place in tables.indices where tables[place].deletedFlag != nil {
      guard let definition = schema.table(tables[place].name) else { continue }
      tables[place].descent = MarkDescent(of: definition, in: schema).steps.compactMap { step in
        guard let table = plain.first(where: { $0.name.folded == step.table.name.folded }) else {
          return nil
        }
        let links = step.references.compactMap { reference -> MarkStep.Link? in
          guard let slot = table.columns.firstIndex(where: { $0.name.folded == reference.column.folded }),
            let parent = self.table(reference.table)
          else { return nil }
          return MarkStep.Link(slot: slot, parent: parent.number)
        }
        below.formUnion([table.number, tables[place].number])
        return MarkStep(table: table, links: links, stays: step.stays)
      }
    }
    for place in tables.indices { tables[place].hasRowsOfMarks = below.contains(tables[place].number) }
  }

  /// Beside the flag columns. No constraint and no unique index is on them: a trigger writes them under the outer
  /// statement's OR clause.
  func makeMarkTables(on connection: SQLiteConnection) throws {
    try connection.execute(
      """
      -- Rows whose deleted column is set, and rows that went with one: the delete in the log, and whose mark it was.
      CREATE TABLE IF NOT EXISTS salvor_mark (id INTEGER PRIMARY KEY, t INTEGER, k0, seq INTEGER, rt INTEGER, rk);
      CREATE INDEX IF NOT EXISTS salvor_mark_row ON salvor_mark (t, k0);
      CREATE INDEX IF NOT EXISTS salvor_mark_root ON salvor_mark (rt, rk);
      -- The rows of a mark that is being set or taken back. t = 0: the engine writes.
      CREATE TABLE IF NOT EXISTS salvor_marking (id INTEGER PRIMARY KEY, t INTEGER, k0, seq INTEGER, rt INTEGER, rk, withdrawn);
      CREATE INDEX IF NOT EXISTS salvor_marking_row ON salvor_marking (t, k0);
      CREATE INDEX IF NOT EXISTS salvor_marking_root ON salvor_marking (rt, rk);
      -- Rows whose dirty column was changed.
      CREATE TABLE IF NOT EXISTS salvor_dirty (id INTEGER PRIMARY KEY, t INTEGER, k0);
      -- Deletes that were withdrawn, until requests are sorted.
      CREATE TABLE IF NOT EXISTS salvor_withdrawn (seq INTEGER);
      """)
    let width = tables.map(\.keyCount).max() ?? 1
    for name in ["salvor_mark", "salvor_marking", "salvor_dirty"] {
      let found = Set(try connection.tableShape(name)?.columns.map(\.name) ?? [])
      for column in (0..<max(1, width)).map({ "k\($0)" }) where !found.contains(column) {
        try connection.execute("ALTER TABLE \(name) ADD COLUMN \(column)")
      }
    }
  }
}
