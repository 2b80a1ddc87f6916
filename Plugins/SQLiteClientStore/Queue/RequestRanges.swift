import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Sorts log rows into requests, once each, into `OutstandingTable`. A request is
///
/// - what stands between an open and a close marker,
/// - a key change: the joined delete and the insert after it; also the rows that REPLACE removed, and what replaced them,
/// - a cascade: the rows that a foreign key action deleted or unlinked stand directly before the delete that caused it
///   (SQLite fires the children's triggers first), and their trigger found the parent gone,
/// - any other single row, which needs no range.
///
/// The log is read backwards, so that a cascade's cause is met before its effects; memory follows one request.
struct RequestSorting {
  let context: StoreContext

  /// A foreign key between captured tables that acts by itself, on the parent's primary key.
  private struct Rule {
    var child: Int64
    var slots: [Int]
    var parent: Int64
    var deletes: Bool
  }

  init(_ context: StoreContext) { self.context = context }

  /// Asked where there is something to sort.
  private func rules() throws -> [Rule] {
    var rules: [Rule] = []
    for table in context.catalog.tables {
      for key in try context.connection.tableShape(table.name)?.foreignKeys ?? [] {
        guard let parent = context.catalog.table(key.parent) else { continue }
        let slots = key.columns.compactMap { name in
          table.columns.firstIndex { $0.name.folded == name.folded }
        }
        let target = key.parentColumns.isEmpty ? parent.key.map(\.name) : key.parentColumns
        let acts = [key.onDelete, key.onUpdate].contains { $0 != "NO ACTION" && $0 != "RESTRICT" }
        guard acts, slots.count == parent.keyCount,
          target.map({ $0.folded }) == parent.key.map({ $0.name.folded })
        else { continue }
        rules.append(
          Rule(child: table.number, slots: slots, parent: parent.number, deletes: key.onDelete == "CASCADE"))
      }
    }
    return rules
  }

  /// Sorts what has come since the last time, up to an open group. In a transaction.
  func sort() throws {
    let connection = context.connection
    try connection.note(try CaptureOrder(context: context).mend(), at: context.clock.now())
    let done = try connection.state(.rangesUpTo)?.integer ?? 0
    let isOpen = try connection.integer("SELECT 1 FROM salvor_request LIMIT 1") != nil
    let open =
      isOpen
      ? try connection.integer("SELECT max(seq) FROM salvor_log WHERE op = \(LogOperation.open.rawValue)") : nil
    let end = try open.map { $0 - 1 } ?? connection.lastCounter()
    guard end > done else {
      try forgetWithdrawn(upTo: done)
      return
    }
    let (ranges, markers) = try read(from: done, to: end)
    for range in ranges { try context.store(RequestRow(range)) }
    if markers {
      try context.deleteLogRows(
        where: "seq > ?1 AND seq <= ?2 AND op IN (\(LogOperation.open.rawValue), \(LogOperation.close.rawValue))",
        [.integer(done), .integer(end)], areMarkers: true)
    }
    try connection.setState(.rangesUpTo, .integer(end))
    try connection.run(
      "INSERT OR REPLACE INTO salvor_met (first_seq, at) VALUES (?1, ?2)", .integer(done + 1),
      .integer(context.clock.now()))
    try forgetWithdrawn(upTo: end)
  }

  /// Deletes whose mark was taken back leave the log, and a request that has no other change is none any more. The trigger
  /// has noted that the log changed.
  private func forgetWithdrawn(upTo end: Int64) throws {
    let connection = context.connection
    let withdrawn = try connection.rows("SELECT seq FROM salvor_withdrawn WHERE seq <= ?1", .integer(end)).compactMap {
      $0[0].integer
    }
    guard !withdrawn.isEmpty else { return }
    for seq in withdrawn {
      let range = try context.range(of: seq)
      let first = try connection.integer(
        "SELECT min(seq) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations)",
        .integer(range.first), .integer(range.last))
      if let first, first != range.first {
        try context.moveStart(of: range, to: first)
      } else if first == nil {
        try context.forget(range)
      }
    }
    try context.deleteLogRows(
      where: "seq IN (SELECT seq FROM salvor_withdrawn WHERE seq <= ?1)", [.integer(end)], areMarkers: true)
    try context.forgetStored()
    try connection.run("DELETE FROM salvor_withdrawn WHERE seq <= ?1", .integer(end))
  }

