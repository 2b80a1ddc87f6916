import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What became of an upload.
struct UploadOutcome {
  var sequence: SequenceID
  /// The upload's last counter.
  var last: Int64
  /// Sessions that ended before the outcome was known.
  var failures: Int
  var results: UploadResults
}

/// Takes in what became of an upload (semantics 7 and 8): accepted requests leave the log, whose older values are the new
/// bases already; refused ones stay in it and in their rows, as archive entries.
struct UploadAcceptance {
  let context: StoreContext
  let outcome: UploadOutcome
  private var last: Int64 { outcome.last }
  private var connection: SQLiteConnection { context.connection }

  /// - Parameter rows: asked for only where a row has an accepted change after one that stays.
  func run(_ rows: () throws -> WorkingRows) throws -> SettleReport {
    var report = SettleReport()
    var erased: [RequestRange] = []
    var neverLost: [RequestRange] = []
    var givenBack: [RequestRange] = []
    for refusal in outcome.results.refused where refusal.counter <= last {
      let range = try context.range(of: refusal.counter)
      let isErased = try refusal.reason == .purged && Erasing(context).erases(range)
      let isThere = try refusal.reason == .notLost && context.isPlainOffer(range.first)
      guard try refuse(refusal) else { continue }
      // What its operator has rejected waits there no more.
      try connection.run(
        "UPDATE salvor_offer SET waiting = NULL WHERE seq BETWEEN ?1 AND ?2 AND waiting = 1", .integer(range.first),
        .integer(range.last))
      if isErased {
        erased.append(range)
      } else if isThere {
        // A newer copy of the server has what was offered: there is nothing to give back, and nothing that anybody could mend.
        neverLost.append(range)
      } else {
        report.refused += 1
        if refusal.reason != .blocked { givenBack.append(range) }
      }
    }
    // While later changes of their rows, accepted ones too, are still in the log.
    try context.noteErrorValues()
    // A displaced request that was accepted, too, is sent again when it returns: the server knows its ID.
    try context.forgetSentBefore()
    report.refused += try HeldDeletes(context).settle(outcome.results, upTo: last)
    try context.rememberKept(outcome.results, upTo: last)
    let waiting = try waitingRanges()
    let kept = merged(try context.leftOut().filter { $0.first <= last } + waiting)
    let accepted = gaps(kept)
    try noteOvertaken(by: accepted)
    let mixed = try mixedRows(kept)
    if outcome.results.commit == nil {
      try context.noteUncommitted(after: connection.integer("SELECT max(id) FROM salvor_history") ?? 0)
    }
    let isFree = try IncompleteTables(context).note(accepted: accepted)
    for gap in accepted {
      report.accepted += try requestCount(gap)
      try context.forgetDigests(ofChanges: gap)
      try remember(gap, outcome.results.commit)
    }
    var bases: [(table: CapturedTable, key: Key, row: SlotRow?)] = []
    for ref in mixed {
      guard let table = context.catalog.table(number: ref.table) else { continue }
      let row = try rows().takeAccepted(table, ref.key) { $0 <= last && kept.holding($0) == nil }
      bases.append((table, ref.key, row))
    }
    for gap in accepted {
      try context.forgetRequests(from: gap.first, to: gap.last)
      try context.deleteLogRows(
        where: "seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations)",
        [.integer(gap.first), .integer(gap.last)], areAccepted: true)
    }
    try context.forgetStored()
    if !bases.isEmpty {
      // The index of the log is one table for all that look into it.
      _ = try LogIndex(context)
      for base in bases { try rows().setBase(base.table, base.key, base.row) }
    }
    if !erased.isEmpty { try Erasing(context).run(erased, rows) }
    if !neverLost.isEmpty {
      for range in merged(neverLost) { try context.rememberOffered(range) }
      _ = try LogIndex(context)
      try rows().remove(neverLost)
    }
    var hasGivenBack = false
    for range in try givenBack.filter(context.makesLostRowAgain) {
      if try GivingBack(context, rows()).run(range) { hasGivenBack = true }
    }
    try letDeletesGo(waiting, rows)
    try context.forgetLeftOut()
    try context.forgetOffers()
    report.waiting = try context.waitingCount()
    report.asksAgain = try HeldDeletes(context).areAsked() || isFree || hasGivenBack
    try forgetTimes()
    if let commit = outcome.results.commit { try connection.rememberCommit(commit, at: context.clock.now()) }
    try end()
    return report
  }

