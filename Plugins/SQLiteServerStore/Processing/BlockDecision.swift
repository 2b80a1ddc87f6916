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
  var foreign: ForeignChanges
  private var connection: SQLiteConnection { rows.connection }

  init(_ rows: RowReader, _ upload: ProcessRequest, foreign: ForeignChanges) {
    self.rows = rows
    self.upload = upload
    self.foreign = foreign
    writer = SetWriter(rows)
  }

  /// Decides one request. False: it breaks a constraint on its own, or lacks a parent; `tally` is of no use then.
  func decideAlone(_ request: StagedRequest, _ tally: inout Tally) throws -> Bool {
    var reader = StepReader(rows, over: tally.refusedRows)
    let steps = try tally.hasRefused ? reader.steps(of: request) : nil
    return try attempt([(request, steps)], &tally, isLast: false) == nil && tally.carried.isEmpty
  }

  /// - Parameter isLast: nothing follows that could bring a missing parent.
  func decide(_ requests: [StagedRequest], _ tally: inout Tally, isLast: Bool) throws {
    guard !requests.isEmpty else { return }
    var reader = StepReader(rows, over: tally.refusedRows)
    let steps = try requests.map { try reader.steps(of: $0) }
    var made: [UInt64: StagedChange] = [:]
    for request in requests { for change in request.changes where change.operation == .insert { made[change.hash] = change } }
    let order = try RequestOrder.order(requests, steps) { hash in
      guard let change = made[hash], let place = change.table else { return false }
      return try rows.row(place, change.key) != nil
    }
    var open = [order.map { (request: requests[$0], steps: Optional(steps[$0])) }[...]]
    while let set = open.popLast() {
      guard let broken = try attempt(set, &tally, isLast: isLast) else { continue }
      if set.count > 1 {
        let middle = set.startIndex + set.count / 2
        open.append(set[middle...])
        open.append(set[..<middle])
      } else if let single = set.first {
        if broken.reason == .missingParent && !isLast {
          tally.carry(single.request, single.steps ?? [])
        } else {
          tally.refuse(single.request, broken, single.steps ?? [])
        }
      }
    }
  }

  /// Nil: the set is decided, and what was accepted of it is written. Else what it breaks; nothing is done then.
  private func attempt(
    _ set: some Collection<(request: StagedRequest, steps: [Step]?)>, _ tally: inout Tally, isLast: Bool
  ) throws -> RefusalText? {
    var next = tally
    var evaluation = SetEvaluation(rows, upload.principal)
    for (request, steps) in set {
      if let steps, let blocker = next.blocker(of: steps) {
        next.refuse(request, .blocked, steps, blockedBy: blocker)
      } else if let steps, next.carriedPrints.first(neededBy: steps) != nil {
        next.carry(request, steps)
      } else {
        let keptBefore = evaluation.kept.count
        guard let refusal = try evaluation.decide(request, &foreign) else {
          next.accept(request.stamp, request.first, request.last)
          if evaluation.kept.count > keptBefore { next.conflicts += 1 }
          continue
        }
        var reader = StepReader(rows, over: next.refusedRows)
        let found = try steps ?? reader.steps(of: request)
        if refusal.reason == .missingParent && !isLast {
          next.carry(request, found)
        } else {
          next.refuse(request, refusal, found)
        }
      }
    }
    if let broken = try write(evaluation, &next) { return broken }
    next.kept += evaluation.kept
    tally = next
    return nil
  }

  private struct Broken: Error { var text: RefusalText }

  private func write(_ evaluation: SetEvaluation, _ tally: inout Tally) throws -> RefusalText? {
    do {
      try connection.execute("SAVEPOINT salvor_set; PRAGMA defer_foreign_keys = ON")
      let (broken, wasParked) = try writer.write(evaluation)
      if let broken { throw Broken(text: broken) }
      try connection.execute("PRAGMA defer_foreign_keys = OFF; RELEASE salvor_set")
      try tally.echo.account(evaluation, isDoubled: wasParked)
      return nil
    } catch let broken as Broken {
      try connection.execute("ROLLBACK TO salvor_set; PRAGMA defer_foreign_keys = OFF; RELEASE salvor_set")
      return broken.text
    }
  }

  /// Puts the conflict versions beside the rows, for a person.
  func record(_ kept: [SetEvaluation.ConflictVersion], now: Int64) throws {
    guard !kept.isEmpty else { return }
    let version = try CommitLog.state(connection).head.number
    for entry in kept {
      let table = rows.catalog.tables[entry.table]
      func members(_ columns: [Int], _ values: [Value]) -> Value {
        .text(
          JSONValue.object(zip(columns, values).map { JSONValue.Member(table.columns[$0].name, JSONValue($1)) }).text)
      }
      try connection.run(
        """
        INSERT INTO salvor_conflict ("table", key, operation, client, server, version, remote, principal, request, time)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        """, .text(table.name), .text(JSONValue.array(entry.change.key.map { JSONValue($0) }).text),
        .text(entry.change.operation.rawValue), members(entry.change.columns, entry.change.new),
        members(Array(table.columns.indices), entry.server), .integer(version), .text(upload.remote.text),
        .text(upload.principal.name), .text(entry.request.description), .integer(now))
    }
  }
}
