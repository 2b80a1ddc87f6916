import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The queue and the error archive, as people see them. In a transaction; requests are sorted.
final class RequestListing {
  let context: StoreContext
  private let index: LogIndex
  private let dependence: DependenceLookup
  private let upload: UploadStatus?
  private let isStalled: Bool
  /// By first counter: long chains name the same requests again and again.
  private var ids: [Int64: RequestID] = [:]

  convenience init(_ context: StoreContext) throws {
    try RequestSorting(context).sort()
    let index = try LogIndex(context)
    try self.init(context, index, DependenceLookup(context, index, withDisplaced: true))
  }

  /// - Parameter dependence: with displaced requests.
  init(_ context: StoreContext, _ index: LogIndex, _ dependence: DependenceLookup) throws {
    self.context = context
    self.index = index
    self.dependence = dependence
    let now = context.clock.now()
    upload = try context.connection.uploadStatus(now: now)
    isStalled = upload?.stall(now: now) != nil
  }

  // MARK: Asking

  /// Entries of one request stay together: `limit` is overstepped rather than a request cut.
  func list(_ states: Set<RequestState>, after: RequestID?, limit: Int) throws -> [QueuedRequest] {
    let counter = try context.range(of: after?.counter ?? 0).last
    let inLog = try inLog(states, after: counter, limit: limit)
    let names = states.map { "'\($0.rawValue)'" }.sorted().joined(separator: ", ")
    let archived = try context.archived(where: "first > ?1 AND state IN (\(names))", [.integer(counter)])
    var requests: [(first: Int64, entries: () throws -> [QueuedRequest])] = []
    for request in inLog { requests.append((request.range.first, { try self.entries(of: request) })) }
    for (first, changes) in Dictionary(grouping: archived, by: { $0.range.first }) {
      requests.append((first, { try self.entries(of: changes) }))
    }
    requests.sort { $0.first < $1.first }
    var found: [QueuedRequest] = []
    for request in requests where found.count < limit { found += try request.entries() }
    return found
  }

  /// Every change of one request; empty where there is none.
  func entries(of id: RequestID) throws -> [QueuedRequest] {
    try context.find(id).map { try entries(of: $0.range, isArchived: $0.isArchived) } ?? []
  }

  func entries(of range: RequestRange, isArchived: Bool) throws -> [QueuedRequest] {
    if isArchived { return try entries(of: try context.archived(where: "first = ?1", [.integer(range.first)])) }
    return try context.outstanding(range, index: index).map { try entries(of: $0) } ?? []
  }

  private func inLog(_ states: Set<RequestState>, after counter: Int64, limit: Int) throws -> [OutstandingRequest] {
    let waiting: Set<RequestState> = [.queued, .sent, .unknownOutcome]
    if !states.isDisjoint(with: waiting) {
      return try context.outstanding(after: counter, limit: limit, index: index) { states.contains($0) }
    }
    var found: [OutstandingRequest] = []
    for range in try context.failedRequests() where range.first > counter && found.count < limit {
      if let request = try context.outstanding(range, index: index), states.contains(request.state) {
        found.append(request)
      }
    }
    return found
  }

  // MARK: Saying

  private func entries(of request: OutstandingRequest) throws -> [QueuedRequest] {
    let row = try context.row(of: request.range)
    var common = try common(row, request.state, context.requestID(first: request.range.first))
    if request.state == .queued, try context.isHeldByServer(request.range) { common.waitsFor = .server }
    return try request.changes.map { change in
      let (before, after) = change.step.named(change.table)
      var entry = common
      entry.table = change.table.name
      entry.key = change.key
      entry.operation = change.step.change.operation
      entry.before = before
      entry.after = after
      if row.isInError { entry.serverRow = try serverRow(change.table, change.key) }
      return entry
    }
  }

  private func entries(of changes: [StoreContext.ArchivedChange]) throws -> [QueuedRequest] {
    guard let first = changes.first else { return [] }
    let common = try common(first.request, first.request.state ?? .kept, first.id)
    return try changes.map { change in
      let names = change.slots.map { change.table.columns[$0].name }
      var entry = common
      entry.table = change.table.name
      entry.key = change.key
      entry.operation = change.step.change.operation
      entry.before = zip(names, change.before).map { NamedValue($0, $1) }
      entry.after = zip(names, change.after).map { NamedValue($0, $1) }
      entry.serverRow = try serverRow(change.table, change.key)
      return entry
    }
  }

  /// What all changes of a request have in common.
  private func common(_ row: RequestRow, _ state: RequestState, _ id: RequestID) throws -> QueuedRequest {
    let range = row.range
    var entry = QueuedRequest(
      id: id, table: "", key: [], operation: .update, before: [], after: [],
      state: state, tag: range.tag)
    // Nothing depends on what a recovery put aside.
    if state != .kept {
      entry.dependents = try others(dependence.dependents(of: [range]), range)
      entry.needs = try others(dependence.needs(of: [range]), range)
    }
    entry.waitsFor = QueuedRequest.WaitsFor(state, isStalled: isStalled)
    entry.reason = row.reason
    entry.status = row.status
    entry.message = row.message
    entry.blockedBy = row.blockedBy
    entry.attempts = row.attempts
    entry.since = try context.since(row)
    entry.lastAttempt = row.lastAttempt
    entry.history = row.history
    if state == .sent || state == .unknownOutcome, let upload {
      entry.attempts += upload.failures
      entry.lastAttempt = upload.lastFailure?.time ?? entry.lastAttempt
      entry.nextAttempt = upload.lastFailure?.nextAttempt
    }
    return entry
  }

  private func others(_ requests: [RequestRange], _ own: RequestRange) throws -> [RequestID] {
    try requests.filter { $0.first != own.first }.map { request in
      if let known = ids[request.first] { return known }
      let id = try context.requestID(first: request.first)
      ids[request.first] = id
      return id
    }
  }

  /// The base; nil where the table is not there any more as it was.
  private func serverRow(_ table: CapturedTable, _ key: Key) throws -> [NamedValue]? {
    guard let captured = context.catalog.table(number: table.number), let definition = context.table(captured) else {
      return nil
    }
    guard let base = try index.timeline(captured, key).base else { return [] }
    return definition.travelling.compactMap { column in
      captured.columns.firstIndex { $0.name.folded == column.name.folded }
        .map { NamedValue(column.name, base[$0]) }
    }
  }
}