  /// The requests that wait at the server, or for one that does: they stay in the queue.
  private func waitingRanges() throws -> [RequestRange] {
    var ranges: [RequestRange] = []
    for counters in outcome.results.waiting where counters.lowerBound <= last {
      // Each counter is the first of a request: only the last one may have more changes.
      let end = try context.range(of: min(counters.upperBound, last)).last
      ranges.append(RequestRange(first: counters.lowerBound, last: end))
      try connection.run(
        "UPDATE salvor_offer SET waiting = 1 WHERE seq BETWEEN ?1 AND ?2 AND (written IS NULL OR EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = salvor_offer.seq AND l.op = \(LogOperation.insert.rawValue)))",
        .integer(counters.lowerBound), .integer(end == counters.upperBound ? end : counters.upperBound - 1))
    }
    return ranges
  }

  /// A delete that waits for the operator's consent is in the server's hands alone: until then the row is there as the server has it.
  /// A server that goes back gets it again.
  private func letDeletesGo(_ waiting: [RequestRange], _ rows: () throws -> WorkingRows) throws {
    var deletes: [RequestRange] = []
    for range in waiting {
      deletes += try connection.rows(
        "SELECT l.seq FROM salvor_log l JOIN salvor_offer o ON o.seq = l.seq WHERE l.seq BETWEEN ?1 AND ?2 AND o.waiting = 1 AND l.op IN \(StoreContext.deleteOperations)",
        .integer(range.first), .integer(range.last)
      ).compactMap { $0[0].integer }.map { RequestRange(first: $0, last: $0) }
    }
    guard !deletes.isEmpty else { return }
    try context.rememberHeld(deletes, outcome.results, index: LogIndex(context))
    let what = deletes.count == 1 ? "1 delete waits" : "\(deletes.count) deletes wait"
    try connection.note(
      ["After the restore \(what) at the server for its operator: the rows are in their tables until he accepts."],
      at: context.clock.now())
    try rows().remove(deletes)
  }

  /// The upload is over: what is captured from here on has a stamp of its own.
  private func end() throws {
    if let previous = try connection.text(.previous) {
      try connection.run("INSERT INTO salvor_sequence (sequence) VALUES (?1)", .text(previous))
    }
    try connection.setState(.previous, outcome.sequence.text)
    for name in [StateName.current, .wentBack] { try connection.setState(name, Value?.none) }
    try connection.forgetUpload()
    try connection.run(
      "INSERT OR REPLACE INTO salvor_stamp (first_seq, stamp) VALUES (?1, ?2)",
      .integer(try connection.lastCounter() + 1), .text(RequestStamp(from: context.random).text))
  }

  /// Of requests that have left.
  private func forgetTimes() throws {
    try connection.run(
      """
      DELETE FROM salvor_met WHERE first_seq < (SELECT max(first_seq) FROM salvor_met WHERE first_seq <=
        (SELECT min(first) FROM (SELECT min(seq) AS first FROM salvor_log UNION ALL SELECT min(first) FROM salvor_archive)))
      """)
  }

  /// False where the request is not there any more.
  private func refuse(_ refusal: Refusal) throws -> Bool {
    let range = try context.range(of: refusal.counter)
    let there = try connection.integer(
      "SELECT 1 FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations) LIMIT 1",
      .integer(range.first), .integer(range.last))
    let state: RequestState = refusal.reason == .blocked ? .blocked : .refused
    var row = try context.row(of: range)
    guard there != nil || row.isArchived else { return false }
    // One that was displaced since it was sent returns as what it is now.
    if there != nil { row.state = state } else { row.stateBefore = state }
    row.at = context.clock.now()
    row.setReason(refusal.reason.rawValue, refusal.message, status: refusal.status, blockedBy: refusal.blockedBy)
    // A blocked one was not tried.
    if state == .refused {
      row.attempts += 1 + outcome.failures
      row.lastAttempt = row.at
    }
    try context.store(row)
    return true
  }

  private func merged(_ ranges: [RequestRange]) -> [RequestRange] {
    var merged: [RequestRange] = []
    for range in ranges.sorted(by: { $0.first < $1.first }) {
      if let end = merged.last, range.first <= end.last + 1 {
        merged[merged.count - 1].last = max(end.last, range.last)
      } else {
        merged.append(range)
      }
    }
    return merged
  }

  /// What lies between `kept`, up to the upload's end.
  private func gaps(_ kept: [RequestRange]) -> [RequestRange] {
    var gaps: [RequestRange] = []
    var start: Int64 = 1
    for range in kept {
      if range.first > start { gaps.append(RequestRange(first: start, last: range.first - 1)) }
      start = range.last + 1
    }
    if start <= last { gaps.append(RequestRange(first: start, last: last)) }
    return gaps
  }

