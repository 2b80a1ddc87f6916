import SQLiteSupport
import SalvorStorage

/// What a row of `salvor_log` says (`salvor_log.op`).
///
/// The log has old values only: a change's new values are the row after it, found by walking from the row as it is now
/// back through its later changes (`RowTimeline`).
enum LogOperation: Int64, Sendable, Hashable {
  /// The highest counter, kept when its request has left, so that no counter is given twice.
  case watermark = 0
  /// The row was not there. Values: the key.
  case insert = 1
  /// Values: the key, and the old value where the mask's bit is set.
  case update = 2
  /// Values: the whole old row. A mask that is not 0: the base had no such row.
  case delete = 3
  /// A group opens. `v0`: its tag.
  case open = 4
  /// The group closes.
  case close = 5
  /// A delete that belongs to the next row of the log: the first half of a key change, or a row that REPLACE removed.
  case joinedDelete = 6
  /// A delete of a row whose parent was gone already: made by a foreign key action, where the parent's delete follows.
  case cascadedDelete = 10
  /// An update that unlinked a row from a parent that was gone already, likewise.
  case cascadedUpdate = 11
  /// A delete that a mark made and that was withdrawn by taking the mark back: no change any more. It goes when requests are
  /// sorted.
  case withdrawn = 12
  /// The same, of a row that another one's mark took along: a joined delete was there.
  case withdrawnJoined = 13

  /// The change is one request with the log's next row.
  var isJoined: Bool { self == .joinedDelete }
  var isUpdate: Bool { self == .update || self == .cascadedUpdate }
  var isDelete: Bool { self == .delete || self == .joinedDelete || self == .cascadedDelete }
  var isCascaded: Bool { self == .cascadedDelete || self == .cascadedUpdate }
  var isWithdrawn: Bool { self == .withdrawn || self == .withdrawnJoined }
  var isChange: Bool { self != .watermark && self != .open && self != .close && !isWithdrawn }
}

/// The triggers of one table, in the order in which they must be made: SQLite fires the newest first, and the order
/// matters where two of them answer one event.
///
/// A statement with OR REPLACE removes rows without firing delete triggers (unless `recursive_triggers` is on), so a
/// BEFORE trigger keeps a copy of every row that is in the new row's way (`salvor_pending_N`), and an AFTER trigger looks
/// which of them are gone. A copy that OR IGNORE or an upsert leaves behind is harmless: only rows that are gone and
/// stood in the way count. What triggers write here goes into tables that no constraint can refuse, since the outer
/// statement's OR clause overrides the trigger's own.
struct CaptureTriggers {
  struct Trigger: Sendable, Hashable {
    var name: String
    var sql: String
  }

  let table: CapturedTable
  let triggers: [Trigger]
  /// The trigger on the view `CapturedTable.replacing`, with what an insert does that finds copies. SQLite makes room for
  /// a trigger's whole body before it looks at its WHEN: in a trigger of the table itself, every plain insert would pay for
  /// it. The view's own trigger is entered where it is needed only. It does not name the table, so that the application can
  /// drop and rename that.
  let replacingTrigger: Trigger

  init(_ table: CapturedTable) {
    self.table = table
    let parts = TriggerParts(table)
    replacingTrigger = parts.insertReplacing
    triggers =
      parts.dirtyTriggers
      + [
        parts.beforeInsert, parts.insertWithCopies, parts.insertAlone,
        parts.beforeUpdate, parts.beforeKeyChange, parts.beforeDelete, parts.refreshCopies, parts.update,
        parts.updateVictims, parts.keyChange,
        parts.delete,
      ].compactMap { $0 } + parts.flagTriggers
  }
}

/// The triggers of one table; those of its flag columns are in MarkTriggers.swift.
struct TriggerParts {
  let t: CapturedTable
  let name: String
  let log = "salvor_log"
  /// How statements name a key column of the row whose mark changes.
  let root: (Int) -> String

  /// - Parameter root: nil: as a trigger does.
  init(_ table: CapturedTable, root: ((Int) -> String)? = nil) {
    t = table
    name = quoted(table.name)
    self.root = root ?? table.new
  }

