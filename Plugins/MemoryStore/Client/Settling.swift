import SalvorModel
import SalvorStorage

/// The upload's two ends: choosing what is sent, and taking in what became of it (semantics 4, 7 and 8).
extension ClientContent {
  /// Chooses what is sent: the waiting requests of `groups` (nil: all), and those they depend on.
  mutating func chooseOutgoing(_ groups: Set<String>?) -> [Request] {
    joinRetried()
    let waiting = requests.indices.filter { requests[$0].state == .queued }
    let dependence = Dependence(waiting.map { requests[$0] }, on: bases, schema: schema)
    let wanted = waiting.indices.filter { place in
      requests[waiting[place]].changes.contains { change in
        groups.map { $0.contains(schema.table(change.row.table)?.group ?? "") } ?? true
      }
    }
    let chosen = dependence.needs(of: Set(wanted)).sorted().map { waiting[$0] }
    for index in chosen { requests[index].state = .sent }
    return chosen.map { requests[$0] }
  }

  /// A failed request and the later edits of its rows become one request with a new ID, made on the rows as they are
  /// now (semantics 8, *Fix and retry*). Failed requests without a later edit stay as they are.
  private mutating func joinRetried() {
    while let cluster = retriedCluster() {
      let members = cluster.map { requests[$0] }
      let keptRequests = requests.indices.filter { !cluster.contains($0) }.map { requests[$0] }
      requests = keptRequests
      var rows: [RowName] = []
      for change in members.flatMap(\.changes) where !rows.contains(change.row) { rows.append(change.row) }
      let before = Self.shown(
        keptRequests.filter { $0.state != .displaced && $0.state != .kept }, over: bases, schema: schema
      ).view
      var changes: [Change] = []
      for row in rows {
        guard let table = schema.table(row.table) else { continue }
        var after = before[row]
        for change in members.flatMap(\.changes) where change.row == row {
          after = change.applied(to: after, of: table)
        }
        changes += joined(row, table, before[row], after)
      }
      guard !changes.isEmpty else { continue }
      requests.append(Request(stamp: stamp, changes: changes, tag: members.compactMap(\.tag).first))
    }
  }

  /// The places of a failed request, of the outstanding requests on its rows, and so on, where a later edit is among them.
  private func retriedCluster() -> [Int]? {
    let archived = requests.indices.filter { requests[$0].state == .refused || requests[$0].state == .blocked }
    for start in archived {
      var cluster: Set<Int> = [start]
      var grew = true
      while grew {
        let rows = cluster.reduce(into: Set<RowName>()) { $0.formUnion(requests[$1].rows) }
        let more = requests.indices.filter { index in
          let state = requests[index].state
          return (state == .queued || state == .refused || state == .blocked)
            && !requests[index].rows.isDisjoint(with: rows)
        }
        grew = !Set(more).isSubset(of: cluster)
        cluster.formUnion(more)
      }
      if cluster.contains(where: { requests[$0].state == .queued && $0 > start }) { return cluster.sorted() }
    }
    return nil
  }

  private mutating func joined(_ row: RowName, _ table: Table, _ before: Row?, _ after: Row?) -> [Change] {
    var columns: [ChangedColumn] = []
    let operation: SalvorModel.Operation
    let names = table.travelling.map(\.name)
    switch (before, after) {
    case (nil, nil): return []
    case (nil, let after?):
      operation = .insert
      columns = names.map { ChangedColumn(name: $0, old: .null, new: table.value($0, of: after)) }
    case (let before?, nil):
      operation = .delete
      columns = names.map { ChangedColumn(name: $0, old: table.value($0, of: before), new: .null) }
    case (let before?, let after?):
      operation = .update
      columns = table.changedColumns(before, after).map {
        ChangedColumn(name: $0, old: table.value($0, of: before), new: table.value($0, of: after))
      }
      if columns.isEmpty { return [] }
    }
    counter += 1
    return [
      Change(
        counter: counter, made: groups[table.group]?.cursor?.number ?? 0, row: row, operation: operation,
        columns: columns)
    ]
  }

  /// Accepted requests leave the queue and the bases take their effect; refused ones stay in their rows as archive
  /// entries.
  mutating func settle(_ results: UploadResults) -> SettleReport {
    var report = SettleReport()
    for sent in outgoing {
      let place = requests.firstIndex { $0.id == sent.id }
      if let refusal = results.refused.first(where: { $0.id == sent.id }) {
        report.refused += 1
        guard let place else { continue }
        let state: RequestState = refusal.reason == .blocked ? .blocked : .refused
        if requests[place].state == .displaced {
          requests[place].stateBefore = state
        } else {
          requests[place].state = state
        }
        requests[place].refusal = Request.Refused(
          reason: refusal.reason.rawValue, status: refusal.status, message: refusal.message,
          blockedBy: refusal.blockedBy)
      } else {
        report.accepted += 1
        for change in sent.changes {
          guard let table = schema.table(change.row.table) else { continue }
          bases[change.row] = change.applied(to: bases[change.row], of: table)
          // Without a commit the server may hold something else there, and says so with the next download.
          let version = results.commit?.number ?? (groups[table.group]?.cursor?.number ?? 0) + 1
          baseChanges.append(
            BaseChange(row: change.row, version: version, isDeleted: bases[change.row] == nil))
        }
        if let place { requests.remove(at: place) }
      }
    }
    outgoing = []
    outgoingContext = []
    return report
  }
}
