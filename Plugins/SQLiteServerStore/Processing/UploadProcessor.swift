import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Processes one upload inside the caller's immediate transaction (semantics 7).
///
/// Requests go in the client's order. One that nothing speaks against is one prepared statement, its values bound where
/// they stand in the payload; every other is looked at closely (`CarefulChanges`). One that only lacks something which a
/// later one may bring (a parent, a unique value) waits, with those that depend on it, and is tried again at the end.
final class UploadProcessor {
  let connection: SQLiteConnection
  let catalog: Catalog
  let upload: ProcessRequest
  let limits: Limits
  let now: Int64
  let careful: CarefulChanges
  private let log: CommitLog
  private let book: RemoteBook
  private let stepReader: StepReader

  private var plans: [UploadShape: ShapePlan] = [:]
  var foreign: ForeignChanges
  private var group: StagedRequest?
  private var nextOrdinal = 0
  private var lastCounter: Int64 = 0

  private var waiting: [(request: StagedRequest, steps: [Step])] = []
  private var waitingPrints = Footprints()
  private var refusedPrints = Footprints()
  private var refusedIDs: [Int: RequestID] = [:]
  private var hasRefused: Bool { !refusedIDs.isEmpty }

  private var accepted: Int64 = 0
  private var conflicts: Int64 = 0
  private var refusals: [Refusal] = []
  private var settled: SettledRequests
  private var echo: EchoAccount

  init(
    _ upload: ProcessRequest, _ connection: SQLiteConnection, _ catalog: Catalog, log: CommitLog, book: RemoteBook,
    limits: Limits, now: Int64
  ) throws {
    self.upload = upload
    self.connection = connection
    self.catalog = catalog
    self.log = log
    self.book = book
    self.limits = limits
    self.now = now
    let reader = RowReader(connection: connection, catalog: catalog)
    stepReader = StepReader(rows: reader, catalog: catalog)
    careful = CarefulChanges(connection, catalog, reader, upload, now: now)
    let last = try CommitLog.state(connection).lastSequence
    foreign = try ForeignChanges(connection, catalog, besides: upload.remote, last: last)
    settled = SettledRequests(connection, upload.remote, now: now)
    echo = EchoAccount(connection, catalog, last: last)
  }

  // MARK: Reading

  /// Call it for each chunk in order, then `finish`.
  func read(_ chunk: UnsafeBufferPointer<UInt8>) throws {
    var reader = UploadChunkReader(chunk)
    var row = RowItems(chunk)
    defer { row.release() }
    var shapes: [ShapePlan] = []
    var range: (first: Int64, last: Int64)?
    while let event = try reader.next() {
      switch event {
      case .shape(let place): shapes.append(try plan(reader.shapes[place]))
      case .request(let first, let last, _): range = (first, last)
      // A clean parent never overwrites (semantics 7), and one that is missing is found by its foreign key: context is
      // for a recovery, which makes a parent from it that this server has lost.
      case .context: break
      case .change(let place, let stamp, let counter, let made):
        guard counter > lastCounter else { throw reader.malformed("the counters must grow") }
        lastCounter = counter
        let plan = shapes[place]
        try row.read(&reader)
        if plan.place != nil {
          guard row.items.count == plan.itemCount, plan.keyItems.count == catalog.tables[plan.place ?? 0].keyCount else {
            throw reader.malformed("a row does not have its shape")
          }
        }
        if let last = group?.last, counter > last { try endGroup() }
        if group == nil, let range, range.first == counter, range.last > counter {
          group = StagedRequest(
            ordinal: drawOrdinal(), stamp: stamp, first: counter, last: range.last, changes: [], refusal: nil)
        }
        if group != nil {
          add(plan, row, made)
          if counter == group?.last { try endGroup() }
        } else {
          try single(plan, row, stamp, counter, made)
        }
      }
    }
  }

  private func plan(_ shape: UploadShape) throws -> ShapePlan {
    if let plan = plans[shape] { return plan }
    let plan = try ShapePlan(shape, connection, catalog, upload.principal)
    plans[shape] = plan
    return plan
  }

  private func drawOrdinal() -> Int {
    defer { nextOrdinal += 1 }
    return nextOrdinal
  }

  private func add(_ plan: ShapePlan, _ row: RowItems, _ made: Int64) {
    let hash = plan.hash(row.items)
    group?.changes.append(plan.change(row.items, made: made, hash: hash))
    if group?.refusal == nil { group?.refusal = plan.refusal(row, catalog, limits) }
  }

  private func endGroup() throws {
    guard let request = group else { return }
    group = nil
    try decideFirst(request)
  }

  /// A request of one change: most of any upload.
  private func single(
    _ plan: ShapePlan, _ row: RowItems, _ stamp: RequestStamp, _ counter: Int64, _ made: Int64
  ) throws {
    let refusal = plan.refusal(row, catalog, limits)
    let hash = plan.hash(row.items)
    if refusal == nil, !hasRefused, waiting.isEmpty, try !settled.mayHold(stamp), let statement = plan.statement,
      try !foreign.isNewer(hash, than: made)
    {
      for (index, item) in plan.parameters.enumerated() { try statement.bind(index + 1, row.items[item]) }
      let before = connection.totalChanges
      if try run(statement) {
        try echo.account(from: before, row: hash)
        nextOrdinal += 1
        accepted += 1
        settled.accept(stamp, counter, counter)
        return
      }
    }
    let request = StagedRequest(
      ordinal: drawOrdinal(), stamp: stamp, first: counter, last: counter,
      changes: [plan.change(row.items, made: made, hash: hash)], refusal: refusal)
    try decideFirst(request)
  }

