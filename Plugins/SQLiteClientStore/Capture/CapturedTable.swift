import SQLiteSupport
import SalvorModel
import SalvorStorage

/// One table as capture sees it: its number, and the slot of each captured column.
///
/// A slot is the place of a column's values in `salvor_log` (`v0`, `v1`, …). Slots are given once and never change, the
/// key's columns first; a column that is added later takes the next one, so that older log rows stay readable. Flag
/// columns and generated columns have no slot.
struct CapturedTable: Sendable, Hashable {
  struct Column: Sendable, Hashable {
    var name: String
    /// The column keeps any storage class as it is, so that 1 and 1.0 are different values in it.
    var isUntyped: Bool
  }

  struct Unique: Sendable, Hashable {
    struct Part: Sendable, Hashable {
      var name: String
      var collation: String
    }
    var parts: [Part]
    /// The WHERE expression of a partial index.
    var condition: String?

    var order: String { parts.map(\.name).joined(separator: ",") + ";" + (condition ?? "") }
  }

  /// A foreign key that acts by itself (CASCADE, SET NULL, …), on the parent's primary key. When the trigger of a row fires
  /// that it deletes or unlinks, the parent is on its way out.
  ///
  /// No trigger names the parent's table: an application that makes that anew could not rename it (decision 28).
  struct Action: Sendable, Hashable {
    /// By the slot of the parent's key that each references.
    var columns: [String]
    var parent: String
    var parentColumns: [String]
    /// The parent's number, and how its key is compared.
    var number: Int64 = 0
    var collations: [String] = []

    /// The parent's BEFORE trigger has noted it, or kept a copy of it since REPLACE may remove it.
    var parentGoes: String {
      func isParent(_ alias: String, _ column: String) -> String {
        zip(columns, collations).enumerated().map { place, pair in
          "\(alias).\(column)\(place) = OLD.\(quoted(pair.0)) COLLATE \(quoted(pair.1))"
        }.joined(separator: " AND ")
      }
      return
        "(EXISTS (SELECT 1 FROM salvor_moving m WHERE m.t = \(number) AND \(isParent("m", "k"))) OR EXISTS (SELECT 1 FROM salvor_pending_\(number) p WHERE \(isParent("p", "v"))))"
    }
  }

  /// `salvor_log.t`.
  var number: Int64
  var name: String
  /// By slot; the first `keyCount` are the key, in the key's order.
  var columns: [Column]
  var keyCount: Int
  /// How the primary key's own index compares each key column.
  var keyCollations: [String]
  /// The key is the rowid, which statements may also call `rowid`, `oid` or `_rowid_`.
  var hasRowidKey: Bool
  /// Key columns that the table lets be NULL (SQLite's `id TEXT PRIMARY KEY` does). Rows with such a key have no identity
  /// and are not captured.
  var nullableKeySlots: [Int]
  var uniques: [Unique]
  var generated: [String]
  var actions: [Action]
  /// Others have such foreign keys to it.
  var isParentOfActions = false
  /// The application's own flag columns (semantics 3).
  var dirtyFlag: String?
  var deletedFlag: String?
  /// Where it has a deleted column: the tables whose rows a mark takes along, parents first.
  var descent: [MarkStep] = []
  /// A mark takes rows of other tables along, or is on rows whose mark does: its rows stand in `salvor_marking` for a while.
  var hasRowsOfMarks = false

  /// Foreign key actions may lead from a row of it to another one.
  var mayRemoveItself: Bool { isParentOfActions && !actions.isEmpty }
  /// Marks delete rows of it.
  var isMarked: Bool { deletedFlag != nil || hasRowsOfMarks }
  var key: ArraySlice<Column> { columns.prefix(keyCount) }
  var pending: String { "salvor_pending_\(number)" }
  /// A view without rows, whose trigger does what an insert that found copies in `pending` has to do.
  var replacing: String { "salvor_replacing_\(number)" }
  var replacingSQL: String {
    let names = columns.map { quoted($0.name) } + (deletedFlag == nil ? [] : [Self.replacingMark])
    return "CREATE VIEW \(replacing) AS SELECT " + names.map { "NULL AS \($0)" }.joined(separator: ", ")
  }
  /// The view's column that says whether the new row has a deleted mark.
  static let replacingMark = "salvor_mark"
  /// How many `m` columns of the log its updates use.
  var maskCount: Int { max(1, (columns.count + LogMask.bitsPerColumn - 1) / LogMask.bitsPerColumn) }

