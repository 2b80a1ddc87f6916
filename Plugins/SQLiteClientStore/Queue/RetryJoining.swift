import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A failed request and the later edits of its rows become one request with a new ID, made on the rows as they are now
/// (semantics 8, *Fix and retry*). Failed requests without a later edit stay as they are.
struct RetryJoining {
  let context: StoreContext

  /// In a transaction, with nothing under way.
  func run() throws {
    guard try context.connection.integer("SELECT 1 FROM salvor_request_state LIMIT 1") != nil else { return }
    let requests = try context.outstanding(asCaptured: false)
    var joined: Set<Int> = []
    for start in requests.indices where requests[start].state != .queued && !joined.contains(start) {
      let cluster = cluster(of: start, requests)
      guard cluster.contains(where: { requests[$0].state == .queued && $0 > start }) else { continue }
      joined.formUnion(cluster)
      try join(cluster.sorted().map { requests[$0] })
    }
  }

  /// A request, the outstanding requests on its rows, and so on.
  private func cluster(of start: Int, _ requests: [OutstandingRequest]) -> Set<Int> {
    var cluster: Set<Int> = [start]
    var rows = rows(of: requests[start])
    var grew = true
    while grew {
      grew = false
      for index in requests.indices where !cluster.contains(index) {
        let own = self.rows(of: requests[index])
        guard !own.isDisjoint(with: rows) else { continue }
        cluster.insert(index)
        rows.formUnion(own)
        grew = true
      }
    }
    return cluster
  }

  private func rows(of request: OutstandingRequest) -> Set<RowRef> {
    Set(request.changes.map { RowRef(table: $0.table.number, key: $0.key) })
  }

  /// All changes of the rows are in the cluster: each row's become one, from its base to what it is now.
  private func join(_ members: [OutstandingRequest]) throws {
    let connection = context.connection
    var order: [(table: CapturedTable, key: Key, base: SlotRow?, current: SlotRow?)] = []
    for change in members.flatMap(\.changes) {
      if let place = order.firstIndex(where: { $0.table.number == change.table.number && $0.key == change.key }) {
        order[place].current = change.step.after
      } else {
        order.append((change.table, change.key, change.step.before, change.step.after))
      }
    }
    let first = try connection.lastCounter() + 1
    for row in order { try insert(row.table, row.key, row.base, row.current) }
    let last = try connection.lastCounter()
    for member in members {
      try connection.run(
        "DELETE FROM salvor_log WHERE seq BETWEEN ?1 AND ?2", .integer(member.range.first), .integer(member.range.last))
      try connection.run("DELETE FROM salvor_range WHERE first = ?1", .integer(member.range.first))
      try connection.run("DELETE FROM salvor_request_state WHERE first = ?1", .integer(member.range.first))
    }
    try context.noteLogChange()
    let tag = members.compactMap(\.range.tag).first
    if last > first || (last == first && tag != nil) {
      try connection.run(
        "INSERT INTO salvor_range (first, last, tag) VALUES (?1, ?2, ?3)", .integer(first), .integer(last),
        tag.map { .text($0) } ?? .null)
    }
    try connection.setState(.rangesUpTo, .integer(try connection.lastCounter()))
  }

  private func insert(_ table: CapturedTable, _ key: Key, _ base: SlotRow?, _ current: SlotRow?) throws {
    let operation: LogOperation
    var mask = LogMask(columns: table.columns.count)
    var values: [(Int, Value)] = key.enumerated().map { ($0, $1) }
    switch (base, current) {
    case (nil, nil): return
    case (nil, .some): operation = .insert
    case (let base?, nil):
      operation = .delete
      values = base.enumerated().map { ($0, $1) }
    case (let base?, let current?):
      operation = .update
      for slot in table.keyCount..<table.columns.count where base[slot] != current[slot] {
        mask[slot] = true
        values.append((slot, base[slot]))
      }
      if mask.isEmpty { return }
    }
    let masks = operation == .update ? mask.words.enumerated().map { ("m\($0)", Value.integer($1)) } : []
    let columns =
      [("t", Value.integer(table.number)), ("op", .integer(operation.rawValue))] + masks
      + values.map { ("v\($0.0)", $0.1) }
    let slots = (1...columns.count).map { "?\($0)" }.joined(separator: ", ")
    try context.connection.run(
      "INSERT INTO salvor_log (\(columns.map(\.0).joined(separator: ", "))) VALUES (\(slots))", columns.map(\.1))
  }
}
