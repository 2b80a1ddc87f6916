import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides requests as sets: all of them in one savepoint; where they break a constraint, one half after the other, down
/// to the request to refuse (semantics 7).
final class BlockDecision {
  private let rows: RowReader
  private let upload: ProcessRequest
  private let writer: SetWriter
  private let now: Int64
  var foreign: ForeignChanges
  private var connection: SQLiteConnection { rows.connection }

  init(_ rows: RowReader, _ upload: ProcessRequest, foreign: ForeignChanges, now: Int64) {
    self.rows = rows
    self.now = now
    self.upload = upload
    self.foreign = foreign
    writer = SetWriter(rows)
  }

  /// Decides one request. False: it breaks a constraint, or lacks a parent, and nothing is done.
  func decideAlone(_ request: StagedRequest, _ tally: inout Tally) throws -> Bool {
    var steps: [Step]?
    if tally.hasRefused || !tally.carried.isEmpty {
      var reader = StepReader(rows, over: tally.refusedRows)
      steps = try reader.steps(of: request)
    }
    var evaluation = SetEvaluation(rows, upload, now: now)
    var decisions = SetDecisions()
    try decide(request, steps, &evaluation, &decisions, tally, isLast: false)
    // One that depends on a carried request is carried, too; one that lacks a parent itself must be looked at in order.
    if let carried = decisions.carried.first, tally.carriedPrints.first(neededBy: carried.steps) == nil { return false }
    if try write(evaluation, &tally) != nil { return false }
    tally.keep(evaluation.kept)
    decisions.join(&tally)
    return true
  }

  /// Decides requests together.
  ///
  /// - Parameter isLast: nothing follows that could bring a missing parent.
  func decide(_ requests: [StagedRequest], _ tally: inout Tally, isLast: Bool) throws {
    guard !requests.isEmpty else { return }
    var reader = StepReader(rows, over: tally.refusedRows)
    let steps = try requests.map { try reader.steps(of: $0) }
    var made: [UInt64: StagedChange] = [:]
    for request in requests {
      for change in request.changes where change.operation == .insert { made[change.hash] = change }
    }
    let order = try RequestOrder.order(requests, steps) { hash in
      guard let change = made[hash], let place = change.table else { return false }
      return try rows.row(place, change.key) != nil
    }
    var open = [order.map { (request: requests[$0], steps: steps[$0]) }[...]]
    while let set = open.popLast() {
      guard let broken = try attempt(set, &tally, isLast: isLast) else { continue }
      if set.count > 1 {
        let middle = set.startIndex + set.count / 2
        open.append(set[middle...])
        open.append(set[..<middle])
      } else if let single = set.first {
        if try !isLast && mayDependOnLater(single.request, broken, single.steps, SetEvaluation(rows, upload, now: now))
        {
          tally.carry(single.request, single.steps)
        } else {
          tally.refuse(RefusedRequest(single.request, broken, single.steps))
        }
      }
    }
  }

  /// Nil: the set is decided, and what was accepted of it is written. Else what it breaks; nothing is done then.
  private func attempt(
    _ set: ArraySlice<(request: StagedRequest, steps: [Step])>, _ tally: inout Tally, isLast: Bool
  ) throws -> RefusalText? {
    var evaluation = SetEvaluation(rows, upload, now: now)
    var decisions = SetDecisions()
    for (request, steps) in set { try decide(request, steps, &evaluation, &decisions, tally, isLast: isLast) }
    if let broken = try write(evaluation, &tally) { return broken }
    tally.keep(evaluation.kept)
    decisions.join(&tally)
    return nil
  }

  /// - Parameter steps: nil where nothing was refused before.
  private func decide(
    _ request: StagedRequest, _ steps: [Step]?, _ evaluation: inout SetEvaluation, _ decisions: inout SetDecisions,
    _ tally: Tally, isLast: Bool
  ) throws {
    if let steps, let blocker = decisions.blocker(of: steps, tally) {
      return decisions.refuse(RefusedRequest(request, .blocked, steps, blockedBy: blocker))
    }
    if let steps, decisions.waits(steps, tally) { return decisions.carry(request, steps) }
    let keptBefore = evaluation.kept.count
    let refusal = try evaluation.decide(request, &foreign)
    let isKept = evaluation.kept.count > keptBefore
    guard refusal != nil || isKept else { return decisions.accept(request) }
    var reader = StepReader(rows, over: tally.refusedRows)
    let found = try steps ?? reader.steps(of: request)
    guard let refusal else {
      // What is kept is not written, so nothing else finds out that it lacks a parent.
      if try !isLast && evaluation.lacksParent(request, found) {
        evaluation.withdrawKept(beyond: keptBefore)
        return decisions.carry(request, found)
      }
      decisions.accept(request)
      decisions.conflicts += 1
      return
    }
    if try !isLast && mayDependOnLater(request, refusal, found, evaluation) {
      decisions.carry(request, found)
    } else {
      decisions.refuse(RefusedRequest(request, refusal, found))
    }
  }

  /// Whether a later request may make a row that a refused one references. Whatever speaks against the refused one
  /// itself, it is not tried where that one is refused: it is blocked by it.
  private func mayDependOnLater(
    _ request: StagedRequest, _ refusal: RefusalText, _ steps: [Step], _ evaluation: SetEvaluation
  ) throws -> Bool {
    try refusal.reason == .missingParent || evaluation.lacksParent(request, steps)
  }

  private struct Broken: Error { var text: RefusalText }

  private func write(_ evaluation: SetEvaluation, _ tally: inout Tally) throws -> RefusalText? {
    do {
      try connection.execute("SAVEPOINT salvor_set; PRAGMA defer_foreign_keys = ON")
      let (broken, wasParked) = try writer.write(evaluation.overlay)
      if let broken { throw Broken(text: broken) }
      try connection.execute("PRAGMA defer_foreign_keys = OFF; RELEASE salvor_set")
      try tally.echo.account(evaluation, isDoubled: wasParked)
      return nil
    } catch let broken as Broken {
      try connection.execute("ROLLBACK TO salvor_set; PRAGMA defer_foreign_keys = OFF; RELEASE salvor_set")
      return broken.text
    }
  }
}
