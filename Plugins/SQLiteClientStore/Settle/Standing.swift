import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The two loops of a settlement (docs/architecture/settlement.md). The first only displaces, so that it ends; the second
/// only brings back, and nothing leads from it to the first.
extension WorkingRows {
  /// Displaces what is in the way, the youngest first with all that depends on it, until every row stands and is written.
  ///
  /// - Parameter basesMayBreak: between an acknowledgement and the download that follows it the server may have kept
  ///   something else beside what it accepted; a reference that no request is to blame for is then left to the download.
  func stand(basesMayBreak: Bool) throws {
    try sweepMarks()
    try doubtReferences()
    while true {
      if let culprit = try youngestInTheWay() {
        try displace(culprit.seq, culprit.reason, culprit.message)
        if try sweepMarks() { try doubtReferences() }
        continue
      }
      let refused = try written()
      if let culprit = refused?.max() {
        try displace(culprit, .constraint)
        continue
      }
      if try leaveOutUnwritable() { continue }
      try returnMarked()
      try removeDanglingMarked(proof)
      let violations = rows.isEmpty ? [] : try proof.violations()
      guard let culprit = try violations.compactMap({ try self.culprit($0) }).max() else {
        let left = try violations.filter { try !basesMayBreak || hasGone($0) }
        if left.isEmpty { break }
        try leaveOut(left)
        continue
      }
      try displace(culprit, .missingParent)
    }
    doubted = []
    troubles = [:]
  }

  /// The row that it references went in this move: no subscription covers that one, or it is larger than devices take.
  private func hasGone(_ violation: ReferenceProof.Violation) throws -> Bool {
    guard let parent = violation.rule.capturedParent, violation.rule.parentColumnsAreKey else { return false }
    return swept.contains(RowRef(table: parent.number, key: violation.reference))
  }

  /// Rows of the server's that cannot stand without a row that did not come: they have no base until it comes (`IncompleteTables`).
  private func leaveOut(_ violations: [ReferenceProof.Violation]) throws {
    var refs: Set<RowRef> = []
    for violation in violations {
      let (table, key) = (violation.table, violation.key)
      guard refs.insert(RowRef(table: table.number, key: key)).inserted else { continue }
      guard let base = try load(table, key).timeline.base else { throw Self.dangling(violation) }
      try setBase(table, key, nil)
      swept.insert(RowRef(table: table.number, key: key))
      if table.deletedFlag != nil { try followBase(table, key, from: base, to: nil) }
      let parent = RowPlace(table: violation.rule.parent, key: violation.reference)
      let isDeclared = context.table(table)?.declares(violation.rule.childColumns, violation.rule.parent) ?? true
      leftOut.append(
        LeftOutRow(
          row: RowPlace(table: table.name, key: key), cause: isDeclared ? .lacks(parent) : .lacksByOwnKey(parent)))
    }
  }

  /// Rows of the server's that this table takes for one with others of the server's (decision 209), or does not take at all (decision 211):
  /// they have no base until the way is free. False: there are none.
  private func leaveOutUnwritable() throws -> Bool {
    if unwritable.isEmpty { return false }
    for (ref, cause) in unwritable {
      guard let work = rows[ref] else { continue }
      try setBase(work.table, work.key, nil)
      swept.insert(ref)
      if work.table.deletedFlag != nil { try followBase(work.table, work.key, from: work.timeline.base, to: nil) }
      if case .collides = cause, basesMayBreak {
        outdated.insert(work.table.number)
      } else {
        leftOut.append(LeftOutRow(row: RowPlace(table: work.table.name, key: work.key), cause: cause))
      }
    }
    unwritable = []
    return true
  }

  /// Rows that were written or removed plainly may have left a reference without its row: whose is known only when the rows
  /// in work are where they are to be.
  private func doubtReferences() throws {
    for violation in try proof.violations() where try !context.isMarked(violation.table, violation.key) {
      try load(violation.table, violation.key)
      let ref = RowRef(table: violation.table.number, key: violation.key)
      doubted.insert(ref)
      unchecked.insert(ref)
    }
  }

  // MARK: Leaving

  /// Takes the request of a change, and those that depend on it, out of the rows and the log, into the archive.
  ///
  /// - Parameter message: nil: the reason's.
  @discardableResult
  func displace(_ counter: Int64, _ reason: DisplacementReason, _ message: String? = nil) throws -> [RequestRange] {
    let culprit = try context.range(of: counter)
    let reason = try reason == .missingParent && context.isDelete(counter) ? .referenced : reason
    let leaving = try dependenceNow().dependents(of: [culprit])
    let refs = try loadRows(of: leaving)
    displaced += leaving
    // Triggers may capture meanwhile, and take no counter that was given.
    let last = try context.connection.lastCounter()
    for ref in refs { try takeOut(leaving, ref) }
    try context.noteLogChange(isFollowed: true)
    for range in leaving {
      let isCulprit = range.first == culprit.first
      try context.setDisplaced(range, isCulprit ? reason : .blocked, isCulprit ? message : nil)
    }
    try context.keepCounter(last)
    return leaving
  }

