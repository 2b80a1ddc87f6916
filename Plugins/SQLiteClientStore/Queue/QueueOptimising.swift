import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Several requests on one row become one before they are sent, where a person has asked for it. In a transaction, with
/// nothing under way.
struct QueueOptimising {
  let context: StoreContext
  private let joining: RetryJoining
  private var index: LogIndex { joining.index }

  init(_ context: StoreContext, _ joining: RetryJoining) {
    self.context = context
    self.joining = joining
  }

  /// How many requests there are less.
  func run() throws -> Int {
    var count = 0
    for (table, key) in try index.repeatedRows() {
      let requests = try index.entries(table, key).map { try context.range(of: $0.seq) }
      guard requests.count > 1, try requests.allSatisfy({ try isPlain($0) }),
        try requests.allSatisfy({ try isMadeNow($0, table) })
      else { continue }
      // What depends on one of them could be sent before the new one.
      guard try joining.waitingDependents(of: requests).isEmpty else { continue }
      count += requests.count - (try joining.join(members: requests) == nil ? 0 : 1)
    }
    return count
  }

  /// The new request is made on the row as it is now. One that was made on an older one stays itself: the server has to find
  /// that it is in conflict.
  private func isMadeNow(_ request: RequestRange, _ table: CapturedTable) throws -> Bool {
    guard let group = context.schema.table(table.name)?.group else { return false }
    return try context.made(request.first, group: group) == context.made(.max, group: group)
  }

  private func isPlain(_ request: RequestRange) throws -> Bool {
    try request.first == request.last && request.tag == nil && context.state(of: request) == .queued
      && !context.isMarked(request.first)
  }
}