  func trigger(
    _ what: String, _ event: String, on table: String? = nil, when condition: String?, _ statements: [String]
  ) -> CaptureTriggers.Trigger {
    let name = "salvor_\(what)_\(t.number)"
    let when = condition.map { "\n  WHEN \($0)" } ?? ""
    return CaptureTriggers.Trigger(
      name: name,
      sql: "CREATE TRIGGER \(name) \(event) ON \(table ?? self.name)\(when)\nBEGIN\n"
        + statements.map { "  \($0);\n" }.joined() + "END")
  }

  var hasCopies: String { "EXISTS (SELECT 1 FROM \(t.pending))" }
  var all: Range<Int> { 0..<t.columns.count }
  var keyIsSame: String { t.sameKey(t.old, t.new) }
  var keyChanges: String { t.anyDiffers(t.keySlots, t.old, t.new) }

  // MARK: Insert

  /// Keeps a copy of every row in the way. It logs nothing: it also fires where OR IGNORE or an upsert then inserts
  /// nothing.
  var beforeInsert: CaptureTriggers.Trigger {
    let exists = t.conflicts.map { "EXISTS (SELECT 1 FROM \(name) x WHERE \($0))" }
    return trigger(
      "bi", "BEFORE INSERT", when: exists.joined(separator: "\n    OR "), copies(t.conflicts) + trim)
  }

  func copies(_ conditions: [String], besides: String = "") -> [String] {
    conditions.map { condition in
      "INSERT INTO \(t.pending) (\(t.logColumns(all))) SELECT \(all.map(t.tableColumn).joined(separator: ", ")) "
        + "FROM \(name) x WHERE \(condition)\(besides)"
    }
  }

  /// Copies of statements that are done are told from those of one under way only by their age.
  var trim: [String] {
    let kept = 4 + 2 * t.uniques.count
    let isOld = "id <= (SELECT max(id) FROM \(t.pending)) - \(kept)"
    return (t.mayRemoveItself ? [removed(where: "p.\(isOld)")] : []) + ["DELETE FROM \(t.pending) WHERE \(isOld)"]
  }

  /// Of the copies (alias `p`) those that no AFTER trigger asked for, and whose rows are gone: an UPDATE OR REPLACE removed a row that the
  /// updated one hung on, and a foreign key action took the updated one along. Its own delete is in the log, before this.
  func removed(where condition: String) -> String {
    logDelete(
      .delete, t.pendingColumn,
      from: "FROM \(t.pending) p WHERE \(condition) AND \(t.pendingIsNewest) AND \(t.isGone(t.pendingColumn))")
  }

  /// The usual insert: nothing was in the way.
  var insertAlone: CaptureTriggers.Trigger {
    trigger(
      "ai", "AFTER INSERT", when: "NOT \(hasCopies)\(t.andHasKey(t.new))\(t.andUnmarked("NEW"))\(andNotTaken(t.new))",
      [
        "INSERT INTO \(log) (t, op, \(t.logColumns(t.keySlots))) VALUES (\(t.number), \(LogOperation.insert.rawValue), \(values(t.keySlots, t.new)))"
      ])
  }

  /// With copies: which of their rows are gone is marked, and the rest is `insertReplacing`'s.
  var insertWithCopies: CaptureTriggers.Trigger {
    trigger(
      "air", "AFTER INSERT", when: hasCopies + andNotTaken(t.new),
      [
        "UPDATE \(t.pending) SET gone = \(t.isGone(t.keptColumn))",
        "INSERT INTO \(t.replacing) VALUES (\(values(all, t.new))\(t.deletedFlag.map { ", " + CapturedTable.isSet($0, "NEW") } ?? ""))",
      ])
  }