  /// The same of a request in error that somebody has to bring back. What depends on it returns where it can stand without.
  ///
  /// - Parameter withFailed: those in error that depend on it go, too: nobody has asked for them to be sent (semantics 8).
  func displaceForGood(_ counter: Int64, withFailed: Bool) throws {
    let culprit = try context.range(of: counter)
    let failed = try dependenceNow().dependents(of: [culprit]).filter {
      try $0.first == culprit.first || (withFailed && context.row(of: $0).isInError)
    }
    try displace(counter, .blocked)
    for range in failed { try context.keepAsItIs(range) }
  }

  /// Takes requests out of the rows and the log for good.
  ///
  /// - Parameters:
  ///   - leaving: in order.
  ///   - areBases: the rows stay as these have made them.
  func remove(_ leaving: [RequestRange], areBases: Bool = false) throws {
    guard !leaving.isEmpty else { return }
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
      var left = RowTimeline(
        base: work.timeline.base, steps: areBases ? work.timeline.steps.filter { leaving.holding($0.seq) != nil } : [])
      left.rebase(on: left.base)
      work.timeline.steps.removeAll { leaving.holding($0.seq) != nil }
      work.timeline.rebase(on: left.current)
      try put(work, ref)
    }
  }

  /// Every outstanding request leaves for the archive, as a kept entry; its rows show their bases again.
  func discardAll(_ reason: String, _ message: String) throws {
    var discarded: Set<RequestRange> = []
    for table in context.catalog.tables {
      try index.eachRow(of: table) { try load(table, $0) }
    }
    for ref in rows.keys.sorted(by: { ($0.table, "\($0.key)") < ($1.table, "\($1.key)") }) {
      guard var work = rows[ref], !work.timeline.steps.isEmpty else { continue }
      for step in work.timeline.steps {
        let range = try context.range(of: step.seq)
        try context.archive(step.asCaptured, of: range, work.table, work.key)
        discarded.insert(range)
      }
      work.timeline.steps = []
      try put(work, ref)
    }
    for range in discarded { try context.setDisplaced(range, .blocked) }
    try context.keepDisplaced(reason, message)
    try context.deleteLogRows(where: "op IN \(StoreContext.changeOperations)", [])
    try context.forgetStored()
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
      try context.archive(step.asCaptured, of: range, work.table, work.key)
      try context.deleteChange(step.seq)
      try index.remove(work.table, work.key, seq: step.seq)
    }
    work.timeline.steps = staying
    work.timeline.rebase(on: work.timeline.base)
    try put(work, ref)
  }

  // MARK: Coming back

  /// Displaced requests that can stand again return, the oldest first: those that need no other displaced one, or that need
  /// one another; with what depends on them where they cannot stand without. An insert that a younger one has passed does not, and
  /// nothing waits for it.
  func returnDisplaced() throws {
    guard try context.anyDisplaced() else { return }
    let dependence = try dependenceOfReturning()
    let overtaken = try context.overtaken()
    let passed = try PassedInserts(context, index).requests()
    var firsts = Set(dependence.displacedRequests.map(\.first)).subtracting(passed)
    var waiting = dependence.displacedRequests.filter { firsts.contains($0.first) && !overtaken.contains($0.first) }
    guard !waiting.isEmpty else { return }
    var isAgain = true
    // One that returns may make room for another.
    while isAgain {
      isAgain = false
      let needs = DisplacedNeeds(dependence, firsts)
      for request in waiting {
        guard let circle = try needs.circle(of: request), overtaken.isDisjoint(with: circle.map(\.first)) else {
          continue
        }
        var returning: [RequestRange]? = circle
        if try !returns(circle) {
          returning = try needs.together(circle)
          if let more = returning, try !overtaken.isDisjoint(with: more.map(\.first)) || !returns(more) {
            returning = nil
          }
        }
        guard let returning else { continue }
        for request in returning {
          try dependence.returned(request)
          firsts.remove(request.first)
        }
        waiting.removeAll { !firsts.contains($0.first) }
        isAgain = true
        break
      }
    }
  }

  /// Puts requests back where values and the tables take them; false: all is as it was.
  ///
  /// - Parameter requests: in order.
  private func returns(_ requests: [RequestRange]) throws -> Bool {
    let changes = try requests.map { try context.archived(where: "first = ?1", [.integer($0.first)]) }
    for change in changes.joined() where try isBehindOffer(change) || isBehindSent(change) || isBehindJoined(change) {
      return false
    }
    var before: [RowRef: Work] = [:]
    for change in changes.joined() {
      let ref = RowRef(table: change.table.number, key: change.key)
      var work = try load(change.table, change.key)
      if before[ref] == nil { before[ref] = work }
      let place = work.timeline.steps.firstIndex { $0.seq > change.step.seq } ?? work.timeline.steps.count
      work.timeline.steps.insert(change.step, at: place)
      work.timeline.rebase(on: work.timeline.base)
      try put(work, ref)
    }
    let stands = try youngestInTheWay() == nil && written(isProven: { try self.isProven() }) == nil
    doubted = []
    troubles = [:]
    guard stands else {
      for (ref, work) in before { try put(work, ref) }
      unchecked = []
      return false
    }
    for change in changes.joined() {
      try context.writeLog([change.step.entry(change.table, change.key)])
      try index.add(change.table, change.key, seq: change.step.seq)
    }
    for ref in before.keys { if let work = rows[ref] { try encode(work) } }
    try context.noteLogChange()
    for request in requests {
      try context.connection.run("DELETE FROM salvor_archive WHERE first = ?1", .integer(request.first))
      try context.setReturned(request)
    }
    returned += requests
    return true
  }

  /// What is offered of the row comes before every request by effect: the older change stands upon it, when it is settled. So it is with a row
  /// that is made again.
  private func isBehindOffer(_ change: StoreContext.ArchivedChange) throws -> Bool {
    try load(change.table, change.key).timeline.steps.contains { step in
      guard step.seq > change.step.seq, step.change.meets(change.step.change) else { return false }
      if step.change.operation == .insert, change.step.change.operation != .insert { return true }
      return try context.isPlainOffer(step.seq)
    }
  }

  /// A younger change of the row is under way, and says something of the same part: where the server accepts it, the older one is overtaken.
  private func isBehindSent(_ change: StoreContext.ArchivedChange) throws -> Bool {
    try load(change.table, change.key).timeline.steps.contains { step in
      guard step.seq > change.step.seq, step.change.meets(change.step.change), try !context.isPlainOffer(step.seq)
      else { return false }
      let state = try context.state(of: context.range(of: step.seq))
      return state == .sent || state == .unknownOutcome
    }
  }

  /// Older changes of the row are in a request that was made since, under a later number (`RetryJoining`): below it the change would come before
  /// them.
  private func isBehindJoined(_ change: StoreContext.ArchivedChange) throws -> Bool {
    try load(change.table, change.key).timeline.steps.contains { step in
      guard step.seq > change.step.seq, step.change.meets(change.step.change) else { return false }
      return try context.row(of: context.range(of: step.seq)).history.contains { $0.counter < change.step.seq }
    }
  }

  /// References that values cannot follow are proved in the tables; so are those to marked rows, which make room meanwhile.
  private func isProven() throws -> Bool {
    if try !removeDanglingMarked(proof), places.followsAll { return true }
    return try proof.violations().allSatisfy { try culprit($0) == nil }
  }
}

