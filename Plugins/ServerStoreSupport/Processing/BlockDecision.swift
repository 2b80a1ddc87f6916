import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides requests as sets: all of them in one savepoint; where they break a constraint, one half after the other, down
/// to the request to refuse (semantics 7). Requests that depend on one another, in a circle, are one unit: halves never
/// part them, and they stand or fall together.
final class BlockDecision {
  private let rows: RowReader
  private let upload: ProcessRequest
  private let writer: SetWriter
  private let now: Int64
  private let departures: Departures
  private let heals: HealBook
  var foreign: ForeignChanges
  private var connection: any StoreConnection { rows.connection }

  /// Nearly always one request.
  private typealias Unit = [(request: StagedRequest, steps: [Step])]

  /// - Parameter last: the last entry of the log before the upload.
  init(
    _ rows: RowReader, _ upload: ProcessRequest, _ reach: Reach, foreign: ForeignChanges, _ heals: HealBook,
    last: Int64,
    now: Int64
  ) {
    self.rows = rows
    self.heals = heals
    departures = Departures(rows: rows, principal: upload.principal, last: last)
    self.now = now
    self.upload = upload
    self.foreign = foreign
    writer = SetWriter(rows, reach)
  }

  /// What was written for the requests so far is taken back.
  func forgetWritten() { departures.before.forget() }

  /// Decides one request. False: it breaks a constraint, or lacks a parent, and nothing is done.
  func decideAlone(_ request: StagedRequest, _ tally: inout Tally) throws -> Bool {
    try noteStraight(&tally)
    switch heals.intake.purpose {
    case .givingUp:
      try keep(request, &tally)
      return true
    case .rejecting:
      tally.refuse(RefusedRequest(request, .rejected, []))
      return true
    case .upload, .settling: break
    }
    var steps: [Step]?
    if tally.hasRefused || !tally.carried.isEmpty {
      var reader = StepReader(rows, over: tally.refusedRows)
      steps = try reader.steps(of: request)
    }
    var evaluation = SetEvaluation(rows, upload, departures, heals, now: now)
    var decisions = SetDecisions()
    try decide(request, steps, &evaluation, &decisions, tally, isLast: false)
    // One that depends on a carried request is carried, too; one that lacks a parent itself must be looked at in order.
    if let carried = decisions.carried.first,
      tally.carriedPrints.first(neededBy: carried.steps, of: request.ordinal) == nil
    {
      return false
    }
    if try write(evaluation, &tally) != nil { return false }
    tally.keep(evaluation.kept)
    tally.offers += evaluation.offers
    decisions.join(&tally)
    return true
  }

  /// Decides requests together.
  ///
  /// - Parameters:
  ///   - requests: in the client's order.
  ///   - isLast: nothing follows that could bring a missing parent.
  func decide(_ requests: [StagedRequest], _ tally: inout Tally, isLast: Bool) throws {
    try noteStraight(&tally)
    guard !requests.isEmpty else { return }
    try heals.beginSet(requests)
    defer { heals.endSet() }
    var reader = StepReader(rows, over: tally.refusedRows)
    let steps = try requests.map { try reader.steps(of: $0) }
    var open = [RequestOrder.units(steps).map { unit in unit.map { (request: requests[$0], steps: steps[$0]) } }[...]]
    while let set = open.popLast() {
      guard let broken = try attempt(set, &tally, isLast: isLast) else { continue }
      if set.count > 1 {
        let middle = set.startIndex + set.count / 2
        open.append(set[middle...])
        open.append(set[..<middle])
      } else if let unit = set.first {
        try settleBroken(unit, broken, &tally, isLast: isLast)
      }
    }
  }

