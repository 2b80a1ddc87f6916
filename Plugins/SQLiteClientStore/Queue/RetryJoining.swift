import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A failed request and the later edits of its rows become one request with a new ID, made on the rows as they are now
/// (semantics 8, *Fix and retry*). In a transaction; requests are sorted.
final class RetryJoining {
  private let context: StoreContext
  let index: LogIndex
  private let dependence: DependenceLookup
  /// The bases of rows that are to show what the server has in columns that their requests do not set.
  private(set) var unset: [(table: CapturedTable, key: Key, base: SlotRow?)] = []

  init(_ context: StoreContext, _ index: LogIndex) throws {
    self.context = context
    self.index = index
    dependence = try DependenceLookup(context, index)
  }

  /// Failed requests without a later edit stay as they are. With nothing under way. Answers as `join`.
  ///
  /// - Parameter captured: what was captured since it was last looked for edits; nil: all of them are looked at.
  func joinEdited(by captured: [RequestRange]?) throws -> [RequestID: RequestID?] {
    try joinEdited(try captured.map { try failed(besides: $0) } ?? context.failedRequests())
  }

  /// As the other, of some requests: failed ones, or such as have been displaced.
  func joinEdited(_ some: [RequestRange]) throws -> [RequestID: RequestID?] {
    try join(some) { request, cluster in
      cluster.lastQueued ?? 0 > request.first
    }
  }

  /// The failed requests whose rows are those of some waiting ones, in order.
  private func failed(besides waiting: [RequestRange]) throws -> [RequestRange] {
    var seen: Set<Int64> = []
    var failed: [RequestRange] = []
    for request in waiting where !seen.contains(request.first) {
      for (range, state) in try cluster(of: request).members where seen.insert(range.first).inserted {
        if state == .refused || state == .blocked { failed.append(range) }
      }
      seen.insert(request.first)
    }
    return failed.sorted { $0.first < $1.first }
  }

  /// Failed requests, each with those of its rows. Answers what became of each, by its ID before; nil: there was nothing
  /// left to send. Throws `outcome-unknown` where one of their rows is under way.
  func join(_ failed: [RequestRange]) throws -> [RequestID: RequestID?] {
    try join(failed) { _, cluster in
      try refuseSent(cluster)
      return true
    }
  }

  private func join(
    _ failed: [RequestRange], where isMeant: (RequestRange, Cluster) throws -> Bool
  ) throws -> [RequestID: RequestID?] {
    var joined: [RequestID: RequestID?] = [:]
    // A row may have many: each member of a cluster has the same one.
    var clusters: [Int64: Cluster] = [:]
    for request in failed {
      // It went into an earlier one.
      guard try context.state(of: request) != nil else { continue }
      let cluster = try clusters[request.first] ?? cluster(of: request)
      guard try isMeant(request, cluster) else {
        if clusters[request.first] == nil { for member in cluster.members { clusters[member.range.first] = cluster } }
        continue
      }
      let members = cluster.members.map(\.range)
      let old = try members.map { try context.requestID(first: $0.first) }
      let made: RequestID? = try join(members: members)
      for id in old { joined.updateValue(made, forKey: id) }
    }
    return joined
  }

  /// What was sent may have been taken in already: nothing is made on its rows until that is known.
  private func refuseSent(_ cluster: Cluster) throws {
    try context.refuseUnderWay(cluster.sent)
    for (table, key) in cluster.rows {
      let sent = try context.archived(
        where: "state_before = 'sent' AND t = ?1 AND key = ?2", [.integer(table.number), .text(payload(key))])
      try context.refuseUnderWay(sent.map(\.range))
    }
  }

  struct Cluster {
    /// In order.
    var members: [(range: RequestRange, state: RequestState)] = []
    var rows: [(table: CapturedTable, key: Key)] = []
    /// The first counter of the newest member that is queued.
    var lastQueued: Int64?
    /// The requests on its rows that are under way.
    var sent: [RequestRange] = []
  }

