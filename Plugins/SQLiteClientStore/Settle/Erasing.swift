import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What a device forgets of rows that its server has purged (semantics 10): archive, conflict versions, versions, and the values in
/// reports of recoveries. Before-images go as whole files. What is said of it has no value and no key.
struct Erasing {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) { self.context = context }

  /// The request offers or changes one row that the server had: it has nothing of its own. A new row under an erased key is something that
  /// somebody wrote since, and stays an error; so does a group.
  func erases(_ request: RequestRange) throws -> Bool {
    guard request.first == request.last else { return false }
    return try connection.integer(
      "SELECT 1 FROM salvor_log WHERE seq = ?1 AND (op <> 1 OR seq IN (SELECT seq FROM salvor_offer))",
      .integer(request.first)) != nil
  }

  /// - Parameter requests: those that the server has refused; they are in the log still.
  func run(_ requests: [RequestRange], _ rows: () throws -> WorkingRows) throws {
    var erased: Set<RowRef> = []
    for request in requests {
      for (table, key, _) in try context.rows(changedBy: request) {
        erased.insert(RowRef(table: table.number, key: key))
      }
    }
    _ = try LogIndex(context)
    try rows().remove(requests)
    for ref in erased.sorted(by: { ($0.table, "\($0.key)") < ($1.table, "\($1.key)") }) { try forget(ref) }
    try forgetValues(of: erased)
    try connection.setState(.imagesDue, .integer(1))
    let (count, were) = erased.count == 1 ? ("1 row", "was") : ("\(erased.count) rows", "were")
    var text = "\(count) that the server has erased for good \(were) removed here, too"
    if try connection.integer("SELECT 1 FROM salvor_recovery LIMIT 1") != nil {
      text += ", with what could undo earlier recoveries"
    }
    try connection.note(
      ["\(text). Copies may hold them still: salvor backups lists them, salvor backups delete ID removes one."],
      at: context.clock.now())
  }

  private func forget(_ ref: RowRef) throws {
    guard let table = context.catalog.table(number: ref.table) else { return }
    let key = Value.text(payload(ref.key))
    let isRow: [Value] = [.integer(ref.table), key]
    // A group with other rows stays.
    let alone = { (name: String) in
      "t = ?1 AND key = ?2 AND NOT EXISTS (SELECT 1 FROM \(name) o WHERE o.first = \(name).first AND NOT (o.t = ?1 AND o.key = ?2))"
    }
    // What the row had in columns that are dropped is of another number.
    let retired = try connection.rows(
      "SELECT id FROM salvor_retired_table WHERE name = ?1 COLLATE NOCASE", .text(table.name))
    for isRow in [isRow] + retired.map({ [$0[0], key] }) {
      for archived in try context.archived(where: alone("salvor_archive"), isRow) {
        try context.deleteArchived(archived.range)
      }
      try connection.run("DELETE FROM salvor_kept WHERE \(alone("salvor_kept"))", isRow)
    }
    let slots = table.keySlots.map { "v\($0) IS ?\($0 + 2)" }.joined(separator: " AND ")
    try connection.run("DELETE FROM salvor_history WHERE t = ?1 AND \(slots)", [.integer(ref.table)] + ref.key)
  }

  /// Reports of recoveries name the row, and not what was in it.
  private func forgetValues(of erased: Set<RowRef>) throws {
    var names: [String: Set<Key>] = [:]
    for ref in erased {
      if let table = context.catalog.table(number: ref.table) {
        names[table.name.folded, default: []].insert(ref.key)
      }
    }
    var changed: [(recovery: Int64, place: Int64, item: RecoveryItem)] = []
    try connection.query("SELECT recovery, place, item FROM salvor_recovery_item") { row in
      var item = try RecoveryItem(stored: try JSONValue(parsing: Array(row.string(2).utf8)))
      if names[item.table.folded]?.contains(item.key) == true, !(item.before.isEmpty && item.after.isEmpty) {
        (item.before, item.after) = ([], [])
        changed.append((row.int64(0), row.int64(1), item))
      }
      return true
    }
    for entry in changed {
      try connection.run(
        "UPDATE salvor_recovery_item SET item = ?3 WHERE recovery = ?1 AND place = ?2", .integer(entry.recovery),
        .integer(entry.place), .text(entry.item.json.text))
    }
  }
}
