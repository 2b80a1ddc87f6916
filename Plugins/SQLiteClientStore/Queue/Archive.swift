import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Displaced requests: their changes with all values, out of the log and the rows, until they can stand again.
extension StoreContext {
  /// Freezes one change of a request. What becomes of the request is said beside (`setDisplaced`, `keep`).
  ///
  /// - Parameter kept: it is a request of its own, which nobody has met: why it is kept.
  func archive(
    _ step: RowTimeline.Step, of range: RequestRange, _ table: CapturedTable, _ key: Key,
    kept: (reason: String, message: String)? = nil
  ) throws {
    let slots: [Int]
    var before: [Value] = []
    var after: [Value] = []
    switch step.change {
    case .insert(let row):
      slots = Array(table.columns.indices)
      after = row
    case .update(let news):
      slots = news.keys.sorted()
      before = slots.map { step.before?[$0] ?? .null }
      after = slots.map { news[$0] ?? .null }
    case .delete:
      slots = Array(table.columns.indices)
      before = step.before ?? []
    }
    try connection.run(
      """
      INSERT INTO salvor_archive (seq, first, t, op, joined, slots, key, before, after, shown_key, shown_before, shown_after)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
      """,
      [
        .integer(step.seq), .integer(range.first), .integer(table.number), .text(step.change.operation.rawValue),
        .integer(step.isJoined ? 1 : 0), .text(slots.map(String.init).joined(separator: ",")), .text(payload(key)),
        .text(payload(before)), .text(payload(after)),
        key.allSatisfy(\.isPlainJSON)
          ? .null : key.count == 1 ? key[0] : .text(key.map { literal($0) }.joined(separator: ", ")),
        shown(before, slots, table), shown(after, slots, table),
      ])
    guard let kept else { return }
    var row = RequestRow(range)
    (row.state, row.at) = (.kept, clock.now())
    row.setReason(kept.reason, kept.message)
    try store(row)
  }

  /// `name = literal, …`, as the view shows values where JSON has no word for one of them; NULL: the view says them itself.
  func shown(_ values: [Value], _ slots: [Int], _ table: CapturedTable) -> Value {
    if values.allSatisfy(\.isPlainJSON) { return .null }
    return .text(zip(slots, values).map { "\(table.columns[$0].name) = \(literal($1))" }.joined(separator: ", "))
  }

  /// Takes an entry out of the archive.
  func deleteArchived(_ range: RequestRange) throws {
    try connection.run("DELETE FROM salvor_archive WHERE first = ?1", .integer(range.first))
    try forget(range)
  }

  /// Takes one change out of an entry; the entry goes with its last one.
  func takeFromArchive(seq: Int64, of first: Int64) throws {
    try connection.run("DELETE FROM salvor_archive WHERE seq = ?1", .integer(seq))
    if try connection.integer("SELECT 1 FROM salvor_archive WHERE first = ?1 LIMIT 1", .integer(first)) == nil {
      try forget(RequestRange(first: first, last: first))
    }
  }

  struct ArchivedChange {
    var request: RequestRow
    var id: RequestID
    var table: CapturedTable
    var key: Key
    var step: RowTimeline.Step
    var slots: [Int]
    var before: [Value]
    var after: [Value]

    var range: RequestRange { request.range }
  }