  /// The book of healing learns of offers that were written straight.
  func noteStraight(_ tally: inout Tally) throws {
    let straight = tally.straightOffers
    guard !straight.isEmpty else { return }
    tally.straightOffers = StraightOffers()
    var same = straight.same
    // Triggers of the application's own write, too: then a statement does not tell by how many rows it wrote what it left.
    if try straight.isTold && heals.hasEntries(straight.entryCount, after: straight.before) {
      try heals.write(straight.entries)
      if !same.isEmpty { try heals.write(straight.healings.filter { same.contains($0.key) }, after: .max) }
    } else {
      let before = straight.isTold ? heals.last : straight.before
      let healings = straight.healings
      same = Set(healings.keys).subtracting(try heals.write(healings, after: before))
    }
    var counts: [Int: OfferCount.Count] = [:]
    for (row, healing) in straight.list {
      if !same.isEmpty, same.contains(row) {
        counts[healing.table, default: .init()].superseded += 1
      } else {
        counts[healing.table, default: .init()].healed += 1
      }
    }
    for (table, count) in counts {
      tally.offers[table].superseded += count.superseded
      tally.offers[table].healed += count.healed
    }
  }

  /// Nil: the set is decided, and what was accepted of it is written. Else what it breaks; nothing is done then.
  private func attempt(_ set: ArraySlice<Unit>, _ tally: inout Tally, isLast: Bool) throws -> SetWriter.Broken? {
    var evaluation = SetEvaluation(rows, upload, departures, heals, now: now)
    var decisions = SetDecisions()
    for unit in set { try decide(unit, &evaluation, &decisions, tally, isLast: isLast) }
    if let broken = try write(evaluation, &tally) { return broken }
    tally.keep(evaluation.kept)
    tally.offers += evaluation.offers
    decisions.join(&tally)
    return nil
  }

  /// Where one is refused, the others are blocked by it; where one waits for a later part of the upload, all do.
  private func decide(
    _ unit: Unit, _ evaluation: inout SetEvaluation, _ decisions: inout SetDecisions, _ tally: Tally, isLast: Bool
  ) throws {
    if unit.count == 1 {
      return try decide(unit[0].request, unit[0].steps, &evaluation, &decisions, tally, isLast: isLast)
    }
    let before = evaluation
    var decided = SetDecisions()
    evaluation.beginCircle()
    for (request, steps) in unit {
      if let blocker = decisions.blocker(of: request, steps, tally) {
        decided.refuse(try blocked(request, steps, by: blocker, decisions, tally, evaluation))
      } else if decisions.waits(request, steps, tally) {
        decided.carry(request, steps)
      } else if tally.waitingRows.mayHoldWhatIsNeeded(by: steps), !request.mayWait {
        decided.refuse(Self.waiting(request, steps))
      } else {
        try decide(request, steps, &evaluation, &decided, tally, isLast: isLast)
      }
      if !decided.refused.isEmpty || !decided.carried.isEmpty { break }
    }
    if decided.refused.isEmpty, decided.carried.isEmpty,
      let (ordinal, refusal) = try evaluation.endCircle(since: before),
      let (request, steps) = unit.first(where: { $0.request.ordinal == ordinal })
    {
      if try !isLast && mayDependOnLater(request, refusal, steps, evaluation) {
        decided.carry(request, steps)
      } else {
        decided.refuse(try refused(request, refusal, steps, evaluation))
      }
    }
    if let culprit = decided.refused.first {
      evaluation = before
      for entry in Self.refused(unit, culprit) { decisions.refuse(entry) }
    } else if !decided.carried.isEmpty {
      evaluation = before
      for (request, steps) in unit { decisions.carry(request, steps) }
    } else {
      for (request, _) in unit { decisions.accept(request) }
      decisions.conflicts += decided.conflicts
    }
  }

  /// It needs a row whose offer waits, and stays with its device until that is settled.
  private static func waiting(_ request: StagedRequest, _ steps: [Step]) -> RefusedRequest {
    RefusedRequest(request, .blocked, steps, wait: RefusedRequest.Wait(nil))
  }

  /// In the client's order.
  private static func refused(_ unit: Unit, _ culprit: RefusedRequest) -> [RefusedRequest] {
    unit.map { request, steps in
      if request.ordinal == culprit.request.ordinal { return culprit }
      if let refusal = request.purged { return RefusedRequest(request, refusal, steps) }
      return RefusedRequest(
        request, .blocked, steps, blockedBy: culprit.request.id,
        wait: culprit.wait.map { wait in request.mayWait ? wait : RefusedRequest.Wait(nil) })
    }
  }

