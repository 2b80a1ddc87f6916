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
      for (place, request) in waiting.enumerated() {
        // What depends on a displaced request returns only after it.
        guard try !dependence.directNeeds(of: request).contains(where: { firsts.contains($0.first) }),
          try returns(request, index, touched, proof)
        else { continue }
        try dependence.returned(request)
        waiting.remove(at: place)
        firsts.remove(request.first)
        returned = true
        break
      }
    }
    try touched.clear()
  }

  private struct CannotStand: Error {}

  private func returns(
    _ request: RequestRange, _ index: LogIndex, _ touched: TouchedRows, _ proof: ReferenceProof
  ) throws -> Bool {
    let changes = try context.archived(where: "first = ?1", [.integer(request.first)])
    guard let first = changes.first else { return false }
    try touched.clear()
    do {
      try connection.savepoint("salvor_return") {
        let remaking = try Remaking(context, index: index, touched: touched)
        for change in changes {
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
        try moveState(first)
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
