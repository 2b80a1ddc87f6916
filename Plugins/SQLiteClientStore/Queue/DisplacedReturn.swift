import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Displaced requests that can stand again return to the log and their rows, the oldest first (semantics 2). In a
/// transaction, with foreign keys and triggers off.
struct DisplacedReturn {
  let context: StoreContext
  private let index: LogIndex?

  /// - Parameter index: nil: one of its own, where it is needed.
  init(_ context: StoreContext, _ index: LogIndex? = nil) {
    self.context = context
    self.index = index
  }

  private var connection: SQLiteConnection { context.connection }

  func run() throws {
    guard try connection.integer("SELECT 1 FROM salvor_archive WHERE state = 'displaced' LIMIT 1") != nil else {
      return
    }
    let index = try index ?? LogIndex(context)
    let touched = try TouchedRows(context)
    let proof = try ReferenceProof(context, touched)
    let dependence = try DependenceLookup(context, index, withDisplaced: true)
    var waiting = dependence.displacedRequests
    var firsts = Set(waiting.map(\.first))
    var returned = true
    // One that returns may make room for another.
    while returned {
      returned = false
      for request in waiting {
        let needs = try dependence.directNeeds(of: request).filter { firsts.contains($0.first) }
        guard let circle = try circle(of: request, needs, dependence, firsts) else { continue }
        var returning: [RequestRange]? = circle
        if try !returns(circle, index, touched, proof) {
          returning = try together(circle, dependence, firsts)
          if let more = returning, try !returns(more, index, touched, proof) { returning = nil }
        }
        guard let returning else { continue }
        for request in returning {
          try dependence.returned(request)
          firsts.remove(request.first)
        }
        waiting.removeAll { !firsts.contains($0.first) }
        returned = true
        break
      }
    }
    try touched.clear()
  }

  /// What returns with a request at once: itself, or those that depend on it and it on them. Nil: it depends on a displaced
  /// one that returns before it. A circle is found at its oldest request, which depends on a later one.
  private func circle(
    of request: RequestRange, _ needs: [RequestRange], _ dependence: DependenceLookup, _ displaced: Set<Int64>
  ) throws -> [RequestRange]? {
    if needs.isEmpty { return [request] }
    guard needs.contains(where: { $0.first > request.first }) else { return nil }
    let circle = try dependence.needs(of: [request]).filter { displaced.contains($0.first) }
    for other in circle where other.first != request.first {
      if try dependence.needs(of: [other]).holding(request.first) == nil { return nil }
    }
    return circle
  }

  /// Requests that cannot stand, with all that depends on them and on no other displaced one: what a request made may be
  /// right only after the next one. Nil: there are none.
  private func together(
    _ circle: [RequestRange], _ dependence: DependenceLookup, _ displaced: Set<Int64>
  ) throws -> [RequestRange]? {
    var found = try dependence.dependents(of: circle).filter { displaced.contains($0.first) }
    let needs = try found.map { request in
      try dependence.directNeeds(of: request).map(\.first).filter { displaced.contains($0) }
    }
    let direct = Dictionary(zip(found.map(\.first), needs)) { first, _ in first }
    while true {
      let firsts = Set(found.map(\.first))
      let closed = found.filter { Set(direct[$0.first] ?? []).isSubset(of: firsts) }
      if closed.count == found.count { break }
      found = closed
    }
    return found.count > circle.count ? found : nil
  }

  private struct CannotStand: Error {}

  /// - Parameter requests: in order.
  private func returns(
    _ requests: [RequestRange], _ index: LogIndex, _ touched: TouchedRows, _ proof: ReferenceProof
  ) throws -> Bool {
    let changes = try requests.map { try context.archived(where: "first = ?1", [.integer($0.first)]) }
    try touched.clear()
    do {
      try connection.savepoint("salvor_return") {
        let remaking = try Remaking(context, index: index, touched: touched)
        for change in changes.joined() {
          guard try remaking.putBack(change.step, change.table, change.key) else { throw CannotStand() }
          try index.add(change.table, change.key, seq: change.step.seq)
        }
        guard try remaking.writeStrictly() else { throw CannotStand() }
        try remaking.removeDanglingMarked(proof)
        guard try proof.violations().isEmpty else { throw CannotStand() }
        try proof.settleClientRows()
        try proof.returnAside()
        try remaking.encode()
        try context.noteLogChange()
        for change in changes.compactMap(\.first) { try moveState(change) }
      }
      return true
    } catch is CannotStand {
      return false
    }
  }

  /// The request is in the log again, as what it was before.
  private func moveState(_ change: StoreContext.ArchivedChange) throws {
    let first = Value.integer(change.range.first)
    let last = Value.integer(change.range.last)
    try connection.run("DELETE FROM salvor_archive WHERE first = ?1", first)
    if change.stateBefore == .sent { return }
    if let state = change.stateBefore {
      try connection.run(
        "INSERT INTO salvor_request_state (first, last, state, reason, status, message, blocked_by, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        first, last, .text(state.rawValue), change.reason.map { .text($0) } ?? .null,
        change.status.map { .integer(Int64($0)) } ?? .null, change.message.map { .text($0) } ?? .null,
        change.blockedBy.map { .text($0) } ?? .null, .integer(context.clock.now()))
    }
    // It returns to the queue, not to an upload that was chosen without it.
    if let uploadLast = try connection.state(.uploadLast)?.integer, change.range.first <= uploadLast {
      try connection.run("INSERT OR REPLACE INTO salvor_upload_excluded (first, last) VALUES (?1, ?2)", first, last)
    }
  }
}