  /// Archived changes in order.
  ///
  /// - Parameter condition: on the change (`salvor_archive`), and on its request (`r`).
  func archived(where condition: String, _ values: [Value]) throws -> [ArchivedChange] {
    var found: [ArchivedChange] = []
    let retired = try retiredTables()
    for row in try connection.rows(
      """
      SELECT seq, first, t, op, joined, slots, key, before, after
      FROM salvor_archive JOIN (SELECT first AS request, state, state_before, reason, overtaken FROM salvor_outstanding) r ON r.request = first
      WHERE \(condition) ORDER BY first, seq
      """, values)
    {
      guard let seq = row[0].integer, let first = row[1].integer,
        let table = row[2].integer.flatMap({ catalog.table(number: $0) ?? retired[$0] }),
        let operation = row[3].string.flatMap({ Operation(rawValue: $0) })
      else { continue }
      var known = found.last.map { ($0.request, $0.id) }
      if known?.0.range.first != first {
        known = (try self.row(of: RequestRange(first: first, last: first)), try requestID(first: first))
      }
      guard let (request, id) = known else { continue }
      let slots = (row[5].string ?? "").split(separator: ",").compactMap { Int($0) }
      let key = try unpayload(row[6])
      let before = try unpayload(row[7])
      let after = try unpayload(row[8])
      var step = step(seq, operation, slots, before: before, after: after, table)
      step.isJoined = row[4].integer == 1
      found.append(
        ArchivedChange(
          request: request, id: id, table: table, key: key, step: step, slots: slots, before: before, after: after))
    }
    return found
  }

  /// A change, from the values of its slots.
  func step(
    _ seq: Int64, _ operation: Operation, _ slots: [Int], before: [Value], after: [Value], _ table: CapturedTable
  ) -> RowTimeline.Step {
    let change: RowChange
    switch operation {
    case .insert: change = .insert(padded(after, table))
    case .update: change = .update(Dictionary(uniqueKeysWithValues: zip(slots, after)))
    case .delete: change = .delete
    }
    let saw = operation == .insert || before.isEmpty ? nil : whole(before, slots, table)
    return RowTimeline.Step(seq: seq, change: change, isJoined: false, before: saw, after: nil, saw: saw)
  }

  /// By number.
  func retiredTables() throws -> [Int64: CapturedTable] {
    var tables: [Int64: CapturedTable] = [:]
    for row in try connection.rows("SELECT id, name, keys FROM salvor_retired_table") {
      guard let number = row[0].integer, let name = row[1].string, let keys = row[2].integer else { continue }
      let slots = try connection.rows("SELECT name FROM salvor_column WHERE t = ?1 ORDER BY slot", .integer(number))
      tables[number] = CapturedTable(
        retired: number, name: name, slots: slots.compactMap { $0[0].string }, keyCount: Int(keys))
    }
    return tables
  }

  /// Values of some slots as a row.
  private func whole(_ values: [Value], _ slots: [Int], _ table: CapturedTable) -> SlotRow {
    var row = SlotRow(repeating: .null, count: table.columns.count)
    for (slot, value) in zip(slots, values) where slot < row.count { row[slot] = value }
    return row
  }

  /// A whole row from before a column was added has that column's default.
  func padded(_ row: [Value], _ table: CapturedTable) -> SlotRow {
    guard row.count < table.columns.count else { return row }
    let columns = schema.table(table.name)?.columns ?? []
    return row
      + table.columns[row.count...].map { column in
        columns.first { $0.name.folded == column.name.folded }?.defaultValue ?? .null
      }
  }
}

extension Value {
  /// It stands in JSON as what it is.
  fileprivate var isPlainJSON: Bool {
    switch self {
    case .blob: false
    case .real(let number): number.isFinite
    default: true
    }
  }
}

/// Values as the payload writes them: a JSON array.
func payload(_ values: [Value]) -> [UInt8] {
  var writer = PayloadWriter()
  writer.raw("[")
  for (place, value) in values.enumerated() {
    if place > 0 { writer.comma() }
    writer.value(value)
  }
  writer.raw("]")
  return writer.bytes
}

func unpayload(_ text: Value) throws -> [Value] {
  guard case .text(let bytes) = text else { return [] }
  return try bytes.withUnsafeBufferPointer { buffer in
    var reader = PayloadReader(buffer)
    var values: [Value] = []
    try reader.beginArray()
    var isFirst = true
    while try reader.nextElement(&isFirst) { values.append(try reader.item().value) }
    return values
  }
}
