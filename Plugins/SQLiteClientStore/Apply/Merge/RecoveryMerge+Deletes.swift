import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What becomes of deletes that wait, where the server does not have their rows.
extension RecoveryMerge {
  /// A waiting request that only deletes rows which the server does not have either has nothing left to do. Where the server
  /// has lost one of them the delete stands all the same (semantics 9, rule 3): it is sent as one of the lost version, so that nobody else's
  /// offer of that makes the row again (decision 184). Where nothing is offered it is in the archive: a newer copy of the server may bring
  /// the row back.
  func takeOutIdle(_ changes: [Change], _ rows: WorkingRows) throws {
    var gone: Set<RowRef> = []
    var lost: Set<RowRef> = []
    for change in changes where change.old != nil && change.new == nil {
      // A lost row that an update makes again is there for the delete that follows it.
      if try change.fate == .lost && isMadeAgain(change, rows) { continue }
      gone.insert(change.ref)
      if change.fate == .lost { lost.insert(change.ref) }
    }
    guard !gone.isEmpty else { return }
    try keepBeforeDeletes(changes, rows)
    for change in changes where gone.contains(change.ref) {
      for step in try rows.load(change.table, change.key).timeline.steps where step.change == .delete {
        let range = try context.range(of: step.seq)
        guard try isIdle(range, gone, rows) else {
          if lost.contains(change.ref) { try offer(step, change, in: range, rows) }
          continue
        }
        let deletes = try captured(range, rows)
        if deletes.contains(where: { lost.contains(RowRef(table: $0.table.number, key: $0.key)) }) {
          // It stays an offer, of nothing now: no older version of another device makes the row again.
          if try context.isOffer(range) || offer(deletes, lost) { continue }
          for delete in deletes {
            try context.archive(delete.step, of: range, delete.table, delete.key)
          }
          try context.keep(
            range, "row-gone",
            "The server has lost the row. Reapply the delete where the row comes back, or delete the entry.")
        } else {
          try takeForOwn(deletes)
          try record.request(range, state: .merged, reason: "row-gone", deletes)
          noteMerged()
        }
        try rows.takeOutIdle(range)
      }
    }
  }

  /// This copy of the server has what the device deleted: it is the device's to offer where this copy is lost, too. The commit that
  /// deleted the row here is of this copy's history, whatever number the device's own one had; the newest one is not earlier.
  private func takeForOwn(_ deletes: [OutstandingRequest.Change]) throws {
    for delete in deletes {
      let group = context.group(of: delete.table.number)
      let newest = order.groups.first { $0.name == group }?.cursor?.number ?? order.shared ?? 0
      try context.rememberOwnDelete(delete.table, delete.key, version: newest)
    }
  }

  private func isIdle(_ range: RequestRange, _ gone: Set<RowRef>, _ rows: WorkingRows) throws -> Bool {
    if try context.row(of: range).isInError { return false }
    for (table, key, _) in try context.rows(changedBy: range) {
      guard gone.contains(RowRef(table: table.number, key: key)) else { return false }
      for step in try rows.load(table, key).timeline.steps where step.seq <= range.last {
        // An insert before it makes the row that it deletes.
        if case .insert = step.change { return false }
        if step.seq >= range.first, step.change != .delete { return false }
      }
    }
    return true
  }

  private func captured(_ range: RequestRange, _ rows: WorkingRows) throws -> [OutstandingRequest.Change] {
    var found: [OutstandingRequest.Change] = []
    for (table, key, _) in try context.rows(changedBy: range) {
      let work = try rows.load(table, key)
      for step in work.timeline.steps where (range.first...range.last).contains(step.seq) {
        found.append(OutstandingRequest.Change(table: table, key: key, step: step.asCaptured))
      }
    }
    return found.sorted { $0.step.seq < $1.step.seq }
  }