  /// A failed request, the waiting and failed requests on its rows, and so on. What is offered of a row nobody wrote since: it comes
  /// before them.
  func cluster(of start: RequestRange) throws -> Cluster {
    var cluster = Cluster()
    var found: Set<Int64> = [start.first]
    var rows: Set<RowRef> = []
    var waiting = [start]
    while let request = waiting.popLast() {
      guard let state = try context.state(of: request) else { continue }
      guard state == .queued || state == .refused || state == .blocked else {
        cluster.sent.append(request)
        continue
      }
      if state == .queued, try context.isNothingButOffer(request.first) || context.isHeldByServer(request) { continue }
      cluster.members.append((request, state))
      for (table, key, _) in try context.rows(changedBy: request)
      where rows.insert(RowRef(table: table.number, key: key)).inserted {
        cluster.rows.append((table, key))
        for entry in try index.entries(table, key) {
          let other = try context.range(of: entry.seq)
          if found.insert(other.first).inserted { waiting.append(other) }
        }
      }
    }
    cluster.members.sort { $0.range.first < $1.range.first }
    cluster.lastQueued = cluster.members.last { $0.state == .queued }?.range.first
    cluster.sent.sort { $0.first < $1.first }
    return cluster
  }

  /// The waiting requests that depend on some of these, without them.
  func waitingDependents(of requests: [RequestRange]) throws -> [RequestRange] {
    try dependence.dependents(of: requests).filter {
      try requests.holding($0.first) == nil && context.state(of: $0) == .queued
    }
  }

  /// All changes of their rows are those of the members, and offers: each row's become one, from its base, with what is offered of
  /// it, to what it is now. Nil: there is nothing left to send.
  @discardableResult
  func join(members: [RequestRange]) throws -> RequestID? {
    let connection = context.connection
    var rows: Set<RowRef> = []
    // With what is offered of them, or upon a base that the log does not say.
    var others: [(table: CapturedTable, key: Key, timeline: RowTimeline)] = []
    let dependents = try dependence.dependents(of: members).filter { members.holding($0.first) == nil }
    let last = try connection.lastCounter()
    var before = RequestRow(RequestRange(first: last + 1, last: last))
    for member in members {
      for (table, key, _) in try context.rows(changedBy: member)
      where rows.insert(RowRef(table: table.number, key: key)).inserted {
        let timeline = try index.timeline(table, key)
        let offers = timeline.steps.filter { members.holding($0.seq) == nil }
        var left = RowTimeline(base: timeline.base, steps: offers)
        left.rebase(on: timeline.base)
        let own = timeline.steps.filter { members.holding($0.seq) != nil }
        let made = made(own, on: left.current, table)
        if made != timeline.current { unset.append((table, key, timeline.base)) }
        let deleted = try made == nil && left.current == nil ? deletedOutOfSight(own, table, key) : nil
        if let step = try insert(table, key, deleted ?? left.current, made) { left.steps.append(step) }
        left.rebase(on: timeline.base)
        if !offers.isEmpty || deleted != nil { others.append((table, key, left)) }
      }
      let own = try context.row(of: member)
      before.history += own.history + [try context.requestID(first: member.first)]
      before.since = [before.since, try context.since(own)].compactMap { $0 }.min()
      before.attempts = max(before.attempts, own.attempts)
      before.lastAttempt = [before.lastAttempt, own.lastAttempt].compactMap { $0 }.max()
    }
    let end = try connection.lastCounter()
    for member in members {
      try index.deleteChanges(of: member)
      try context.forget(member)
    }
    try context.forgetBases(of: rows)
    for row in others { try context.store(row.timeline, row.table, row.key) }
    try context.noteLogChange(isFollowed: true)
    for ref in rows { try dependence.rowChanged(ref) }
    guard end > last else {
      try context.keepCounter(last)
      return nil
    }
    let made = RequestRange(first: last + 1, last: end, tag: members.compactMap(\.tag).first)
    try connection.setState(.rangesUpTo, .integer(end))
    before.range = made
    try context.store(before)
    let id = try context.requestID(first: made.first)
    // What depended on a member, and would now be sent before it.
    if !dependents.isEmpty {
      let still = try dependence.dependents(of: [made])
      try context.block(dependents.filter { still.holding($0.first) == nil }, by: id)
    }
    return id
  }

