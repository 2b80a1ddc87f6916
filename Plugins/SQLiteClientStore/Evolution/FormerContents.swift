import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Notes what waiting requests are before columns or tables that they wrote are dropped (`RequestRow.former`). A file that was put back from a
/// copy does not know that they were sent: the server has settled them with all their columns, and knows them by that alone.
struct FormerContents {
  /// With the names and columns of before.
  let context: StoreContext
  /// As the server had the tables when the requests were sent.
  let definitions: [Table]

  /// - Parameters:
  ///   - columns: by the table's former name.
  ///   - tables: that are dropped. A request that is of nothing else goes with them.
  func note(columns: [(table: String, column: String)], tables: [String]) throws {
    let dropped = Set(tables.map(\.folded))
    var affected: Set<RequestRange> = []
    var contents: [Int64: UInt64] = [:]
    let index = try LogIndex(context)
    for table in context.catalog.tables {
      guard let definition = definitions.first(where: { $0.name.folded == table.name.folded }) else { continue }
      let slots = Set(
        columns.filter { $0.table.folded == table.name.folded }.compactMap { dropped in
          table.columns.firstIndex { $0.name.folded == dropped.column.folded }
        })
      let isDropped = dropped.contains(table.name.folded)
      let sent = Sent(table, definition)
      try index.eachRow(of: table) { key in
        for step in try index.timeline(table, key).steps {
          contents[step.seq] = sent.change(step, key).content(definition)
          if isDropped || step.writes(slots) { affected.insert(try context.range(of: step.seq)) }
        }
      }
    }
    for range in affected {
      let content = RequestContent((range.first...range.last).compactMap { contents[$0] }).bits
      try context.change(range) { row in
        row.former = (row.former + [FormerContent(first: range.first, content: content)]).suffix(FormerContent.countMax)
      }
    }
  }

  /// How changes of a table are sent.
  private struct Sent {
    let table: CapturedTable
    /// Slots with the columns' names, in the schema's order.
    let slots: [(slot: Int, name: String)]

    init(_ table: CapturedTable, _ definition: Table) {
      self.table = table
      slots = definition.travelling.compactMap { column in
        table.columns.firstIndex { $0.name.folded == column.name.folded }.map { ($0, column.name) }
      }
    }

    func change(_ step: RowTimeline.Step, _ key: Key) -> UploadedChange {
      var columns: [UploadedColumn] = []
      switch step.change {
      case .insert(let row): columns = slots.map { UploadedColumn($0.name, new: row[$0.slot]) }
      case .update(let news):
        columns = slots.filter { news[$0.slot] != nil }.sorted { $0.slot < $1.slot }.map { column in
          UploadedColumn(column.name, new: news[column.slot] ?? .null)
        }
      case .delete: break
      }
      return UploadedChange(
        counter: step.seq, made: 0, table: table.name, key: key, operation: step.change.operation, columns: columns)
    }
  }
}

extension RowTimeline.Step {
  /// It gives one of the slots a value.
  fileprivate func writes(_ slots: Set<Int>) -> Bool {
    switch change {
    case .insert(let row): slots.contains { !row[$0].isNull }
    case .update(let news): slots.contains { news[$0] != nil }
    case .delete: false
    }
  }
}
