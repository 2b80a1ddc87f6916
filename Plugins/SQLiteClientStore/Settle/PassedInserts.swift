import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Displaced inserts of rows that the application has inserted again since, which it could do since they are not shown. Below that
/// insert the older one would say nothing, and its values would go with it: it stays in the archive (decision 189).
struct PassedInserts {
  private let context: StoreContext
  private let index: LogIndex

  init(_ context: StoreContext, _ index: LogIndex) {
    self.context = context
    self.index = index
  }

  /// The displaced requests with such an insert, by their first counters. A row that was deleted in between is another one.
  func requests() throws -> Set<Int64> {
    let inserts = try context.archived(where: "state = 'displaced' AND overtaken IS NULL AND op = 'insert'", [])
    guard !inserts.isEmpty else { return [] }
    var later: [RowRef: [(seq: Int64, isInsert: Bool)]] = [:]
    for change in try context.archived(where: "state = 'displaced' AND op <> 'update'", []) {
      let ref = RowRef(table: change.table.number, key: change.key)
      later[ref, default: []].append((change.step.seq, change.step.change.operation == .insert))
    }
    var passed: Set<Int64> = []
    for insert in inserts {
      var others = later[RowRef(table: insert.table.number, key: insert.key)] ?? []
      for entry in try index.entries(insert.table, insert.key) where !entry.operation.isUpdate {
        if try context.isPlainOffer(entry.seq) { continue }
        others.append((entry.seq, entry.operation == .insert))
      }
      let next = others.filter { $0.seq > insert.step.seq }.min { $0.seq < $1.seq }
      if next?.isInsert == true { passed.insert(insert.range.first) }
    }
    return passed
  }
}