  /// What a delete saw of a row that has left this device since: the server may have it still, and says what becomes of the delete.
  private func deletedOutOfSight(
    _ steps: [RowTimeline.Step], _ table: CapturedTable, _ key: Key
  ) throws -> SlotRow? {
    // Where marks delete, a mark says what becomes of the row.
    guard let delete = steps.last, delete.change == .delete,
      !context.schema.tables.contains(where: { $0.flags.deleted != nil }),
      try context.newestVersion(of: table, key)?.base == .left
    else { return nil }
    return delete.saw
  }

  /// The row that changes make of another one. What an insert has not set takes nothing from a row that is there (semantics 7).
  private func made(_ steps: [RowTimeline.Step], on row: SlotRow?, _ table: CapturedTable) -> SlotRow? {
    var made = row
    for step in steps {
      switch step.change {
      case .insert(let values):
        guard var merged = made else {
          made = values
          continue
        }
        for slot in table.otherSlots where !values[slot].isNull && values[slot] != context.defaultValue(table, slot) {
          merged[slot] = values[slot]
        }
        made = merged
      case .update(let news): for (slot, value) in news { made?[slot] = value }
      case .delete: made = nil
      }
    }
    return made
  }

  /// Nil: nothing changes.
  private func insert(
    _ table: CapturedTable, _ key: Key, _ base: SlotRow?, _ current: SlotRow?
  ) throws -> RowTimeline.Step? {
    let operation: LogOperation
    let change: RowChange
    var mask = LogMask(columns: table.columns.count)
    var values: [(Int, Value)] = key.enumerated().map { ($0, $1) }
    switch (base, current) {
    case (nil, nil): return nil
    case (nil, let current?):
      operation = .insert
      change = .insert(current)
    case (let base?, nil):
      operation = .delete
      change = .delete
      values = base.enumerated().map { ($0, $1) }
    case (let base?, let current?):
      operation = .update
      var news: [Int: Value] = [:]
      for slot in table.keyCount..<table.columns.count where base[slot] != current[slot] {
        mask[slot] = true
        values.append((slot, base[slot]))
        news[slot] = current[slot]
      }
      if mask.isEmpty { return nil }
      change = .update(news)
    }
    let masks = operation == .update ? mask.words.enumerated().map { ("m\($0)", Value.integer($1)) } : []
    let columns =
      [("t", Value.integer(table.number)), ("op", .integer(operation.rawValue))] + masks
      + values.map { ("v\($0.0)", $0.1) }
    let slots = (1...columns.count).map { "?\($0)" }.joined(separator: ", ")
    try context.connection.run(
      "INSERT INTO salvor_log (\(columns.map(\.0).joined(separator: ", "))) VALUES (\(slots))", columns.map(\.1))
    let seq = context.connection.lastInsertRowID
    try index.add(table, key, seq: seq)
    let step = RowTimeline.Step(
      seq: seq, change: change, isJoined: false, before: base, after: current, saw: operation == .insert ? nil : base)
    guard operation == .delete else { return step }
    // A mark that is taken back finds what it deleted.
    let isRow = table.keySlots.map { "k\($0) = ?\($0 + 3)" }.joined(separator: " AND ")
    try context.connection.run(
      "UPDATE salvor_mark SET seq = ?1 WHERE t = ?2 AND \(isRow) AND seq IS NOT NULL",
      [.integer(seq), .integer(table.number)] + key)
    return step
  }
}