  /// What speaks against a request. An offer that lacks a parent waits for it.
  private func refused(
    _ request: StagedRequest, _ refusal: RefusalText, _ steps: [Step], _ evaluation: SetEvaluation
  ) throws -> RefusedRequest {
    if let reason = refusal.wait {
      return RefusedRequest(request, refusal, steps, wait: RefusedRequest.Wait(reason))
    }
    guard refusal.reason == .missingParent, request.mayWait,
      let parent = try evaluation.awaitedParent(of: request, steps)
    else { return RefusedRequest(request, refusal, steps) }
    return RefusedRequest(request, refusal, steps, wait: RefusedRequest.Wait(.parent, parent))
  }

  /// It depends on one that was refused, or that waits: then it waits, too, an offer at the server, any other change on its device.
  private func blocked(
    _ request: StagedRequest, _ steps: [Step], by blocker: RequestID, _ decisions: SetDecisions, _ tally: Tally,
    _ evaluation: SetEvaluation
  ) throws -> RefusedRequest {
    // Its device erases what it has of the row, whatever else holds the request back.
    if let refusal = request.purged { return RefusedRequest(request, refusal, steps) }
    guard let wait = decisions.waiting[blocker] ?? tally.waiting[blocker] else {
      return RefusedRequest(request, .blocked, steps, blockedBy: blocker)
    }
    guard request.mayWait, let reason = wait.reason else {
      return RefusedRequest(request, .blocked, steps, blockedBy: blocker, wait: RefusedRequest.Wait(nil))
    }
    let parent = try evaluation.awaitedParent(of: request, steps)
    let own = heals.intake.wait(of: request, rows.catalog) ?? (parent == nil ? reason : .parent)
    return RefusedRequest(
      request, .blocked, steps, blockedBy: blocker,
      wait: RefusedRequest.Wait(own, own == .parent ? parent ?? wait.parent : nil))
  }

  /// A unit that breaks a constraint by itself: refused is the last of its requests that changed the row which breaks it;
  /// of several such requests the first.
  private func settleBroken(_ unit: Unit, _ broken: SetWriter.Broken, _ tally: inout Tally, isLast: Bool) throws {
    let mayCarry = !isLast && !(tally.isCarryingMuch && unit.allSatisfy(\.request.mayWait))
    if try mayCarry && mayDependOnLater(unit, broken.text) {
      for (request, steps) in unit { tally.carry(request, steps) }
      return
    }
    let places = broken.rows.compactMap { row in
      unit.lastIndex { $0.request.changes.contains { $0.hash == row } }
    }
    let (request, steps) = unit[places.min() ?? unit.count - 1]
    if unit.count == 1, broken.text.reason == .missingParent, request.mayWait {
      let evaluation = SetEvaluation(rows, upload, departures, heals, now: now)
      return tally.refuse(try refused(request, broken.text, steps, evaluation))
    }
    if unit.count == 1, request.isOffer, broken.isTaken || request.changes.allSatisfy({ $0.operation == .delete }) {
      return try keep(request, &tally)
    }
    for entry in Self.refused(unit, RefusedRequest(request, broken.text, steps)) { tally.refuse(entry) }
  }

  /// An offer that cannot stand: others hold its unique values, or need the row that it would delete; or it has waited in vain.
  private func keep(_ request: StagedRequest, _ tally: inout Tally) throws {
    var evaluation = SetEvaluation(rows, upload, departures, heals, now: now)
    try evaluation.keepUnwritable(request, &foreign)
    var decisions = SetDecisions()
    decisions.accept(request)
    if !evaluation.kept.isEmpty { decisions.conflicts += 1 }
    if try write(evaluation, &tally) != nil { return }
    tally.keep(evaluation.kept)
    tally.offers += evaluation.offers
    decisions.join(&tally)
  }

  /// As if all of it were accepted.
  private func mayDependOnLater(_ unit: Unit, _ refusal: RefusalText) throws -> Bool {
    var evaluation = SetEvaluation(rows, upload, departures, heals, now: now)
    if unit.count > 1 {
      evaluation.beginCircle()
      for (request, _) in unit { _ = try evaluation.decide(request, &foreign) }
    }
    return try unit.contains { try mayDependOnLater($0.request, refusal, $0.steps, evaluation) }
  }