  /// True: it changed its row. False: it did nothing.
  private func run(_ statement: SQLiteStatement) throws -> Bool {
    do {
      try statement.run()
      return connection.changes == 1
    } catch let error as SalvorError where error.isConstraintViolation {
      return false
    }
  }

  // MARK: Deciding

  private func decideFirst(_ request: StagedRequest) throws {
    if let before = try settled.outcome(of: request) {
      // Settled under an earlier upload, whatever its remote ID: never applied twice (semantics 5).
      switch before {
      case .accepted: accepted += 1
      case .refused(let refusal):
        refusals.append(refusal)
        try remember(request, try stepReader.steps(of: request))
      }
      return
    }
    try decide(request, isLast: false)
  }

  private func decide(_ request: StagedRequest, isLast: Bool) throws {
    if let refusal = request.refusal { return try refuse(request, refusal) }
    var steps: [Step]?
    if hasRefused || (!isLast && !waiting.isEmpty) {
      let found = try stepReader.steps(of: request)
      steps = found
      if let ordinal = refusedPrints.first(neededBy: found) {
        let text = RefusalText(.blocked, "It depends on a request that was refused. Settle that one first.")
        return try refuse(request, text, blockedBy: refusedIDs[ordinal])
      }
      if !isLast, waitingPrints.first(neededBy: found) != nil { return wait(request, found) }
    }
    switch try attempt(request) {
    case .accepted: accept(request)
    case .kept:
      conflicts += 1
      accept(request)
    case .refused(let text): try refuse(request, text)
    case .lacks(let text):
      if isLast {
        try refuse(request, text)
      } else {
        wait(request, try steps ?? stepReader.steps(of: request))
      }
    }
  }

  private func attempt(_ request: StagedRequest) throws -> CarefulChanges.Outcome {
    let before = connection.totalChanges
    let outcome = try careful.attempt(request, &foreign)
    switch outcome {
    case .accepted: try echo.account(from: before, request)
    case .kept: echo.feed(request)
    default: break
    }
    for row in careful.takeRowsToFeed() { echo.feed(row.table, row.key, row.hash) }
    return outcome
  }

  private func accept(_ request: StagedRequest) {
    accepted += 1
    settled.accept(request.stamp, request.first, request.last)
  }

  private func wait(_ request: StagedRequest, _ steps: [Step]) {
    waiting.append((request, steps))
    waitingPrints.add(steps, by: request.ordinal)
  }

  private func refuse(_ request: StagedRequest, _ text: RefusalText, blockedBy: RequestID? = nil) throws {
    let refusal = Refusal(
      counter: request.first, stamp: request.stamp, reason: text.reason, message: text.message, blockedBy: blockedBy)
    refusals.append(refusal)
    settled.refuse(request, refusal)
    try remember(request, try stepReader.steps(of: request))
  }

  private func remember(_ request: StagedRequest, _ steps: [Step]) throws {
    refusedPrints.add(steps, by: request.ordinal)
    refusedIDs[request.ordinal] = request.id
  }

  // MARK: The end

  /// Tries what waits until nothing moves any more; then refuses it, or what it depends on.
  private func settleWaiting() throws {
    var isLast = false
    while !waiting.isEmpty {
      let tried = makersFirst(waiting)
      waiting = []
      waitingPrints = Footprints()
      for request in tried { try decide(request, isLast: isLast) }
      isLast = waiting.count == tried.count
    }
  }

  /// The client's order, except that a request goes after the one that makes a row it references.
  private func makersFirst(_ entries: [(request: StagedRequest, steps: [Step])]) -> [StagedRequest] {
    var makers: [UInt64: Int] = [:]
    for (index, entry) in entries.enumerated() {
      for step in entry.steps where step.makesOrRelinks && makers[step.row] == nil { makers[step.row] = index }
    }
    var order: [StagedRequest] = []
    var visited = [Bool](repeating: false, count: entries.count)
    for start in entries.indices where !visited[start] {
      // A stack of its own: a chain of references may be as long as the upload.
      var stack: [(index: Int, needs: [Int])] = []
      func open(_ index: Int) {
        visited[index] = true
        stack.append((index, entries[index].steps.flatMap { $0.targetsAfter.compactMap { makers[$0] } }.sorted(by: >)))
      }
      open(start)
      while let last = stack.indices.last {
        if let need = stack[last].needs.popLast() {
          if !visited[need] { open(need) }
        } else {
          order.append(entries[stack.removeLast().index].request)
        }
      }
    }
    return order
  }

  func finish() throws -> UploadResults {
    try endGroup()
    try settleWaiting()
    let before = try CommitLog.state(connection)
    let commit = try log.seal(remote: upload.remote)
    for row in try echo.rowsToFeed() { try log.touch(catalog.tables[row.table], row.key) }
    try log.expandOwn(after: before.headSequence, to: before.lastSequence)
    _ = try log.seal(remote: nil)
    let results = UploadResults(
      commit: commit, acceptedRequests: accepted, conflicts: conflicts, refused: refusals.sorted { $0.counter < $1.counter })
    try settled.write()
    try book.record(upload.remote, upload.sequence, results, now: now)
    return results
  }
}
