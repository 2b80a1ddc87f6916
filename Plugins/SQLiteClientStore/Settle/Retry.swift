import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Failed requests wait again, for a person (semantics 8, *Fix and retry*). In a transaction, with foreign keys and triggers
/// off.
struct Retry {
  let context: StoreContext
  private let index: LogIndex

  init(_ context: StoreContext) throws {
    self.context = context
    try RequestSorting(context).sort()
    index = try LogIndex(context)
  }

  /// - Parameter ids: nil: every failed and displaced request.
  func run(_ ids: Set<RequestID>?) throws -> RetryReport {
    let (failed, displaced) = try wanted(ids)
    var move = Move()
    move.joins = .these(failed)
    move.asked = displaced.map(\.range)
    var outcomes: [RequestID: RetriedRequest.Outcome] = [:]
    func note(_ joined: [RequestID: RequestID?], _ names: [RequestID: RequestID] = [:]) {
      for (id, made) in joined { outcomes[names[id] ?? id] = made.map { .queued($0) } ?? .nothingLeft }
    }
    note(try context.settle(move).joined)
    // What came back in error is sent again, too.
    var again = Move()
    var returned: [RequestRange] = []
    var names: [RequestID: RequestID] = [:]
    for (id, range) in displaced {
      let row = try context.row(of: range)
      outcomes[id] = row.state == .displaced ? .displaced : .stands
      guard row.isInError else { continue }
      returned.append(range)
      names[try context.requestID(first: range.first)] = id
    }
    again.joins = .these(returned)
    if !returned.isEmpty { note(try context.settle(again).joined, names) }
    var report = RetryReport()
    report.requests = outcomes.sorted { $0.key.counter < $1.key.counter }
      .map { RetriedRequest(id: $0.key, outcome: $0.value) }
    return report
  }

  /// The failed and displaced requests that are meant, and the failed ones that they depend on, in order.
  private func wanted(_ ids: Set<RequestID>?) throws -> (
    failed: [RequestRange], displaced: [(id: RequestID, range: RequestRange)]
  ) {
    guard let ids else {
      return (
        try context.failedRequests(),
        try context.displacedRequests().map { (try context.requestID(first: $0.first), $0) }
      )
    }
    let dependence = try DependenceLookup(context, index, withDisplaced: true)
    var failed: [Int64: RequestRange] = [:]
    var displaced: [(id: RequestID, range: RequestRange)] = []
    for id in ids.sorted(by: { $0.counter < $1.counter }) {
      let found = try context.known(id, in: [.refused, .blocked, .displaced])
      if found.isArchived { displaced.append((id, found.range)) } else { failed[found.range.first] = found.range }
      for need in try dependence.needs(of: [found.range]) {
        let state = try context.state(of: need)
        if state == .refused || state == .blocked { failed[need.first] = need }
      }
    }
    return (failed.values.sorted { $0.first < $1.first }, displaced)
  }
}