  /// - Parameter steps: nil where nothing was refused before.
  private func decide(
    _ request: StagedRequest, _ steps: [Step]?, _ evaluation: inout SetEvaluation, _ decisions: inout SetDecisions,
    _ tally: Tally, isLast: Bool
  ) throws {
    if let steps, let blocker = decisions.blocker(of: request, steps, tally) {
      return decisions.refuse(try blocked(request, steps, by: blocker, decisions, tally, evaluation))
    }
    // What becomes of offers does not depend on their order: of many, some need not be carried.
    let mayCarry = !isLast && !(request.mayWait && tally.isCarryingMuch)
    if let steps {
      if (mayCarry || !request.mayWait) && decisions.waits(request, steps, tally) {
        return decisions.carry(request, steps)
      }
      if !request.mayWait, tally.waitingRows.mayHoldWhatIsNeeded(by: steps) {
        return decisions.refuse(Self.waiting(request, steps))
      }
    }
    let keptBefore = evaluation.kept.count
    let refusal = try evaluation.decide(request, &foreign)
    let conflicts = evaluation.kept[keptBefore...]
    guard refusal != nil || !conflicts.isEmpty else { return decisions.accept(request) }
    var reader = StepReader(rows, over: tally.refusedRows)
    let found = try steps ?? reader.steps(of: request)
    guard let refusal else {
      // What is kept is not written, so nothing else finds out that it lacks a parent.
      if try !isLast && conflicts.allSatisfy({ $0.settled == nil && $0.change.offer == nil })
        && evaluation.lacksParent(request, found)
      {
        evaluation.withdrawKept(beyond: keptBefore)
        return decisions.carry(request, found)
      }
      decisions.accept(request)
      decisions.conflicts += 1
      return
    }
    if try mayCarry && refusal.wait == nil && mayDependOnLater(request, refusal, found, evaluation) {
      decisions.carry(request, found)
    } else {
      decisions.refuse(try refused(request, refusal, found, evaluation))
    }
  }

  /// Whether a later request may make a row that a refused one references. Whatever speaks against the refused one
  /// itself, it is not tried where that one is refused: it is blocked by it.
  private func mayDependOnLater(
    _ request: StagedRequest, _ refusal: RefusalText, _ steps: [Step], _ evaluation: SetEvaluation
  ) throws -> Bool {
    try refusal.reason == .missingParent || evaluation.lacksParent(request, steps)
  }

  /// The sender is told what the database made of the rows that were written. Returns, of offered rows, the columns that it stored otherwise.
  private func feedAltered(_ evaluation: SetEvaluation, _ tally: inout Tally) throws -> [UInt64: Int64] {
    var altered: [UInt64: Int64] = [:]
    for (hash, entry) in evaluation.overlay.entries where entry.before != entry.now {
      // Other databases store what they are given, but for -0.0.
      guard connection.altersRows || entry.now?.contains(where: \.isMinusZero) == true else { continue }
      let found = try rows.row(entry.table, entry.key)
      guard found != entry.now else { continue }
      tally.echo.feed(entry.table, entry.key, hash)
      guard evaluation.healings[hash] != nil, let found, let sent = entry.now else { continue }
      let bits = rows.catalog.tables[entry.table].bits
      altered[hash] = ColumnMask.mask(bits.indices.filter { found[$0] != sent[$0] }.map { bits[$0] })
    }
    return altered
  }

  private func write(_ evaluation: SetEvaluation, _ tally: inout Tally) throws -> SetWriter.Broken? {
    let before = evaluation.healings.isEmpty ? 0 : try CommitLog.state(connection).lastSequence
    do {
      let written = try connection.savepoint("salvor_set") {
        try connection.deferReferences()
        let written = try writer.write(evaluation.overlay, after: tally.echo.lastAccounted)
        if let broken = written.broken { throw broken }
        try connection.checkReferences()
        return written
      }
      try tally.echo.account(evaluation, isDoubled: written.wasParked)
      for row in written.passedOver { tally.echo.feed(row.table, row.key, writer.hash(of: row)) }
      try heals.write(evaluation.healings, after: before, altered: feedAltered(evaluation, &tally))
      return nil
    } catch let broken as SetWriter.Broken {
      try connection.checkReferences()
      return broken
    }
  }
}

extension Value {
  fileprivate var isMinusZero: Bool { if case .real(let x) = self { x == 0 && x.sign == .minus } else { false } }
}