  /// What was written to a lost row that was deleted in the end is in the archive: nobody wants the row made again.
  private func keepBeforeDeletes(_ changes: [Change], _ rows: WorkingRows) throws {
    let ending = Set(changes.filter { $0.fate == .lost && $0.endsWithDelete }.map(\.ref))
    for change in changes where ending.contains(change.ref) {
      for step in try rows.load(change.table, change.key).timeline.steps where step.change.operation == .update {
        let range = try context.range(of: step.seq)
        let updates = try captured(range, rows)
        guard try !context.row(of: range).isInError,
          updates.allSatisfy({
            $0.step.change.operation == .update && ending.contains(RowRef(table: $0.table.number, key: $0.key))
          })
        else { continue }
        for update in updates { try context.archive(update.step, of: range, update.table, update.key) }
        try context.keep(
          range, "row-gone",
          "The row was deleted here after this, and the server has lost it. Reapply the change where the row comes back, or delete the entry."
        )
        try rows.takeOutIdle(range)
      }
    }
  }

  /// The deletes of lost rows are ones of the versions that were lost. False: nothing is offered.
  private func offer(_ deletes: [OutstandingRequest.Change], _ lost: Set<RowRef>) throws -> Bool {
    let own = deletes.filter { lost.contains(RowRef(table: $0.table.number, key: $0.key)) }
    let versions = try own.compactMap { try offers.version($0.table, $0.key, isNeeded: true) }
    guard versions.count == own.count else { return false }
    for (delete, version) in zip(own, versions) { try offer(delete.step, delete.table, version) }
    return true
  }

  private func offer(_ delete: RowTimeline.Step, _ table: CapturedTable, _ version: LostVersion) throws {
    try offers.note(delete.seq, version, written: Array(table.columns.indices))
  }

  /// Beside other changes, too, the delete of a lost row is one of the lost version.
  private func offer(
    _ delete: RowTimeline.Step, _ change: Change, in range: RequestRange, _ rows: WorkingRows
  ) throws {
    guard
      try !rows.load(change.table, change.key).timeline.isMade(before: delete.seq) && !context.row(of: range).isInError
        && !context.isOffer(RequestRange(first: delete.seq, last: delete.seq)),
      let version = try offers.version(change.table, change.key, isNeeded: true)
    else { return }
    try offer(delete, change.table, version)
  }

  /// An update that waits was made upon the lost version of its row (decision 236). So was a delete, and on no older one, where the server has
  /// that version as it was, since another device has given it back.
  func nameVersions(_ changed: [Change], _ rows: WorkingRows) throws {
    let fates = Dictionary(changed.map { ($0.ref, $0.fate) }) { first, _ in first }
    for table in context.catalog.tables where isWritable(table) {
      for (seq, operation, key) in try versions.changesOfLost(table) {
        let ref = RowRef(table: table.number, key: key)
        guard fates[ref] == nil || operation.isUpdate && fates[ref] == .row,
          let version = try offers.version(table, key, isNeeded: true),
          case let timeline = try rows.load(table, key).timeline, timeline.base != nil || fates[ref] == .row,
          let step = timeline.steps.first(where: { $0.seq == seq }), !timeline.isMade(before: seq),
          try !context.row(of: context.range(of: seq)).isInError
        else { continue }
        switch step.change {
        case .update(let news): try offers.note(seq, version, written: news.keys.sorted())
        case .delete: try offer(step, table, version)
        case .insert: continue
        }
      }
    }
  }

  /// The server has the row again: a person's delete of it is an ordinary one.
  func forgetOfferedDeletes(_ change: Change, _ rows: WorkingRows) throws {
    for step in try rows.load(change.table, change.key).timeline.steps where step.change == .delete {
      try context.connection.run(
        "DELETE FROM salvor_offer WHERE seq = ?1 AND written IS NOT NULL", .integer(step.seq))
    }
  }
}

extension RowTimeline {
  /// A request before that change makes the row.
  fileprivate func isMade(before seq: Int64) -> Bool {
    steps.contains { step in
      if case .insert = step.change { step.seq < seq } else { false }
    }
  }
}