/// What displaced requests need of each other, straight: what stands needs none of them any more.
private struct DisplacedNeeds {
  private let dependence: DependenceLookup
  private let displaced: Set<Int64>

  /// - Parameter displaced: first counters.
  init(_ dependence: DependenceLookup, _ displaced: Set<Int64>) {
    self.dependence = dependence
    self.displaced = displaced
  }

  private func direct(_ request: RequestRange) throws -> [RequestRange] {
    try dependence.directNeeds(of: request).filter { displaced.contains($0.first) }
  }

  /// The request and all that it needs.
  private func all(_ request: RequestRange) throws -> [Int64: RequestRange] {
    var found = [request.first: request]
    var waiting = [request]
    while let next = waiting.popLast() {
      for need in try direct(next) where found.updateValue(need, forKey: need.first) == nil { waiting.append(need) }
    }
    return found
  }

  /// What returns with a request at once: itself, or those that depend on it and it on them. Nil: it depends on a displaced
  /// one that returns before it. A circle is found at its oldest request, which depends on a later one.
  func circle(of request: RequestRange) throws -> [RequestRange]? {
    let needs = try direct(request)
    if needs.isEmpty { return [request] }
    guard needs.contains(where: { $0.first > request.first }) else { return nil }
    let circle = try all(request).values.sorted { $0.first < $1.first }
    for other in circle where try all(other)[request.first] == nil { return nil }
    return circle
  }

  /// Requests that cannot stand, with all that depends on them and on no other displaced one: what a request made may be
  /// right only after the next one. Nil: there are none.
  func together(_ circle: [RequestRange]) throws -> [RequestRange]? {
    let dependents = try dependence.dependents(of: circle).filter { displaced.contains($0.first) }
    var needs: [Int64: Set<Int64>] = [:]
    for request in dependents { needs[request.first] = Set(try direct(request).map(\.first)) }
    // Those that are reached from the circle without what stands between.
    var found = Set(circle.map(\.first))
    while true {
      let more = dependents.filter { !found.contains($0.first) && !(needs[$0.first] ?? []).isDisjoint(with: found) }
      if more.isEmpty { break }
      found.formUnion(more.map(\.first))
    }
    while let outside = found.first(where: { !(needs[$0] ?? []).isSubset(of: found) }) { found.remove(outside) }
    return found.count > circle.count ? dependents.filter { found.contains($0.first) } : nil
  }
}