  /// Rows gone are deletes; a copy under the row's own key makes it an update of what differs. Older copies of the own key
  /// belong to an outer statement, which replaces the row as it is now.
  var insertReplacing: CaptureTriggers.Trigger {
    let ownCopy = t.sameKey(t.pendingColumn, t.new)
    // A row that is replaced by one with a deleted mark is deleted.
    let unmarked = t.deletedFlag == nil ? "" : " AND NOT NEW.\(CapturedTable.replacingMark)"
    var statements = canHaveVictims ? [victims(besides: "NOT (\(ownCopy))", gone: "p.gone")] : []
    if !t.otherSlots.isEmpty {
      statements.append(
        logUpdate(
          from: "FROM \(t.pending) p WHERE \(ownCopy) AND \(t.pendingIsNewest) AND "
            + t.anyDiffers(t.otherSlots, t.pendingColumn, t.new) + t.andHasKey(t.new) + unmarked,
          old: t.pendingColumn))
    }
    statements.append(
      "INSERT INTO \(log) (t, op, \(t.logColumns(t.keySlots))) SELECT \(t.number), \(LogOperation.insert.rawValue), \(values(t.keySlots, t.new)) "
        + "WHERE NOT EXISTS (SELECT 1 FROM \(t.pending) p WHERE \(ownCopy))\(t.andHasKey(t.new))\(unmarked)")
    statements.append(
      logDoubt(from: "FROM \(t.pending) p WHERE \(ownCopy) AND \(t.pendingIsNewest)\(t.andHasKey(t.new))"))
    if t.deletedFlag != nil {
      statements.append(
        logDelete(
          .delete, t.pendingColumn,
          from: "FROM \(t.pending) p WHERE NEW.\(CapturedTable.replacingMark) AND \(ownCopy) AND \(t.pendingIsNewest)"))
    }
    statements.append(
      "DELETE FROM \(t.pending) WHERE id = (SELECT max(q.id) FROM \(t.pending) q WHERE \(t.sameKey({ "q.v\($0)" }, t.new))) OR gone"
    )
    if !t.otherSlots.isEmpty {
      statements.append("UPDATE \(t.pending) SET \(assignments) WHERE \(t.sameKey(t.keptColumn, t.new))")
    }
    return trigger("ir", "INSTEAD OF INSERT", on: t.replacing, when: nil, statements)
  }

  /// Whether a row under another key can be in the way: one that a unique index, or the key's own collation or type
  /// rules, hold equal.
  var canHaveVictims: Bool {
    !t.uniques.isEmpty || t.keyCollations.contains { $0 != "BINARY" } || t.key.contains { $0.isUntyped }
  }

  // MARK: Update

  /// Only a change of the key or of a unique value can remove other rows.
  var conflictSlots: [Int] {
    let names = Set(t.uniques.flatMap { $0.parts.map { $0.name.folded } })
    return all.filter { $0 < t.keyCount || names.contains(t.columns[$0].name.folded) }
  }

  /// Columns of the application's own that stand in a unique index: they have no slot.
  var ownConflictColumns: [String] {
    let slots = Set(t.columns.map { $0.name.folded })
    var names: [String] = []
    for part in t.uniques.flatMap(\.parts) where !slots.contains(part.name.folded) && !names.contains(part.name) {
      names.append(part.name)
    }
    return names
  }

  /// `UPDATE OF` the columns that can collide. A unique index over a generated or partial column moves with others, so
  /// that any update counts; the rowid has other names in a SET clause. Nil: no column can.
  func ofColumns(_ slots: [Int], rowid: Bool) -> String? {
    let generated = Set(t.generated.map { $0.folded })
    let anyCounts = t.uniques.contains { unique in
      unique.condition != nil || unique.parts.contains { generated.contains($0.name.folded) }
    }
    if anyCounts { return "" }
    let names =
      slots.map { quoted(t.columns[$0].name) } + ownConflictColumns.map(quoted)
      + (rowid && t.hasRowidKey ? ["rowid", "oid", "_rowid_"] : [])
    return names.isEmpty ? nil : " OF " + names.joined(separator: ", ")
  }

  var beforeUpdate: CaptureTriggers.Trigger {
    let others = " AND NOT (\(t.sameKey(t.tableColumn, t.old)))"
    let columns = ofColumns(conflictSlots, rowid: true) ?? ""
    let exists = t.conflicts.map { "EXISTS (SELECT 1 FROM \(name) x WHERE \($0)\(others))" }.joined(
      separator: "\n    OR ")
    let own = ownConflictColumns.map { " OR OLD.\(quoted($0)) IS NOT NEW.\(quoted($0))" }.joined()
    let differs = t.anyDiffers(conflictSlots, t.old, t.new)
    let changes = columns.isEmpty ? "" : "\(own.isEmpty ? differs : "(\(differs)\(own))") AND "
    return trigger(
      "bu", "BEFORE UPDATE\(columns)", when: "\(changes)(\(exists))",
      copies(t.conflicts, besides: others) + trim)
  }

