import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The lines of a recovery's report: requests in their order, lost rows, rows kept aside. Each is written where it belongs as it comes: its
/// place has its part, and the counter of its change or how many lines came before it.
final class RecoveryRecord {
  private enum Part: Int64 {
    case request, row, aside, givenUp, version
  }

  let context: StoreContext
  private let number: Int64
  private let insert: SQLiteStatement
  private var count: Int64 = 0

  init(_ context: StoreContext) throws {
    self.context = context
    number = (try context.connection.integer("SELECT max(number) FROM salvor_recovery") ?? 0) + 1
    insert = try context.connection.prepare(
      "INSERT INTO salvor_recovery_item (recovery, place, item) VALUES (?1, ?2, ?3)", persistent: true)
  }

  private func add(_ part: Part, _ item: RecoveryItem) throws {
    count += 1
    try add(part, count, item.json.bytes)
  }

  private func add(_ part: Part, _ place: Int64, _ line: [UInt8]) throws {
    try insert.bind(1, number)
    try insert.bind(2, part.rawValue << 60 | place)
    try insert.bind(3, .text(line))
    try insert.run()
  }

  /// A line that is written already, as `RecoveryItem.json` does.
  func request(seq: Int64, _ line: [UInt8]) throws { try add(.request, seq, line) }

  func request(
    _ range: RequestRange, state fate: RecoveryItem.Fate, reason: String?, _ changes: [OutstandingRequest.Change]
  ) throws {
    let id = try context.requestID(first: range.first)
    for change in changes {
      let (before, after) = change.step.named(change.table)
      let item = RecoveryItem(
        fate: fate, request: id, table: change.table.name, key: change.key,
        operation: change.step.change.operation, before: before, after: after, reason: reason)
      try request(seq: change.step.seq, item.json.bytes)
    }
  }

  func archived(_ change: StoreContext.ArchivedChange) throws {
    let names = change.slots.map { change.table.columns[$0].name }
    let item = RecoveryItem(
      fate: change.request.state == .displaced ? .displaced : .discarded, request: change.id,
      table: change.table.name, key: change.key, operation: change.step.change.operation,
      before: zip(names, change.before).map { NamedValue($0, $1) },
      after: zip(names, change.after).map { NamedValue($0, $1) },
      reason: change.request.state == .displaced ? "displaced" : change.request.reason)
    try request(seq: change.step.seq, item.json.bytes)
  }

  /// A change that the server had kept as a conflict version, or a delete that it held.
  func version(_ version: LostKeptVersion, _ fate: RecoveryItem.Fate) throws {
    let names = version.slots.map { version.table.columns[$0].name }
    let item = RecoveryItem(
      fate: fate, request: RequestID(stamp: version.stamp, counter: version.first), table: version.table.name,
      key: version.key, operation: version.operation, before: zip(names, version.before).map { NamedValue($0, $1) },
      after: zip(names, version.after).map { NamedValue($0, $1) }, reason: "version-lost-on-server")
    try add(.version, item)
  }

  /// A value that the server had acknowledged in a column that is dropped.
  func dropped(_ value: DroppedValue, _ step: RowTimeline.Step) throws {
    let (_, after) = step.named(value.table)
    try add(
      .version,
      RecoveryItem(
        fate: .lost, request: nil, table: value.table.name, key: value.key, operation: .update, before: [],
        after: after, reason: "lost-on-server"))
  }

  func row(
    _ fate: RecoveryItem.Fate, _ table: CapturedTable, _ key: Key, _ step: RowTimeline.Step, reason: String
  ) throws {
    let (before, after) = step.named(table)
    try add(
      .row,
      RecoveryItem(
        fate: fate, request: nil, table: table.name, key: key, operation: step.change.operation, before: before,
        after: after, reason: reason))
  }

  /// Client-only rows that were kept aside after the entry `last` of `salvor_aside`.
  func aside(after last: Int64) throws {
    for row in try rowsAside(after: last) {
      try add(
        .aside,
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
        row.first { $0.name.folded == column.folded }?.value
      }
      return (name, key, row)
    }
  }

  func givenUp(_ item: RecoveryItem) throws { try add(.givenUp, item) }

  func write(_ report: RecoveryReport) throws {
    try context.connection.run(
      "INSERT INTO salvor_recovery (number, id, at, report) VALUES (?1, ?2, ?3, ?4)", .integer(number),
      .text(report.id), .integer(report.time), .text(report.json.text))
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