  /// The requests whose changes lie in a gap: every change, less what a range holds beyond its first.
  private func requestCount(_ gap: RequestRange) throws -> Int64 {
    let bounds: [Value] = [.integer(gap.first), .integer(gap.last)]
    let changes =
      try connection.integer(
        "SELECT count(*) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations)", bounds
      ) ?? 0
    return try changes - context.changesBeyondFirst(of: gap)
  }

  /// A displaced request does not come back by itself over a younger change of its row that the server has accepted: nobody wants the
  /// older value any more. An offer is older than any change of the queue.
  private func noteOvertaken(by accepted: [RequestRange]) throws {
    guard try context.anyDisplaced() else { return }
    let index = try LogIndex(context)
    for change in try context.archived(where: "state = 'displaced' AND overtaken IS NULL", []) {
      let isOvertaken = try index.timeline(change.table, change.key).steps.contains { step in
        try step.seq > change.step.seq && accepted.holding(step.seq) != nil && step.change.meets(change.step.change)
          && !context.isPlainOffer(step.seq)
      }
      if isOvertaken { try context.setOvertaken(change.range) }
    }
  }

  /// What was accepted without a commit (kept as a conflict version, there already) is newer than the cursor: a recovery
  /// asks for it.
  private func remember(_ gap: RequestRange, _ commit: Commit?) throws {
    // What was offered, and is lost once more, is no newer by that.
    let anyOffers = try connection.integer("SELECT 1 FROM salvor_offer LIMIT 1") != nil
    let origin =
      anyOffers
      ? "(SELECT coalesce(o.origin, o.incarnation || ' ' || o.number) FROM salvor_offer o WHERE o.seq = salvor_log.seq AND o.written IS NULL)"
      : "NULL"
    for table in context.catalog.tables {
      let cursor = try connection.integer(
        "SELECT number FROM salvor_group WHERE name = ?1", .text(context.group(of: table.number)))
      let version = commit?.number ?? (cursor ?? 0) + 1
      let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
      try connection.run(
        "INSERT INTO salvor_history (t, version, own, origin, deleted, \(keys)) SELECT t, ?3, 1, \(origin), op IN \(StoreContext.deleteOperations), \(keys) FROM salvor_log "
          + "WHERE seq BETWEEN ?1 AND ?2 AND t = ?4 AND op IN \(StoreContext.changeOperations)",
        .integer(gap.first), .integer(gap.last), .integer(version), .integer(table.number))
    }
  }

  /// Rows of which the log alone does not say the new base: those with an accepted change after one that stays. (The server blocks later requests on the row of a refused one, so
  /// that there are few: a displaced request that returned is such.)
  private func mixedRows(_ kept: [RequestRange]) throws -> Set<RowRef> {
    var mixed = try rowsApart(kept)
    guard !kept.isEmpty else { return mixed }
    var keptRows: Set<RowRef> = []
    var ranges = kept[...]
    try connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations) ORDER BY seq",
      [.integer(kept[0].first), .integer(last)]
    ) { row in
      let seq = row.int64(0)
      while let range = ranges.first, range.last < seq { ranges.removeFirst() }
      let entry = try context.catalog.entry(from: row)
      guard let table = context.catalog.table(number: entry.table) else { return true }
      let ref = RowRef(table: entry.table, key: entry.key(table))
      if let range = ranges.first, range.first <= seq {
        keptRows.insert(ref)
      } else if keptRows.contains(ref) {
        mixed.insert(ref)
      }
      return true
    }
    return mixed
  }

  /// Rows with accepted changes and others that wait, of which something is stored: the log alone does not say the new base.
  private func rowsApart(_ kept: [RequestRange]) throws -> Set<RowRef> {
    guard try context.anyStored() else { return [] }
    let index = try LogIndex(context)
    var apart: Set<RowRef> = []
    for (table, key) in try context.storedRows() {
      let entries = try index.entries(table, key)
      let accepted = entries.count { $0.seq <= last && kept.holding($0.seq) == nil }
      if accepted > 0 && accepted < entries.count { apart.insert(RowRef(table: table.number, key: key)) }
    }
    return apart
  }
}

extension StoreContext {
  /// The requests of the upload under way wait again, with their IDs.
  func takeBackUpload() throws {
    try connection.setState(.healAsked, Value?.none)
    try forgetLeftOut()
    try connection.setState(.current, Value?.none)
    try connection.forgetUpload()
    try forgetSentBefore()
  }
}