  /// Copies follow the row while a statement is under way: a BEFORE trigger of the application's may change it.
  var refreshCopies: CaptureTriggers.Trigger {
    trigger(
      "ar", "AFTER UPDATE", when: hasCopies,
      ["UPDATE \(t.pending) SET \(assignments) WHERE \(t.sameKey(t.keptColumn, t.old))"])
  }

  var assignments: String { all.map { "v\($0) = \(t.new($0))" }.joined(separator: ", ") }

  /// One row with the columns that changed.
  var update: CaptureTriggers.Trigger? {
    guard !t.otherSlots.isEmpty else { return nil }
    return trigger(
      "au", "AFTER UPDATE",
      when: updates, [logUpdate(from: "", old: t.old)])
  }

  /// The row is another one now, under its key.
  var updates: String {
    "\(keyIsSame) AND \(t.anyDiffers(t.otherSlots, t.old, t.new))\(t.andHasKey(t.new))"
      + "\(t.andUnmarked("OLD"))\(t.andUnmarked("NEW"))\(andNotTaken(t.old))"
  }

  private var updateKind: String {
    let kind = "\(LogOperation.update.rawValue)"
    if t.actions.isEmpty { return kind }
    let unlinked = t.actions.map { action in
      let changes = action.columns.map { "OLD.\(quoted($0)) IS NOT NEW.\(quoted($0))" }.joined(separator: " OR ")
      return "((\(changes)) AND \(action.parentGoes))"
    }.joined(separator: " OR ")
    return "CASE WHEN \(unlinked) THEN \(LogOperation.cascadedUpdate.rawValue) ELSE \(kind) END"
  }

  /// The mask is written as far as the table's own columns need it.
  func logUpdate(from: String, old: (Int) -> String, new: ((Int) -> String)? = nil) -> String {
    let new = new ?? t.new
    let masks = (0..<t.maskCount).map { word -> String in
      let bits = t.otherSlots.filter { $0 / LogMask.bitsPerColumn == word }.map { slot -> String in
        "((\(t.differs(slot, old(slot), new(slot)))) << \(slot % LogMask.bitsPerColumn))"
      }
      return CapturedTable.balanced(bits, "|")
    }
    let olds = t.otherSlots.map { "CASE WHEN \(t.differs($0, old($0), new($0))) THEN \(old($0)) END" }
    let columns = ["t", "op"] + (0..<t.maskCount).map { "m\($0)" } + all.map { "v\($0)" }
    let values =
      ["\(t.number)", from.isEmpty ? updateKind : "\(LogOperation.update.rawValue)"] + masks + t.keySlots.map(new)
      + olds
    let head = "INSERT INTO \(log) (\(columns.joined(separator: ", "))) "
    return from.isEmpty
      ? head + "VALUES (\(values.joined(separator: ", ")))"
      : head + "SELECT \(values.joined(separator: ", ")) \(from)"
  }

  /// A trigger of the application's that is newer than Salvor's may have met the row before its insert was captured, and tried to insert
  /// it again: the copy is of the new row then, and the insert looks like a replacement of itself. An update of no column says that nobody
  /// knows (`CaptureOrder`).
  private func logDoubt(from: String) -> String {
    let columns = (0..<t.maskCount).map { "m\($0)" } + [t.logColumns(t.keySlots)]
    let values = Array(repeating: "0", count: t.maskCount) + [self.values(t.keySlots, t.new)]
    return
      "INSERT INTO \(log) (t, op, \(columns.joined(separator: ", "))) SELECT \(t.number), \(LogOperation.update.rawValue), \(values.joined(separator: ", ")) \(from) "
      + "AND EXISTS (SELECT 1 FROM sqlite_schema o JOIN sqlite_schema s ON s.tbl_name = o.tbl_name COLLATE NOCASE AND s.type = 'trigger' AND s.rowid > o.rowid "
      + "WHERE o.type = 'trigger' AND o.name = 'salvor_ai_\(t.number)' AND s.name NOT LIKE 'salvor~_%' ESCAPE '~')"
  }

