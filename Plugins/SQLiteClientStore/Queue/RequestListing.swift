import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The queue and the error archive, as people see them.
struct RequestListing {
  let context: StoreContext

  /// Entries of one request stay together: `limit` is overstepped rather than a request cut.
  func list(_ states: Set<RequestState>, after: RequestID?, limit: Int) throws -> [QueuedRequest] {
    try RequestSorting(context).sort()
    let index = try LogIndex(context)
    let dependence = try DependenceLookup(context, index, withDisplaced: true)
    var entries: [(first: Int64, entries: [QueuedRequest])] = []
    let counter = after?.counter ?? 0
    let start = try context.range(of: counter).last
    for request in try context.outstanding(
      after: start, limit: limit, index: index, where: { states.contains($0) })
    {
      let id = try context.requestID(first: request.range.first)
      let refusal = try refusal(request.range.first)
      let dependents = try dependents(of: request.range, dependence)
      entries.append(
        (
          request.range.first,
          request.changes.map { change in
            let (before, after) = change.step.named(change.table)
            return QueuedRequest(
              id: id, table: change.table.name, key: change.key, operation: change.step.change.operation,
              before: before,
              after: after, state: request.state, reason: refusal?.reason, status: refusal?.status,
              message: refusal?.message, dependents: dependents, tag: request.range.tag)
          }
        ))
    }
    for change in try context.archived(where: "first > ?1", [.integer(counter)]) where states.contains(change.state) {
      let id = RequestID(stamp: change.stamp, counter: change.range.first)
      let names = change.slots.map { change.table.columns[$0].name }
      let entry = QueuedRequest(
        id: id, table: change.table.name, key: change.key, operation: change.step.change.operation,
        before: zip(names, change.before).map { NamedValue($0, $1) },
        after: zip(names, change.after).map { NamedValue($0, $1) },
        state: change.state, reason: change.reason, status: change.status, message: change.message,
        dependents: change.state == .displaced ? try dependents(of: change.range, dependence) : [],
        tag: change.range.tag)
      if let place = entries.firstIndex(where: { $0.first == change.range.first }) {
        entries[place].entries.append(entry)
      } else {
        entries.append((change.range.first, [entry]))
      }
    }
    var found: [QueuedRequest] = []
    for request in entries.sorted(by: { $0.first < $1.first }) where found.count < limit { found += request.entries }
    return found
  }

  private func refusal(_ first: Int64) throws -> (reason: String?, status: Int?, message: String?)? {
    try context.connection.rows(
      "SELECT reason, status, message FROM salvor_request_state WHERE first = ?1", .integer(first)
    ).first.map { ($0[0].string, $0[1].integer.map { Int($0) }, $0[2].string) }
  }

  /// Nothing depends on what a recovery put aside.
  private func dependents(of request: RequestRange, _ dependence: DependenceLookup) throws -> [RequestID] {
    try dependence.dependents(of: [request]).filter { $0.first != request.first }
      .map { try context.requestID(first: $0.first) }
  }
}
