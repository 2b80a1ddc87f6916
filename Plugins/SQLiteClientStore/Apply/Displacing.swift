import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Requests that cannot stand: which one is in the way, and its leaving for the archive, with all that depends on it.
extension Remaking {
  /// Takes the request of a change, and those that depend on it, out of the rows and the log, into the archive.
  func displace(_ counter: Int64) throws {
    let leaving = try dependenceNow().dependents(of: [context.range(of: counter)])
    let refs = try loadRows(of: leaving)
    displaced += leaving
    // Triggers may capture meanwhile, and take no counter that was given.
    let last = try context.connection.lastCounter()
    for ref in refs { try takeOut(leaving, ref) }
    try context.noteLogChange(isFollowed: true)
    for range in leaving { try context.closeArchive(of: range) }
    try context.keepCounter(last)
  }

  /// Takes requests out of the rows and the log for good. What was built on them and cannot stand without them is
  /// displaced, here or when the rows are written.
  ///
  /// - Parameter leaving: in order.
  func remove(_ leaving: [RequestRange]) throws {
    let refs = try loadRows(of: leaving)
    let last = try context.connection.lastCounter()
    for range in leaving {
      try index.deleteChanges(of: range)
      try context.forget(range)
    }
    try context.noteLogChange(isFollowed: true)
    try context.keepCounter(last)
    for ref in refs {
      guard var work = rows[ref] else { continue }
      for step in work.timeline.steps where leaving.holding(step.seq) != nil {
        try index.remove(work.table, work.key, seq: step.seq)
      }
      work.timeline.steps.removeAll { leaving.holding($0.seq) != nil }
      try put(work, ref)
    }
    try context.noteLogChange(isFollowed: true)
    for ref in refs {
      while var work = rows[ref] {
        guard let place = work.timeline.rebase(on: work.timeline.base) else {
          try put(work, ref)
          break
        }
        try displace(work.timeline.steps[place].seq)
      }
    }
  }

  /// The rows that requests in the log change, loaded.
  private func loadRows(of requests: [RequestRange]) throws -> [RowRef] {
    var refs: [RowRef] = []
    var known: Set<RowRef> = []
    for range in requests {
      for (table, key, _) in try context.rows(changedBy: range) {
        try load(table, key)
        let ref = RowRef(table: table.number, key: key)
        if known.insert(ref).inserted { refs.append(ref) }
      }
    }
    return refs
  }

  /// - Parameter leaving: in order.
  private func takeOut(_ leaving: [RequestRange], _ ref: RowRef) throws {
    guard var work = rows[ref] else { return }
    var staying: [RowTimeline.Step] = []
    for step in work.timeline.steps {
      guard let range = leaving.holding(step.seq) else {
        staying.append(step)
        continue
      }
      try context.archive(work.captured[step.seq] ?? step, of: range, work.table, work.key)
      try context.connection.run("DELETE FROM salvor_log WHERE seq = ?1", .integer(step.seq))
      try index.remove(work.table, work.key, seq: step.seq)
    }
    work.timeline.steps = staying
    _ = work.timeline.rebase(on: work.timeline.base)
    try put(work, ref)
  }

  // MARK: Who is in the way

  /// The last request that set the reference, else the one that deleted the parent.
  func culprit(_ violation: ReferenceProof.Violation) throws -> Int64? {
    let names = Set(violation.rule.childColumns.map { $0.lowercased() })
    let slots = violation.table.columns.indices.filter { names.contains(violation.table.columns[$0].name.lowercased()) }
    let setter = try last(violation.table, violation.key) { step in
      switch step.change {
      case .insert: true
      case .update(let news): slots.contains { news[$0] != nil }
      case .delete: false
      }
    }
    if let setter { return setter }
    guard let parent = violation.rule.capturedParent, violation.rule.parentColumnsAreKey else { return nil }
    return try last(parent, violation.reference) { $0.change.operation == .delete }
  }

  /// The youngest request that keeps a row out: of its own requests, or of those of the row that is in its way.
  func culprit(_ ref: RowRef) throws -> Int64? {
    guard let work = rows[ref], let row = work.timeline.current else { return nil }
    if invalid.contains(ref) { return work.timeline.steps.last { $0.change.operation != .delete }?.seq }
    var found: [Int64] = []
    for unique in work.table.uniques {
      let names = Set(unique.parts.map { $0.name.lowercased() })
      let slots = work.table.columns.indices.filter { names.contains(work.table.columns[$0].name.lowercased()) }
      if let own = lastSetting(slots, work.timeline) { found.append(own) }
      guard slots.count == unique.parts.count else { continue }
      for holder in try holders(of: row, unique, work.table) where holder != work.key {
        let other = try load(work.table, holder)
        if let theirs = lastSetting(slots, other.timeline) { found.append(theirs) }
      }
    }
    return found.max()
  }

  private func lastSetting(_ slots: [Int], _ timeline: RowTimeline) -> Int64? {
    timeline.steps.last { step in
      switch step.change {
      case .insert: true
      case .update(let news): slots.contains { news[$0] != nil }
      case .delete: false
      }
    }?.seq
  }

  /// The keys of the rows that have the unique values of `row`.
  func holders(of row: SlotRow, _ unique: CapturedTable.Unique, _ table: CapturedTable) throws -> [Key] {
    let keys = (0..<table.keyCount).map(table.tableColumn).joined(separator: ", ")
    var values: [Value] = []
    var terms: [String] = []
    for part in unique.parts {
      guard let slot = table.columns.firstIndex(where: { $0.name.lowercased() == part.name.lowercased() }) else {
        return []
      }
      values.append(row[slot])
      terms.append("x.\(quoted(part.name)) COLLATE \(quoted(part.collation)) = ?\(values.count)")
    }
    return try context.connection.rows(
      "SELECT \(keys) FROM \(quoted(table.name)) x WHERE \(terms.joined(separator: " AND "))", values)
  }

  /// The last change of a row that meets `isMeant`, to name a request in the way of a reference.
  func last(_ table: CapturedTable, _ key: Key, _ isMeant: (RowTimeline.Step) -> Bool) throws -> Int64? {
    try load(table, key).timeline.steps.last(where: isMeant)?.seq
  }
}
