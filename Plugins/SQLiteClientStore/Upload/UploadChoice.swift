import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Chooses what an upload holds: the waiting requests of some groups, and those they depend on.
struct UploadChoice {
  let context: StoreContext
  /// `UploadRoom.lastCounter`.
  var lastCounter: Int64?

  /// In a transaction. Writes what is left out; answers the upload's last counter, nil where nothing waits.
  ///
  /// - Parameter budget: nil: its blobs may have any number of bytes.
  func choose(_ groups: Set<String>?, _ budget: BlobBudget?) throws -> Int64? {
    let last = try chooseRequests(groups, budget)
    // What the server kept beside rows and lost goes with it.
    return try [last, context.lastLostVersion()].compactMap { $0 }.max()
  }

  private func chooseRequests(_ groups: Set<String>?, _ budget: BlobBudget?) throws -> Int64? {
    try context.forgetLeftOut()
    let unsendable = try Unsendable(context: context).requests()
    let names = Set(context.catalog.tables.map { context.group(of: $0.number) })
    let isWhole = groups.map { names.isSubset(of: $0) } ?? true
    if isWhole, budget == nil, lastCounter == nil {
      let last = try lastWaiting(besides: unsendable)
      if try last != nil || context.lastLostVersion() != nil { try context.leaveOut(unsendable) }
      return last
    }
    let inError = Set(try (context.failedRequests() + unsendable).map(\.first))
    let index = try LogIndex(context)
    let dependence = try DependenceLookup(context, index, where: { !inError.contains($0.first) })
    var wanted: [RequestRange] = []
    try eachWaiting(inError) { request, table in
      guard wanted.last?.first != request.first else { return }
      if isWhole || groups?.contains(context.group(of: table)) == true { wanted.append(request) }
    }
    if let lastCounter {
      let fits = wanted.filter { $0.last <= lastCounter }
      wanted = fits.isEmpty ? Array(wanted.prefix(1)) : fits
    }
    let chosen = try budget?.fitting(wanted, dependence, index) ?? dependence.needs(of: wanted)
    let lastVersion = try context.lastLostVersion() ?? 0
    guard let last = [chosen.last?.last ?? 0, lastVersion].max(), last > 0 else { return nil }
    var leftOut: [RequestRange] = []
    try eachWaiting(inError) { request, _ in
      guard request.first <= last, leftOut.last?.first != request.first, chosen.holding(request.first) == nil else {
        return
      }
      leftOut.append(request)
    }
    try context.leaveOut(leftOut)
    try context.leaveOut(unsendable.filter { $0.first <= last })
    return last
  }

  /// After a SyncConfig: what the upload under way cannot say to this server waits for a later one. Where nothing is left of
  /// it, it is taken back: the server has said that it was not processed.
  func leaveOutUnsendable() throws {
    let connection = context.connection
    guard try connection.state(.current) != nil, let last = try connection.state(.uploadLast)?.integer else { return }
    try context.leaveOut(try Unsendable(context: context).requests().filter { $0.first <= last })
    if let left = try [lastWaiting(upTo: last), context.lastLostVersion()].compactMap({ $0 }).max() {
      try connection.setState(.uploadLast, .integer(left))
      return
    }
    var move = Move()
    move.upload = .takenBack
    try context.settle(move)
  }

  /// Calls `body` with each change of a waiting request, and the number of its table.
  private func eachWaiting(_ inError: Set<Int64>, _ body: (RequestRange, Int64) throws -> Void) throws {
    var ranges = try RangeCursor(context, after: 0)
    try context.connection.query(
      "SELECT seq, t FROM salvor_log WHERE op IN \(StoreContext.changeOperations) ORDER BY seq"
    ) { row in
      let seq = row.int64(0)
      let request = try ranges.range(of: seq) ?? RequestRange(first: seq, last: seq)
      if !inError.contains(request.first) { try body(request, row.int64(1)) }
      return true
    }
  }

  /// - Parameter besides: what is not left out yet, and will be.
  private func lastWaiting(upTo end: Int64 = .max, besides others: [RequestRange] = []) throws -> Int64? {
    var leftOut = try context.leftOut()[...]
    if !others.isEmpty { leftOut = (leftOut + others).sorted { $0.first < $1.first }[...] }
    var last: Int64?
    // From the newest back: the first change that is not in error ends the upload.
    try context.connection.query(
      "SELECT seq FROM salvor_log WHERE seq <= ?1 AND op IN \(StoreContext.changeOperations) ORDER BY seq DESC",
      [.integer(end)]
    ) { row in
      let seq = row.int64(0)
      while let range = leftOut.last, range.first > seq { leftOut.removeLast() }
      if let range = leftOut.last, seq <= range.last { return true }
      last = seq
      return false
    }
    return last
  }
}
