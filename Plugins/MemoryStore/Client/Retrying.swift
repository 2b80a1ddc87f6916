import SalvorModel
import SalvorStorage

/// Failed requests that are sent again (semantics 8, *Fix and retry*).
extension ClientContent {
  /// A failed request and the later edits of its rows become one. Failed requests without a later edit stay as they are.
  /// Answers with the counters of those that are in another one now.
  ///
  /// - Parameter returned: not the failed ones, but these that have been displaced, by their first counters, where they are back.
  mutating func joinEdited(_ returned: Set<Int64>? = nil) -> Set<Int64> {
    var joined: Set<Int64> = []
    let meant = requests.filter { request in
      if let returned { return request.state != .displaced && returned.contains(request.firstCounter) }
      return request.state == .refused || request.state == .blocked
    }
    for id in meant.map(\.id) {
      guard let start = requests.firstIndex(where: { $0.id == id }) else { continue }
      let cluster = cluster(of: start)
      guard cluster.contains(where: { requests[$0].state == .queued && $0 > start }) else { continue }
      joined.formUnion(cluster.map { requests[$0].id.counter })
      join(cluster)
    }
    return joined
  }

  mutating func retry(
    _ ids: Set<RequestID>?, _ constraints: Constraints, now: Int64
  ) throws -> RetryReport {
    _ = splitOpenGroup()
    let before = requests.map(\.id)
    let wanted = try wanted(ids, now: now)
    var outcomes: [RequestID: RetriedRequest.Outcome] = [:]
    func sendAgain(_ content: inout ClientContent, _ id: RequestID, _ start: Int) throws {
      let cluster = content.cluster(of: start)
      try content.refuseSentOn(cluster)
      var members = cluster.map { content.requests[$0].id }
      // By the ID that the person knows.
      members.removeAll { $0 == content.requests[start].id }
      let joined = content.join(cluster)
      for member in members + [id] { outcomes[member] = joined.map { .queued($0) } ?? .nothingLeft }
    }
    var displaced: [(id: RequestID, counter: Int64)] = []
    for id in before where wanted.contains(id) {
      guard let start = requests.firstIndex(where: { $0.id == id }) else { continue }
      if requests[start].state == .displaced {
        requests[start].isOvertaken = false
        displaced.append((id, requests[start].firstCounter))
      } else {
        try sendAgain(&self, id, start)
      }
    }
    try remake(constraints)
    for (id, counter) in displaced {
      guard let place = requests.firstIndex(where: { $0.firstCounter == counter }) else { continue }
      outcomes[id] = requests[place].state == .displaced ? .displaced : .stands
      // What came back in error is sent again, too.
      if requests[place].state == .refused || requests[place].state == .blocked { try sendAgain(&self, id, place) }
    }
    try remake(constraints)
    var report = RetryReport()
    report.requests = before.compactMap { id in outcomes[id].map { RetriedRequest(id: id, outcome: $0) } }
    return report
  }

  /// The failed and displaced requests that are meant, and the failed ones that they depend on.
  private func wanted(_ ids: Set<RequestID>?, now: Int64) throws -> Set<RequestID> {
    let states: Set<RequestState> = [.refused, .blocked, .displaced]
    guard let ids else { return Set(requests.filter { states.contains($0.state) }.map(\.id)) }
    let listing = RequestListing(self, now: now)
    var wanted: Set<RequestID> = []
    for id in ids.sorted(by: { $0.counter < $1.counter }) {
      wanted.insert(try known(id, in: states))
      let needs = listing.needs(of: id)
      wanted.formUnion(
        requests.filter { ($0.state == .refused || $0.state == .blocked) && needs.contains($0.id) }.map(\.id))
    }
    return wanted
  }

  /// The places of a failed request, of the unsent and failed requests on its rows, and so on, in order. What is offered of a row
  /// nobody wrote since: it comes before them.
  private func cluster(of start: Int) -> [Int] {
    var cluster: Set<Int> = [start]
    while true {
      let rows = cluster.reduce(into: Set<RowName>()) { $0.formUnion(requests[$1].rows) }
      let more = requests.indices.filter { index in
        let state = requests[index].state
        return
          ((state == .queued && !requests[index].isPlainOffer && !requests[index].isWaiting) || state == .refused
          || state == .blocked)
          && !requests[index].rows.isDisjoint(with: rows)
      }
      if Set(more).isSubset(of: cluster) { return cluster.sorted() }
      cluster.formUnion(more)
    }
  }

  private func refuseSentOn(_ cluster: [Int]) throws {
    let rows = cluster.reduce(into: Set<RowName>()) { $0.formUnion(requests[$1].rows) }
    if let upload, let sent = outgoing.first(where: { !$0.rows.isDisjoint(with: rows) }) {
      throw SalvorError.outcomeUnknown(sent.id, upload.sequence)
    }
  }

