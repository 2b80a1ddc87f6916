import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Why a request is displaced: what its entry of the archive says.
enum DisplacementReason: String {
  /// An update of a row that is not there.
  case rowGone = "row-gone"
  /// A unique value that another row has, or a row that the table does not take.
  case constraint
  case missingParent = "missing-parent"
  /// It depends on one that is displaced.
  case blocked

  var message: String {
    switch self {
    case .rowGone: "The row that it changes is not there."
    case .constraint: "What the server has is in its way, or the table does not take the row."
    case .missingParent: "The row that it needs is not there."
    case .blocked: "It depends on a change that cannot stand beside what the server has."
    }
  }
}

/// Displaced requests: their changes with all values, out of the log and the rows, until they can stand again.
extension StoreContext {
  /// Freezes one change of a request that is displaced, or kept for a reason.
  func archive(
    _ step: RowTimeline.Step, of range: RequestRange, _ table: CapturedTable, _ key: Key,
    state: RequestState = .displaced, reason: String? = nil, message: String? = nil
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
      INSERT INTO salvor_archive (seq, first, last, stamp, tag, t, op, joined, slots, key, before, after, state, reason, message, at, shown_key, shown_before, shown_after)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?14, ?15, ?16, ?13, ?17, ?18, ?19)
      """,
      [
        .integer(step.seq), .integer(range.first), .integer(range.last), .text(try stamp(of: range.first).text),
        range.tag.map { .text($0) } ?? .null, .integer(table.number), .text(step.change.operation.rawValue),
        .integer(step.isJoined ? 1 : 0), .text(slots.map(String.init).joined(separator: ",")), .text(payload(key)),
        .text(payload(before)), .text(payload(after)), .integer(clock.now()),
        .text(state.rawValue), reason.map { .text($0) } ?? .null, message.map { .text($0) } ?? .null,
        key.allSatisfy(\.isPlainJSON)
          ? .null : key.count == 1 ? key[0] : .text(key.map { literal($0) }.joined(separator: ", ")),
        shown(before, slots, table), shown(after, slots, table),
      ])
  }

  /// `name = literal, …`, as the view shows values where JSON has no word for one of them; NULL: the view says them itself.
  func shown(_ values: [Value], _ slots: [Int], _ table: CapturedTable) -> Value {
    if values.allSatisfy(\.isPlainJSON) { return .null }
    return .text(zip(slots, values).map { "\(table.columns[$0].name) = \(literal($1))" }.joined(separator: ", "))
  }

  /// The request is in the archive as a whole: what it was before goes with it. One that was in error keeps its reason.
  func closeArchive(of range: RequestRange, _ reason: DisplacementReason) throws {
    try connection.run(
      """
      UPDATE salvor_archive SET (state_before, reason, status, message, blocked_by) =
        (SELECT state, reason, status, message, blocked_by FROM salvor_request_state s WHERE s.first = salvor_archive.first)
      WHERE first = ?1 AND state = 'displaced' AND EXISTS (SELECT 1 FROM salvor_request_state s WHERE s.first = salvor_archive.first)
      """, .integer(range.first))
    try connection.run("DELETE FROM salvor_request_state WHERE first = ?1", .integer(range.first))
    try connection.run(
      "UPDATE salvor_archive SET reason = ?2, message = ?3 WHERE first = ?1 AND state = 'displaced' AND reason IS NULL",
      .integer(range.first), .text(reason.rawValue), .text(reason.message))
    // One that was sent belongs to its upload until that is settled.
    if let last = try connection.state(.uploadLast)?.integer, range.first <= last {
      try connection.run(
        "UPDATE salvor_archive SET state_before = 'sent' WHERE first = ?1 AND state = 'displaced' AND state_before IS NULL "
          + "AND NOT EXISTS (SELECT 1 FROM salvor_upload_excluded e WHERE e.first = ?1)", .integer(range.first))
    }
  }

  /// Takes an entry out of the archive.
  func deleteArchived(_ range: RequestRange) throws {
    try connection.run("DELETE FROM salvor_archive WHERE first = ?1", .integer(range.first))
    try forget(range)
  }

  struct ArchivedChange {
    var range: RequestRange
    var stamp: RequestStamp
    var table: CapturedTable
    var key: Key
    var step: RowTimeline.Step
    var slots: [Int]
    var before: [Value]
    var after: [Value]
    var state: RequestState
    var stateBefore: RequestState?
    var reason: String?
    var status: Int?
    var message: String?
    var blockedBy: String?
  }

  /// Archived changes in order.
  func archived(where condition: String, _ values: [Value]) throws -> [ArchivedChange] {
    var found: [ArchivedChange] = []
    let retired = try retiredTables()
    for row in try connection.rows(
      """
      SELECT seq, first, last, stamp, tag, t, op, joined, slots, key, before, after, state, state_before, reason, status, message, blocked_by
      FROM salvor_archive WHERE \(condition) ORDER BY first, seq
      """, values)
    {
      guard let seq = row[0].integer, let first = row[1].integer, let last = row[2].integer,
        let stamp = row[3].string.flatMap({ RequestStamp($0) }),
        let table = row[5].integer.flatMap({ catalog.table(number: $0) ?? retired[$0] }),
        let operation = row[6].string.flatMap({ Operation(rawValue: $0) }),
        let state = row[12].string.flatMap({ RequestState(rawValue: $0) })
      else { continue }
      let slots = (row[8].string ?? "").split(separator: ",").compactMap { Int($0) }
      let key = try unpayload(row[9])
      let before = try unpayload(row[10])
      let after = try unpayload(row[11])
      let change: RowChange
      switch operation {
      case .insert: change = .insert(padded(after, table))
      case .update: change = .update(Dictionary(uniqueKeysWithValues: zip(slots, after)))
      case .delete: change = .delete
      }
      let saw = operation == .insert || before.isEmpty ? nil : whole(before, slots, table)
      found.append(
        ArchivedChange(
          range: RequestRange(first: first, last: last, tag: row[4].string), stamp: stamp, table: table, key: key,
          step: RowTimeline.Step(
            seq: seq, change: change, isJoined: row[7].integer == 1, before: saw, after: nil, saw: saw),
          slots: slots, before: before, after: after, state: state,
          stateBefore: row[13].string.flatMap { RequestState(rawValue: $0) }, reason: row[14].string,
          status: row[15].integer.map { Int($0) }, message: row[16].string, blockedBy: row[17].string))
    }
    return found
  }

  /// By number.
  private func retiredTables() throws -> [Int64: CapturedTable] {
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
        columns.first { $0.name.lowercased() == column.name.lowercased() }?.defaultValue ?? .null
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