  /// Rows that an update of a unique value removed; before the update itself, so that replaying the log never collides.
  var updateVictims: CaptureTriggers.Trigger? {
    guard !t.uniques.isEmpty, let columns = ofColumns(conflictSlots.filter { $0 >= t.keyCount }, rowid: false) else {
      return nil
    }
    return trigger(
      "av", "AFTER UPDATE\(columns)",
      when: "\(hasCopies) AND \(keyIsSame)",
      [
        victims(besides: "NOT (\(t.sameKey(t.pendingColumn, t.new)))", gone: t.isGone(t.pendingColumn)),
        "DELETE FROM \(t.pending) WHERE \(t.isGone(t.keptColumn))",
      ])
  }

  /// Notes where in the log a key change begins. Foreign key actions, and triggers that they fire, write before the AFTER
  /// triggers of the change itself: `ON UPDATE CASCADE` of a table that references itself changes the very row.
  var beforeKeyChange: CaptureTriggers.Trigger {
    let keys = t.keySlots.map { "k\($0)" } + t.keySlots.map { "n\($0)" }
    return trigger(
      "bk", "BEFORE UPDATE OF \(keyNames)", when: keyChanges,
      [
        "INSERT INTO \(moving) (t, seq, stood, \(keys.joined(separator: ", "))) SELECT \(t.number), coalesce((SELECT max(seq) FROM \(log)), 0), "
          + "EXISTS (SELECT 1 FROM \(name) x WHERE \(t.rowAt(markedToo: true, t.new))), \(values(t.keySlots, t.old)), \(values(t.keySlots, t.new))",
        trimMoving,
      ])
  }

  private var moving: String { "salvor_moving" }
  /// Notes of what was not done after all (OR IGNORE, RAISE) are told from those of a statement under way by their age alone:
  /// triggers nest a thousand deep at most.
  private var trimMoving: String { "DELETE FROM \(moving) WHERE id <= (SELECT max(id) FROM \(moving)) - 1000" }

  private var keyNames: String {
    (t.keySlots.map { quoted(t.columns[$0].name) } + (t.hasRowidKey ? ["rowid", "oid", "_rowid_"] : [])).joined(
      separator: ", ")
  }

  /// Of the note that this key change has made. Older ones with its keys are of changes that OR IGNORE took back.
  private func noted(_ what: String) -> String {
    let same = t.keySlots.map { t.same($0, "m.k\($0)", t.old($0)) + " AND " + t.same($0, "m.n\($0)", t.new($0)) }
    return
      "(SELECT \(what) FROM \(moving) m WHERE m.t = \(t.number) AND \(same.joined(separator: " AND ")) ORDER BY m.id DESC LIMIT 1)"
  }

  /// A key change is a delete and an insert. A copy under the new key is the row that stood there.
  ///
  /// What was written to the row meanwhile, under either key, is part of it: those log rows go, and the insert is of the row
  /// as it is now. Where another row stood under the new key they may be of that one, and stay.
  var keyChange: CaptureTriggers.Trigger {
    let atNewKey = t.sameKey(t.pendingColumn, t.new)
    let atOldKey = t.sameKey(t.pendingColumn, t.old)
    func logged(_ key: (Int) -> String) -> String {
      "(" + t.keySlots.map { t.same($0, "v\($0)", key($0)) }.joined(separator: " AND ") + ")"
    }
    return trigger(
      "ak", "AFTER UPDATE OF \(keyNames)", when: keyChanges,
      [
        "DELETE FROM \(log) WHERE seq > \(noted("CASE WHEN m.stood THEN NULL ELSE m.seq END")) AND t = \(t.number) AND (\(logged(t.new)) OR \(logged(t.old)))",
        "DELETE FROM \(moving) WHERE id >= \(noted("m.id"))",
        logDelete(
          .joinedDelete, t.pendingColumn,
          from:
            "FROM \(t.pending) p WHERE NOT (\(atOldKey)) AND \(t.pendingIsNewest) AND (\(atNewKey) OR (\(t.pendingConflict) AND \(t.isGone(t.pendingColumn))))"
        ),
        logDelete(.joinedDelete, t.old, onlyJoinedWhere: isThereAnew, where: t.andUnmarked("OLD")),
        logInsert(t.new, where: isThereAnew), logInsert(t.old, where: isThere(t.old)),
        "DELETE FROM \(t.pending) WHERE NOT (\(t.sameKey(t.keptColumn, t.old))) AND (\(t.sameKey(t.keptColumn, t.new)) OR \(t.isGone(t.keptColumn)))",
      ] + forgetMarksOfChangedKey)
  }