  private func read(from start: Int64, to end: Int64) throws -> ([RequestRange], markers: Bool) {
    let single = [LogOperation.watermark, .insert, .update, .delete].map { "\($0.rawValue)" }.joined(separator: ", ")
    // Nearly always each change is a request of its own.
    guard
      try context.connection.integer(
        "SELECT 1 FROM salvor_log WHERE seq > ?1 AND seq <= ?2 AND op NOT IN (\(single)) LIMIT 1", .integer(start),
        .integer(end)) != nil
    else { return ([], false) }
    let rules = try rules()
    var ranges: [RequestRange] = []
    var current: (first: Int64, last: Int64)?
    var members: Set<RowRef> = []
    var group: (first: Int64, last: Int64)?
    /// What stands directly before this belongs to the change that it is joined with.
    var next: Int64 = 0
    var inGroup = false
    var sawMarkers = false
    func flush() {
      if let range = current, range.last > range.first {
        ranges.append(RequestRange(first: range.first, last: range.last))
      }
      current = nil
      members.removeAll(keepingCapacity: true)
    }
    try context.connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq > ?1 AND seq <= ?2 ORDER BY seq DESC",
      [.integer(start), .integer(end)]
    ) { row in
      let seq = row.int64(0)
      guard let operation = LogOperation(rawValue: row.int64(2)) else { return true }
      switch operation {
      case .watermark: return true
      case .withdrawn: if !inGroup { flush() }
      case .withdrawnJoined: if next == seq + 1 { next = seq }
      case .close:
        flush()
        inGroup = true
        sawMarkers = true
        group = nil
      case .open:
        flush()
        sawMarkers = true
        if inGroup, let group {
          let tag = row.optionalString(3 + context.catalog.maskCount)
          if group.last > group.first || tag != nil {
            ranges.append(RequestRange(first: group.first, last: group.last, tag: tag))
          }
        }
        inGroup = false
      default:
        if inGroup {
          group = (seq, group?.last ?? seq)
          return true
        }
        if let range = current, next == seq + 1,
          try operation.isJoined
            || (operation.isCascaded && !members.isEmpty && belongs(row, operation, to: members, rules))
        {
          current = (seq, range.last)
        } else {
          flush()
          current = (seq, seq)
        }
        next = seq
        if !rules.isEmpty, [.delete, .joinedDelete, .cascadedDelete].contains(operation) {
          let entry = try context.catalog.entry(from: row)
          if let table = context.catalog.table(number: entry.table) {
            members.insert(RowRef(table: entry.table, key: entry.key(table)))
          }
        }
      }
      return true
    }
    flush()
    return (ranges, sawMarkers)
  }

  /// Whether a foreign key action of one of the deletes in `members` made this change.
  private func belongs(_ row: SQLiteStatement, _ operation: LogOperation, to members: Set<RowRef>, _ rules: [Rule])
    throws
    -> Bool
  {
    let number = row.int64(1)
    guard rules.contains(where: { $0.child == number }) else { return false }
    let entry = try context.catalog.entry(from: row)
    return rules.contains { rule in
      guard rule.child == number, operation.isUpdate || rule.deletes else { return false }
      if operation.isUpdate, !rule.slots.contains(where: { entry.mask[$0] }) { return false }
      return members.contains(RowRef(table: rule.parent, key: rule.slots.map { entry.values[$0] }))
    }
  }
}
