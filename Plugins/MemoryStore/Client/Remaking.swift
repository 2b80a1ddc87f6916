import SalvorModel
import SalvorStorage

/// row = base ⊕ requests (semantics 2): the view is made anew from the bases and the outstanding requests, and what
/// cannot stand is displaced.
extension ClientContent {
  /// The bases with `requests` applied in order, and the places of the requests that found no row to update.
  static func shown(
    _ requests: [Request], over bases: MemoryTables, schema: Schema
  ) -> (view: MemoryTables, lost: Set<Int>) {
    var view = bases
    var lost: Set<Int> = []
    for (index, request) in requests.enumerated() {
      for change in request.changes {
        guard let table = schema.table(change.row.table) else { continue }
        if change.operation == .update && view[change.row] == nil { lost.insert(index) }
        view[change.row] = change.applied(to: view[change.row], of: table)
      }
    }
    return (view, lost)
  }

  /// Makes the view anew. Returns the requests displaced now, those that depend on the one in the way among them.
  ///
  /// After a download, bases that break a constraint alone throw `inconsistent-download`. Between an acknowledgement and
  /// the download that follows it they may: the server may have kept something else beside what it accepted.
  @discardableResult
  mutating func remake(_ constraints: Constraints, afterDownload: Bool = false) throws -> [RequestID] {
    let basesMayBreak = !afterDownload
    if afterDownload { try checkBases(constraints) }
    let before = Set(requests.filter { $0.state == .displaced }.map(\.id))
    while let index = youngestInTheWay(problems(constraints, basesMayBreak)) {
      let active = requests.indices.filter { requests[$0].state != .displaced && requests[$0].state != .kept }
      let dependence = Dependence(active.map { requests[$0] }, on: bases, schema: schema)
      guard let place = active.firstIndex(of: index) else { break }
      for dependent in dependence.dependents(of: [place]) {
        let displaced = active[dependent]
        requests[displaced].stateBefore = requests[displaced].state
        requests[displaced].state = .displaced
      }
    }
    // What was in the way may be gone: displaced requests return, the oldest first, each where it can stand and where
    // none that it depends on is still displaced. One that returns may make room for another.
    while let returning = returningRequests(constraints, basesMayBreak) {
      for index in returning {
        requests[index].state = requests[index].stateBefore ?? .queued
        requests[index].isOvertaken = false
      }
    }
    releaseDisplaced()
    showRows(constraints, basesMayBreak)
    return requests.filter { $0.state == .displaced && !before.contains($0.id) }.map(\.id)
  }

  /// A request that depends on no displaced one, or those that depend on one another; with what depends on them where they
  /// cannot stand without: what a request made may be right only after the next one.
  private func returningRequests(_ constraints: Constraints, _ basesMayBreak: Bool) -> [Int]? {
    let standing = requests.indices.filter { requests[$0].state != .kept }
    let all = Dependence(standing.map { requests[$0] }, on: bases, schema: schema)
    let displaced = Set(
      standing.indices.filter { requests[standing[$0]].state == .displaced && !isPassed(standing[$0]) })
    // What stands needs no displaced one any more, whatever it was made on.
    func needs(_ place: Int) -> Set<Int> { all.needs(of: [place], among: displaced) }
    for place in displaced.sorted() {
      let circle = needs(place)
      guard circle.allSatisfy({ needs($0).contains(place) }) else { continue }
      let dependents = all.dependents(of: circle, among: displaced)
      let together = dependents.filter { needs($0).isSubset(of: dependents) }
      for set in [circle, together] {
        var attempt = self
        let indices = set.sorted().map { standing[$0] }
        if indices.contains(where: {
          requests[$0].isOvertaken || isBehindOffer($0) || isBehindSent($0) || isBehindJoined($0)
        }) {
          continue
        }
        for index in indices { attempt.requests[index].state = requests[index].stateBefore ?? .queued }
        if attempt.youngestInTheWay(attempt.problems(constraints, basesMayBreak)) == nil { return indices }
      }
    }
    return nil
  }

  /// A row that the displaced request made was inserted again since, and not deleted in between: below that insert it would say
  /// nothing. Nothing waits for it.
  private func isPassed(_ index: Int) -> Bool {
    guard !requests[index].isOvertaken else { return false }
    let others = requests.filter { $0.state != .kept && !$0.isPlainOffer }.flatMap(\.changes)
    return requests[index].changes.contains { change in
      change.operation == .insert
        && others.filter { $0.row == change.row && $0.counter > change.counter && $0.operation != .update }
          .min { $0.counter < $1.counter }?.operation == .insert
    }
  }

  /// What is offered of a row comes before every request by effect: the older change stands upon it, when it is settled. So it is with a row
  /// that is made again.
  private func isBehindOffer(_ index: Int) -> Bool {
    let later = requests.filter {
      $0.state != .displaced && $0.state != .kept && $0.firstCounter > requests[index].firstCounter
    }
    return requests[index].changes.contains { change in
      later.contains { other in
        other.changes.contains { step in
          step.row == change.row && step.meets(change)
            && (other.isPlainOffer || (step.operation == .insert && change.operation != .insert))
        }
      }
    }
  }

  /// A younger change of its rows is under way: where the server accepts it, the older one is overtaken.
  private func isBehindSent(_ index: Int) -> Bool {
    requests.contains { ($0.state == .sent || $0.state == .unknownOutcome) && $0.overtakes(requests[index]) }
  }