  private func logInsert(_ key: (Int) -> String, where condition: String) -> String {
    "INSERT INTO \(log) (t, op, \(t.logColumns(t.keySlots))) SELECT \(t.number), \(LogOperation.insert.rawValue), \(values(t.keySlots, key)) WHERE \(condition)"
  }

  /// Of a key change: a row is there under this key now.
  private func isThere(_ key: (Int) -> String) -> String {
    "EXISTS (SELECT 1 FROM \(name) x WHERE \(t.rowAt(key)))\(t.andHasKey(key))"
  }
  private var isThereAnew: String { isThere(t.new) }

  // MARK: Delete

  var delete: CaptureTriggers.Trigger {
    let same = t.keySlots.map { t.same($0, "m.k\($0)", t.old($0)) }.joined(separator: " AND ")
    return trigger(
      "ad", "AFTER DELETE", when: deleteCondition,
      [
        logDelete(.delete, t.old, cascades: true),
        "DELETE FROM \(t.pending) WHERE \(t.sameKey(t.keptColumn, t.old))",
      ]
        + (t.isParentOfActions
          ? [
            "DELETE FROM \(moving) WHERE id >= (SELECT max(m.id) FROM \(moving) m WHERE m.t = \(t.number) AND \(same))"
          ] : []))
  }

  /// Notes a row that foreign key actions are about to follow.
  var beforeDelete: CaptureTriggers.Trigger? {
    guard t.isParentOfActions else { return nil }
    return trigger(
      "bd", "BEFORE DELETE", when: deleteCondition,
      [
        "INSERT INTO \(moving) (t, \(t.keySlots.map { "k\($0)" }.joined(separator: ", "))) VALUES (\(t.number), \(values(t.keySlots, t.old)))",
        trimMoving,
      ])
  }

  private var deleteCondition: String? {
    let condition = t.andHasKey(t.old) + t.andUnmarked("OLD") + andNotTaken(t.old)
    return condition.isEmpty ? nil : String(condition.dropFirst(" AND ".count))
  }

  func victims(besides: String, gone: String) -> String {
    logDelete(
      .joinedDelete, t.pendingColumn,
      from: "FROM \(t.pending) p WHERE \(besides) AND \(t.pendingIsNewest) AND \(t.pendingConflict) AND \(gone)")
  }

  func logDelete(
    _ operation: LogOperation, _ value: (Int) -> String, from: String = "", onlyJoinedWhere condition: String = "",
    where isMeant: String = "", cascades: Bool = false
  ) -> String {
    let head = "INSERT INTO \(log) (t, op, \(t.logColumns(all))) "
    var kind = "\(operation.rawValue)"
    if !condition.isEmpty {
      kind = "CASE WHEN \(condition) THEN \(kind) ELSE \(LogOperation.delete.rawValue) END"
    } else if cascades, !t.actions.isEmpty {
      let gone = t.actions.map { $0.parentGoes }.joined(separator: " OR ")
      kind = "CASE WHEN \(gone) THEN \(LogOperation.cascadedDelete.rawValue) ELSE \(kind) END"
    }
    let row = "\(t.number), \(kind), \(values(all, value))"
    if !from.isEmpty { return head + "SELECT \(row) \(from)\(t.andHasKey(value))" }
    let conditions = t.andHasKey(value) + isMeant
    return conditions.isEmpty
      ? head + "VALUES (\(row))" : head + "SELECT \(row) WHERE \(conditions.dropFirst(" AND ".count))"
  }

  func values(_ slots: Range<Int>, _ value: (Int) -> String) -> String {
    slots.map(value).joined(separator: ", ")
  }
}
