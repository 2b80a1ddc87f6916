import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The lines of a recovery's report, collected in a temporary table and written in order: requests, lost rows, rows kept
/// aside.
final class RecoveryRecord {
  private enum Part: Int64 {
    case request, row, aside, givenUp
  }

  let context: StoreContext
  private let insert: SQLiteStatement
  private var count: Int64 = 0

  init(_ context: StoreContext) throws {
    self.context = context
    try context.connection.execute(
      "CREATE TABLE IF NOT EXISTS temp.salvor_line (part, first, id, item, PRIMARY KEY (part, first, id)) WITHOUT ROWID; DELETE FROM temp.salvor_line"
    )
    insert = try context.connection.prepare(
      "INSERT INTO temp.salvor_line (part, first, id, item) VALUES (?1, ?2, ?3, ?4)", persistent: true)
  }

  private func add(_ part: Part, _ first: Int64, _ item: RecoveryItem) throws {
    try add(part, first, item.json.bytes)
  }

  private func add(_ part: Part, _ first: Int64, _ line: [UInt8]) throws {
    count += 1
    try insert.bind(1, part.rawValue)
    try insert.bind(2, first)
    try insert.bind(3, count)
    try insert.bind(4, .text(line))
    try insert.run()
  }

  /// A line that is written already, as `RecoveryItem.json` does.
  func request(first: Int64, _ line: [UInt8]) throws { try add(.request, first, line) }

  func request(
    _ range: RequestRange, state fate: RecoveryItem.Fate, reason: String?, _ changes: [OutstandingRequest.Change]
  ) throws {
    let id = try context.requestID(first: range.first)
    for change in changes {
      let (before, after) = change.step.named(change.table)
      try add(
        .request, range.first,
        RecoveryItem(
          fate: fate, request: id, table: change.table.name, key: change.key,
          operation: change.step.change.operation, before: before, after: after, reason: reason))
    }
  }

  func archived(_ change: StoreContext.ArchivedChange) throws {
    let names = change.slots.map { change.table.columns[$0].name }
    try add(
      .request, change.range.first,
      RecoveryItem(
        fate: .discarded, request: RequestID(stamp: change.stamp, counter: change.range.first),
        table: change.table.name, key: change.key, operation: change.step.change.operation,
        before: zip(names, change.before).map { NamedValue($0, $1) },
        after: zip(names, change.after).map { NamedValue($0, $1) },
        reason: change.state == .displaced ? "displaced" : change.reason))
  }

  func row(
    _ fate: RecoveryItem.Fate, _ table: CapturedTable, _ key: Key, _ step: RowTimeline.Step, reason: String
  ) throws {
    let (before, after) = step.named(table)
    try add(
      .row, 0,
      RecoveryItem(
        fate: fate, request: nil, table: table.name, key: key, operation: step.change.operation, before: before,
        after: after, reason: reason))
  }

  /// Client-only rows that were kept aside after the entry `last` of `salvor_aside`.
  func aside(after last: Int64) throws {
    for row in try rowsAside(after: last) {
      try add(
        .aside, 0,
        RecoveryItem(
          fate: .aside, request: nil, table: row.table, key: row.key, operation: nil, before: [], after: row.values,
          reason: "parent-gone"))
    }
  }

  func rowsAside(after last: Int64) throws -> [(table: String, key: Key, values: [NamedValue])] {
    try context.connection.rows(
      "SELECT name, columns, payload FROM salvor_aside WHERE id > ?1 ORDER BY id", .integer(last)
    ).map { entry in
      let name = entry[0].string ?? ""
      let columns = try unpayload(entry[1]).compactMap(\.string)
      let row = zip(columns, try unpayload(entry[2])).map { NamedValue($0, $1) }
      let key = (context.schema.table(name)?.primaryKey ?? []).compactMap { column in
        row.first { $0.name.lowercased() == column.lowercased() }?.value
      }
      return (name, key, row)
    }
  }

  func givenUp(_ item: RecoveryItem) throws { try add(.givenUp, 0, item) }

  func write(_ report: RecoveryReport) throws {
    let connection = context.connection
    try connection.run(
      "INSERT INTO salvor_recovery (id, at, report) VALUES (?1, ?2, ?3)", .text(report.id), .integer(report.time),
      .text(report.json.text))
    try connection.run(
      "INSERT INTO salvor_recovery_item (recovery, place, item) SELECT ?1, row_number() OVER (ORDER BY part, first, id), item FROM temp.salvor_line",
      .integer(connection.lastInsertRowID))
    try connection.run("DELETE FROM temp.salvor_line")
  }
}

extension RowTimeline.Step {
  /// Before: changed columns of an update, the whole row of a delete. After: changed columns, the whole row of an insert.
  func named(_ table: CapturedTable) -> (before: [NamedValue], after: [NamedValue]) {
    func named(_ row: SlotRow?, _ slots: some Sequence<Int>) -> [NamedValue] {
      guard let row else { return [] }
      return slots.map { NamedValue(table.columns[$0].name, row[$0]) }
    }
    switch change {
    case .insert(let row): return ([], named(row, table.columns.indices))
    case .update(let news):
      let slots = news.keys.sorted()
      return (named(before, slots), slots.map { NamedValue(table.columns[$0].name, news[$0] ?? .null) })
    case .delete: return (named(before, table.columns.indices), [])
    }
  }
}

extension RecoveryItem {
  /// Back from `json`, as `salvor_recovery_item` has it.
  init(stored json: JSONValue) throws {
    func values(_ name: String) -> [NamedValue] {
      (json[name]?.members ?? []).compactMap { member in
        member.value.rowValue.map { NamedValue(member.key, $0) }
      }
    }
    guard let fate = Fate(rawValue: try json.string("fate")) else {
      throw SalvorError(.storageCorrupt, "salvor_recovery_item has a line of an unknown kind.")
    }
    self.init(
      fate: fate, request: try json.optionalString("id").flatMap { RequestID($0) }, table: try json.string("table"),
      key: (json["key"]?.array ?? []).compactMap(\.rowValue),
      operation: try json.optionalString("operation").flatMap { Operation(rawValue: $0) }, before: values("before"),
      after: values("after"), reason: try json.optionalString("reason"))
  }
}