  /// Several requests become one with a new ID, made on the rows as they are now. Nil: there is nothing left to send.
  @discardableResult
  mutating func join(_ cluster: [Int]) -> RequestID? {
    let members = cluster.map { requests[$0] }
    let waiting = waitingDependents(of: Set(members.map(\.id)))
    requests = requests.indices.filter { !cluster.contains($0) }.map { requests[$0] }
    var rows: [RowName] = []
    for change in members.flatMap(\.changes) where !rows.contains(change.row) { rows.append(change.row) }
    let before = Self.shown(outstanding, over: bases, schema: schema).view
    var changes: [Change] = []
    for row in rows {
      guard let table = schema.table(row.table) else { continue }
      var after = before[row]
      for change in members.flatMap(\.changes) where change.row == row {
        after = change.made(on: after, of: table)
      }
      let deleted = before[row] == nil && after == nil ? deletedOutOfSight(row, by: members) : nil
      guard let change = change(for: RowChange(name: row, before: deleted ?? before[row], after: after)) else {
        continue
      }
      changes.append(change)
      // A mark that is taken back finds what it deleted.
      if change.operation == .delete, marks[row]?.counter != nil { marks[row]?.counter = change.counter }
    }
    guard !changes.isEmpty else { return nil }
    var request = Request(stamp: stamp, changes: changes, tag: members.compactMap(\.tag).first)
    request.history = members.flatMap { $0.history + [$0.id] }
    request.since = members.compactMap(\.since).min()
    request.attempts = members.map(\.attempts).max() ?? 0
    request.lastAttempt = members.compactMap(\.lastAttempt).max()
    requests.append(request)
    // What depended on a member, and would now be sent before it.
    block(waiting.subtracting(waitingDependents(of: [request.id])), by: request.id)
    return request.id
  }

  /// What a delete saw of a row that has left this device since: the server may have it still, and says what becomes of the delete.
  private func deletedOutOfSight(_ name: RowName, by members: [Request]) -> Row? {
    let newest = baseChanges.filter { $0.row == name }.enumerated().max {
      ($0.element.version, $0.offset) < ($1.element.version, $1.offset)
    }
    // Where marks delete, a mark says what becomes of the row.
    guard let table = schema.table(name.table), bases[name] == nil,
      !schema.tables.contains(where: { $0.flags.deleted != nil }), newest?.element.isLeft == true,
      let delete = members.flatMap(\.changes).last(where: { $0.row == name }), delete.operation == .delete
    else { return nil }
    return table.columns.map { delete.column($0.name)?.old ?? .null }
  }

  /// Does again what a kept entry did, as a new request on the rows as they are now. What it says of columns that are not
  /// there stays in the archive.
  mutating func reapply(_ kept: RequestID, _ constraints: Constraints, now: Int64) throws -> RequestID? {
    _ = try known(kept, in: [.kept])
    guard let place = requests.firstIndex(where: { $0.id == kept }) else { return nil }
    let entry = requests[place]
    _ = splitOpenGroup()
    let count = requests.count
    var runner = StatementRunner(view, constraints: constraints)
    beginGroup(tag: entry.tag)
    for change in entry.changes {
      guard let write = try statement(change, on: runner.tables, of: kept) else { continue }
      do {
        capture(try runner.run(write), &runner)
      } catch let error as SalvorError {
        throw SalvorError.cannotStand(kept, table: change.row.table, error.message)
      }
    }
    endGroup()
    view = runner.tables
    let isNew = requests.count > count
    if isNew {
      requests[count].history = entry.history + [kept]
      requests[count].since = now
    }
    let id = isNew ? requests[count].id : nil
    requests[place].changes = entry.changes.compactMap(withoutColumn)
    if requests[place].changes.isEmpty { requests.remove(at: place) }
    return id
  }

  /// What a change says of columns that are not there; nil: nothing.
  private func withoutColumn(_ change: Change) -> Change? {
    var left = change
    left.operation = .update
    left.columns.removeAll { column in
      change.operation == .delete || schema.table(change.row.table)?.columnIndex(column.name) != nil
        || (change.operation == .insert && column.new.isNull)
    }
    return left.columns.isEmpty ? nil : left
  }

  /// What brings about what a change did, on the tables as they are; nil: nothing.
  private func statement(_ change: Change, on tables: MemoryTables, of kept: RequestID) throws -> ApplicationWrite? {
    guard let table = schema.table(change.row.table) else {
      throw SalvorError.cannotStand(
        kept, table: change.row.table, "There is no such table in the schema. Bring it back, or delete the entry.")
    }
    guard change.row.key.count == table.primaryKey.count else {
      throw SalvorError.cannotStand(kept, table: table.name, "Its key is another one now.")
    }
    let values = change.columns.filter { table.columnIndex($0.name) != nil }.map { NamedValue($0.name, $0.new) }
    if change.operation == .update, values.isEmpty {
      throw SalvorError.cannotStand(
        kept, table: table.name,
        "It has no column \(change.columns.map(\.name).joined(separator: ", ")) now. Bring it back into the schema, or delete the entry."
      )
    }
    let isThere = tables[change.row].map { !table.isMarked($0) } ?? false
    switch change.operation {
    case .insert where !isThere: return .insert(table: table.name, values: values)
    case .insert:
      let others = values.filter { !table.primaryKey.contains($0.name) }
      return others.isEmpty ? nil : .update(table: table.name, key: change.row.key, values: others)
    case .update where isThere: return .update(table: table.name, key: change.row.key, values: values)
    case .update: throw SalvorError.cannotStand(kept, table: table.name, "Its row is not there any more.")
    case .delete: return isThere ? .delete(table: table.name, key: change.row.key) : nil
    }
  }
}
