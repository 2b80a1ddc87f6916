import SalvorModel
import SalvorStorage

/// The queue and the error archive as people see them.
struct RequestListing {
  private let content: ClientContent
  /// All but what a recovery put aside: nothing depends on that.
  private let standing: [Request]
  private let dependence: Dependence
  private let isStalled: Bool

  init(_ content: ClientContent, now: Int64) {
    self.content = content
    standing = content.requests.filter { $0.state != .kept }
    dependence = Dependence(standing, on: content.bases, schema: content.schema)
    isStalled = content.upload?.stall(now: now) != nil
  }

  /// One entry for each change.
  func entries(of request: Request) -> [QueuedRequest] { request.changes.map { entry($0, request) } }

  /// In order, without the request itself.
  func dependents(of request: RequestID) -> [RequestID] { others(request) { dependence.dependents(of: $0) } }

  func needs(of request: RequestID) -> [RequestID] { others(request) { dependence.needs(of: $0) } }

  private func others(_ request: RequestID, _ closure: (Set<Int>) -> Set<Int>) -> [RequestID] {
    guard let place = standing.firstIndex(where: { $0.id == request }) else { return [] }
    return closure([place]).subtracting([place]).sorted().map { standing[$0].id }
  }

  private func entry(_ change: Change, _ request: Request) -> QueuedRequest {
    var entry = QueuedRequest(
      id: request.id, table: change.row.table, key: change.row.key, operation: change.operation,
      before: change.operation == .insert ? [] : change.columns.map { NamedValue($0.name, $0.old) },
      after: change.operation == .delete ? [] : change.columns.map { NamedValue($0.name, $0.new) },
      state: request.state, reason: request.refusal?.reason, status: request.refusal?.status,
      message: request.refusal?.message, dependents: dependents(of: request.id), tag: request.tag)
    entry.needs = needs(of: request.id)
    entry.blockedBy = request.refusal?.blockedBy
    entry.waitsFor = QueuedRequest.WaitsFor(request.state, isStalled: isStalled)
    if request.state == .queued, request.isWaiting { entry.waitsFor = .server }
    entry.attempts = request.attempts
    entry.since = request.since
    entry.lastAttempt = request.lastAttempt
    entry.history = request.history
    switch request.state {
    case .queued: break
    case .sent, .unknownOutcome:
      entry.attempts += content.upload?.failures ?? 0
      entry.lastAttempt = content.upload?.lastFailure?.time ?? entry.lastAttempt
      entry.nextAttempt = content.upload?.lastFailure?.nextAttempt
    case .refused, .blocked, .displaced, .kept: entry.serverRow = serverRow(change.row)
    }
    return entry
  }

  private func serverRow(_ name: RowName) -> [NamedValue]? {
    guard let table = content.schema.table(name.table), table.maintained != .client else { return nil }
    guard let base = content.bases[name] else { return [] }
    return table.travelling.map { NamedValue($0.name, table.value($0.name, of: base)) }
  }
}
