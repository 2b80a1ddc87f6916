import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A row that the server has lost and that a row with requests references is made again, up to the root: a queued insert of its own, and
/// an offer where its version is known, whoever wrote it. So a row that this device offers waits for nobody.
struct LostParents {
  private let context: StoreContext
  private let offers: Offers
  private let watch: BaseWatch
  private let offered: OfferedRows

  init(_ context: StoreContext, _ offers: Offers, _ watch: BaseWatch, _ offered: OfferedRows) {
    self.context = context
    self.offers = offers
    self.watch = watch
    self.offered = offered
  }

  /// Answers with the counters of the inserts.
  func makeAgain(_ rows: WorkingRows) throws -> Set<Int64> {
    var made: Set<Int64> = []
    let lost = try watch.lostTables()
    let tables = context.schema.tables.compactMap { context.catalog.table($0.name) }
    let parents = tables.filter { lost.contains($0.number) && context.table($0)?.maintained == .dual }
    guard !parents.isEmpty else { return made }
    try offered.noteBusy(rows)
    for table in tables where !context.references(of: table, to: parents).isEmpty {
      let isChild = context.references(of: table, to: parents).map { slot, parent in
        watch.isHeld(parent, by: table.tableColumn(slot))
      }.joined(separator: " OR ")
      // Of a row in work the table does not know all yet.
      let mayBeChild =
        "(\(offered.isBusy("i")) OR EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "i.k\($0)" }) AND (\(isChild))))"
      try rows.index.eachRow(of: table, where: mayBeChild) { key in
        guard let row = try shown(table, key, rows) else { return }
        var waiting = [(table, row)]
        while let (child, row) = waiting.popLast() {
          for (slot, parent) in context.references(of: child, to: parents) where row[slot] != .null {
            let key = [row[slot]]
            guard let counter = try makeAgain(parent, key, rows) else { continue }
            made.insert(counter)
            if let row = try shown(parent, key, rows) { waiting.append((parent, row)) }
          }
        }
      }
    }
    return made
  }

  private func makeAgain(_ parent: CapturedTable, _ key: Key, _ rows: WorkingRows) throws -> Int64? {
    // One that a request inserted, too, is there already.
    guard try watch.isHeld(parent, key), try rows.load(parent, key).timeline.steps.isEmpty else { return nil }
    let version = try offers.neededVersion(parent, key)
    // In place it stands in its table until now; a table that was made anew does not have it.
    let stands = try watch.fate(of: parent, key) == .lost
    let counter =
      try stands ? rows.makeAgainAlone(parent, key) : rows.makeAgain(parent, key, as: watch.was(parent, key))
    guard let counter else { return nil }
    if let version { try offers.mark(counter, version, isForReview: offers.mode(of: parent) == .review) }
    try watch.settle(parent, key)
    return counter
  }

  /// The row as it will be; nil where it has no requests any more.
  private func shown(_ table: CapturedTable, _ key: Key, _ rows: WorkingRows) throws -> SlotRow? {
    guard let work = rows.rows[RowRef(table: table.number, key: key)] else {
      return try rows.index.entries(table, key).isEmpty ? nil : context.currentRow(table, key)
    }
    return work.timeline.steps.isEmpty ? nil : work.timeline.current
  }
}

extension StoreContext {
  /// The references of a table to some others, each by the slot of its column.
  func references(of table: CapturedTable, to parents: [CapturedTable]) -> [(Int, CapturedTable)] {
    (self.table(table)?.references ?? []).compactMap { reference in
      guard let parent = parents.first(where: { $0.name.folded == reference.table.folded }),
        parent.keyCount == 1,
        let slot = table.columns.firstIndex(where: { $0.name.folded == reference.column.folded })
      else { return nil }
      return (slot, parent)
    }
  }
}