  /// Older changes of its rows are in a request that was made since, under a later number (`join`): below it, it would come before them.
  private func isBehindJoined(_ index: Int) -> Bool {
    let standing = requests.filter { $0.state != .displaced && $0.state != .kept }
    return requests[index].changes.contains { change in
      standing.contains { other in
        other.history.contains { $0.counter < change.counter }
          && other.changes.contains { $0.row == change.row && $0.counter > change.counter && $0.meets(change) }
      }
    }
  }

  private struct Problems {
    var lost: Set<Int>
    var violations: Set<Violation>
    var outstanding: [Int]
  }

  private func checkBases(_ constraints: Constraints) throws {
    guard let violation = constraints.violations(in: bases).first else { return }
    throw SalvorError(
      .inconsistentDownload,
      "What the server sent breaks a constraint of the table \(violation.table): \(violation.summary). "
        + "Discard what is staged and sync again.", context: ["table": violation.table])
  }

  private func problems(_ constraints: Constraints, _ basesMayBreak: Bool) -> Problems {
    let outstanding = requests.indices.filter { requests[$0].state != .displaced && requests[$0].state != .kept }
    let shown = Self.shown(outstanding.map { requests[$0] }, over: bases, schema: schema)
    // A marked row is still there for those that reference it.
    let tables = markedRows(
      besides: shown.view, outstanding.map { requests[$0] }, constraints, basesMayBreak: basesMayBreak)
    return Problems(lost: shown.lost, violations: constraints.violations(in: tables), outstanding: outstanding)
  }

  /// The place of the youngest request in the way of the view; nil: everything stands.
  private func youngestInTheWay(_ problems: Problems) -> Int? {
    let lost = problems.lost.map { problems.outstanding[$0] }
    return (lost + problems.violations.compactMap { culprit($0, among: problems.outstanding) }).max {
      requests[$0].firstCounter < requests[$1].firstCounter
    }
  }

  private func culprit(_ violation: Violation, among outstanding: [Int]) -> Int? {
    func last(_ row: RowName, _ isMeant: (Change) -> Bool) -> Int? {
      outstanding.last { requests[$0].changes.contains { $0.row == row && isMeant($0) } }
    }
    switch violation {
    case .notNull(let row, let column):
      return last(row) { $0.operation == .insert || $0.column(column) != nil }
    case .check(let row, _): return last(row) { $0.operation != .delete }
    case .unique(let one, let other, let columns):
      func sets(_ change: Change) -> Bool {
        change.operation == .insert || (change.operation == .update && columns.contains { change.column($0) != nil })
      }
      return [last(one, sets), last(other, sets)].compactMap { $0 }.max()
    case .missingParent(let child, let reference):
      // The last request that set the reference, else the one that deleted the parent.
      if let setter = last(child, { $0.operation != .delete && $0.column(reference.column) != nil }) { return setter }
      guard let table = schema.table(child.table), let row = bases[child] else { return nil }
      let parent = RowName(table: reference.table, key: [table.value(reference.column, of: row)])
      return last(parent) { $0.operation == .delete }
    }
  }

  /// The view is what is shown, and the client-only rows follow the rows they reference.
  private mutating func showRows(_ constraints: Constraints, _ basesMayBreak: Bool) {
    let before = view
    var shown = Self.shown(outstanding, over: bases, schema: schema).view
    let isThere = shown
    for table in schema.tables where table.maintained == .client {
      for (key, row) in before.rows(of: table.name) { shown[RowName(table: table.name, key: key)] = row }
    }
    let waiting = aside
    aside = MemoryTables()
    for table in schema.tables where table.maintained == .client {
      for (key, row) in waiting.rows(of: table.name) {
        let name = RowName(table: table.name, key: key)
        // The application has made another row under its key: it waits on.
        if shown[name] == nil { shown[name] = row } else { aside[name] = row }
      }
    }
    for table in schema.tables where table.maintained != .client {
      for name in Set(shown.rows(of: table.name).keys).map({ RowName(table: table.name, key: $0) }) {
        keepFlags(of: name, table, in: &shown, before: before)
      }
    }
    let marked = markedRows(besides: isThere, outstanding, constraints, basesMayBreak: basesMayBreak)
    for name in marked.differences(from: isThere) { shown[name] = marked[name] }
    showFlags(in: &shown, outstanding: outstanding)
    while let (name, reference) = dangling(in: shown, constraints) {
      guard let table = schema.table(name.table), let place = table.columnIndex(reference.column) else { break }
      switch reference.onDelete {
      case .cascade: shown[name] = nil
      case .setNull: shown[name]?[place] = .null
      case .noAction, .restrict:
        aside[name] = shown[name]
        shown[name] = nil
      }
    }
    view = shown
    marks = marks.filter { name, mark in
      guard let table = schema.table(name.table) else { return false }
      if let row = view[name] { return table.isMarked(row) }
      return outstanding.contains { $0.changes.contains { $0.counter == mark.counter } }
    }
  }

  /// A client-only row whose parent is not there.
  private func dangling(in tables: MemoryTables, _ constraints: Constraints) -> (RowName, Reference)? {
    for violation in constraints.violations(in: tables) {
      if case .missingParent(let name, let reference) = violation, schema.table(name.table)?.maintained == .client {
        return (name, reference)
      }
    }
    return nil
  }

  /// Flag columns never travel: a row keeps its own. One that is there has no mark.
  private func keepFlags(of name: RowName, _ table: Table, in shown: inout MemoryTables, before: MemoryTables) {
    for flag in [table.flags.dirty, table.flags.deleted].compactMap({ $0 }) {
      guard let place = table.columnIndex(flag), let old = before[name] else { continue }
      shown[name]?[place] = old[place]
    }
    if let row = shown[name], table.isMarked(row) {
      shown[name] = table.flagged(row, table.flags.deleted, false)
    }
  }
}