  /// A table that is not there any more, as the archive has it.
  init(retired number: Int64, name: String, slots: [String], keyCount: Int) {
    self.number = number
    self.name = name
    self.keyCount = keyCount
    columns = slots.map { Column(name: $0, isUntyped: true) }
    keyCollations = Array(repeating: "BINARY", count: keyCount)
    hasRowidKey = false
    (nullableKeySlots, uniques, generated, actions) = ([], [], [], [])
  }

  /// - Parameters:
  ///   - slots: the captured columns' names by slot, as `salvor_column` has them.
  ///   - definition: names as it writes them, which may be another case than the database's; nil: as the database does.
  init(
    number: Int64, slots: [String], keyCount: Int, shape: TableShape, actions: [Action], flags: FlagColumns,
    definition: Table? = nil
  ) {
    self.actions = actions
    dirtyFlag = flags.dirty.map { shape.column($0)?.name ?? $0 }
    deletedFlag = flags.deleted.map { shape.column($0)?.name ?? $0 }
    self.number = number
    name = definition?.name ?? shape.name
    self.keyCount = keyCount
    columns = slots.map { slot in
      let named = definition?.columns.first { $0.name.folded == slot.folded }?.name
      return Column(name: named ?? shape.column(slot)?.name ?? slot, isUntyped: shape.column(slot)?.affinity == .blob)
    }
    hasRowidKey = shape.hasRowidKey
    generated = shape.generated
    let primary = shape.uniqueIndexes.first { $0.isPrimaryKey }
    keyCollations = slots.prefix(keyCount).map { slot in
      primary?.columns.first { $0.name?.folded == slot.folded }?.collation ?? "BINARY"
    }
    nullableKeySlots =
      shape.hasRowidKey || shape.withoutRowid
      ? [] : (0..<keyCount).filter { !(shape.column(slots[$0])?.notNull ?? false) }
    uniques = shape.uniqueIndexes.filter { !$0.isPrimaryKey }.map { index in
      Unique(
        parts: index.columns.compactMap { part in part.name.map { Unique.Part(name: $0, collation: part.collation) } },
        condition: index.condition)
    }
    // SQLite lists the newest index first; a fixed order makes the triggers' text one.
    uniques.sort { $0.order < $1.order }
  }
}

/// A table whose rows a deleted mark takes along.
struct MarkStep: Sendable, Hashable {
  struct Link: Sendable, Hashable {
    /// The referencing column.
    var slot: Int
    /// The number of the referenced table, whose key is one column.
    var parent: Int64
  }

  var table: CapturedTable
  var links: [Link]
  /// The rows stay, with their own mark (`MarkDescent`).
  var stays: Bool
}

/// Which columns an update changed: one bit per slot, in as many integers as that takes.
struct LogMask: Sendable, Hashable {
  /// Bits that one `m` column of the log holds; the sign stays free.
  static let bitsPerColumn = 62

  var words: [Int64]

  /// Of a delete: the base has no such row.
  static let nothing = LogMask(words: [1])

  init(words: [Int64]) { self.words = words }
  init(columns count: Int) {
    words = Array(repeating: 0, count: max(1, (count + Self.bitsPerColumn - 1) / Self.bitsPerColumn))
  }

  subscript(slot: Int) -> Bool {
    get {
      let word = slot / Self.bitsPerColumn
      return word < words.count && words[word] >> Int64(slot % Self.bitsPerColumn) & 1 != 0
    }
    set {
      let bit = Int64(1) << Int64(slot % Self.bitsPerColumn)
      if newValue { words[slot / Self.bitsPerColumn] |= bit } else { words[slot / Self.bitsPerColumn] &= ~bit }
    }
  }

  var isEmpty: Bool { words.allSatisfy { $0 == 0 } }

  func slots(below count: Int) -> [Int] { (0..<count).filter { self[$0] } }
}
