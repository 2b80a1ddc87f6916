import SalvorModel
import SalvorStorage
import SalvorWire

/// Processes one upload inside the caller's immediate transaction (semantics 7).
///
/// One decision, `SetEvaluation.decide`, says what becomes of a change by what the tables have under its key:
///
/// | the tables have | insert | update | delete |
/// | --- | --- | --- | --- |
/// | no row | written | `row-deleted` | accepted; `row-deleted` of one that the sender could not see |
/// | a row that the sender cannot see | `out-of-scope` | `out-of-scope` if it left his scope since; else as no row | as the update |
/// | the row as the change would make it | accepted | accepted | – |
/// | a row that nobody else has changed since | – | written | written |
/// | a newer row, in no column of the change another value that somebody set | merged | written | – |
/// | a newer row otherwise | the policy; `key-exists` where a key is drawn | the policy | the policy |
///
/// A policy writes (client, merged), refuses (`conflict`) or keeps the whole request beside the rows. A row that is written
/// must be in the sender's scope (`out-of-scope`, `missing-parent`; `handover` aside), must not show him rows that he did not
/// see, and must stand in the tables (`constraint`, `missing-parent`, `conflict`). One change refused refuses its request; what
/// depends on a refused request is `blocked` and never tried.
///
/// Four ways read for that decision, the cheapest first. *Straight*: one statement that changes its row exactly where the table
/// says "written", and nothing otherwise; an offer goes so where nothing became of its row since the device parted. Where the
/// database takes sets of rows, one statement changes many (`RowQueue`): all of them, or it is taken back and each is one of its
/// own. *Alone*: a request is looked at, decided and written by itself. *As a set*: several are decided over one another's rows,
/// written squashed, and bisected where a constraint breaks. *Carried*: what may lack a parent that a later chunk brings is
/// decided at the end.
///
/// It goes block by block, a block being as many chunks as `blockBytes` holds. First straight through: a request that
/// nothing speaks against is one prepared statement, its values bound where they stand in the payload; any other is
/// evaluated on its own. Where a request breaks a constraint, requests are decided as a set: evaluated in order, written
/// squashed to one change a row, and bisected down to the ones to refuse (`BlockDecision`).
package final class UploadProcessor {
  /// What is held in memory at a time.
  private static let blockBytes = 4 << 20
  /// Up to here the pages that a block changes are kept for going back: for a large one that costs as much as the block.
  private static let smallBlockBytes = 64 << 10
  /// How many requests of a large block are a set where one breaks a constraint.
  private static let setRequestsMax = 16
  /// How many offers of a large block are a set: each is looked at, and they seldom break anything.
  private static let setOffersMax = 256
  /// So many requests that wait, or are kept, are in memory before the books have them.
  private static let unwrittenMax = 1000

  private let connection: any StoreConnection
  private let catalog: Catalog
  private let upload: ProcessRequest
  private let limits: Limits
  private let now: Int64
  private let log: CommitLog
  private let book: RemoteBook
  let rows: RowReader
  private let decision: BlockDecision
  private let reach: Reach
  private let blobs: UploadBlobs
  /// What a validator has refused.
  private let refusedBefore: [RequestID: RefusalText]
  private let purges: PurgeBook
  private let heals: HealBook
  private let waitingBook: WaitingBook
  private let restores: RestoreBook

  private var plans: [UploadShape: ShapePlan] = [:]
  private var block: [[UInt8]] = []
  private var heldBytes = 0
  private var reading = UploadReading()
  private var queue = RowQueue()
  /// Requests of a large block that are to be decided together.
  private var set: [StagedRequest] = []
  var settled: SettledRequests
  var tally: Tally
  /// The lost commits that the upload's offers are of.
  var offered: [IncarnationID: Set<Int64>] = [:]
  var offeredVersion: (incarnation: IncarnationID, number: Int64)?
  /// The same of its conflict versions.
  var kept: [IncarnationID: Set<Int64>] = [:]
  /// What the book of what waits has.
  private var held = WaitingBook.Held()

  /// The block must be decided as a set.
  private struct NeedsSet: Error {}
  /// A statement has failed, and has taken what its savepoint did along (`StoreConnection.endsOnFailure`).
  private struct Failed: Error {}
  /// What may fail is tried in a savepoint of its own.
  private var isCareful = false
  /// The block at hand is one.
  private var isLarge = false
  /// What was written of the block can be taken back.
  private var mayGoBack = true

  package init(
    _ upload: ProcessRequest, _ connection: any StoreConnection, _ catalog: Catalog, log: CommitLog, book: RemoteBook,
    limits: Limits, now: Int64, waiving waived: Set<BlobHash>, intake: OfferIntake = OfferIntake()
  ) throws {
    self.upload = upload
    self.connection = connection
    self.catalog = catalog
    self.log = log
    self.book = book
    self.limits = limits
    self.now = now
    rows = RowReader(connection: connection, catalog: catalog)
    blobs = UploadBlobs(
      RecoveryQueries(
        connection: connection, catalog: catalog, scope: ReadScope(upload.principal),
        limits: limits), limits, waiving: waived)
    purges = try PurgeBook(connection)
    refusedBefore = Dictionary(
      upload.refused.map { ($0.id, RefusalText($0.reason, $0.message, status: $0.status)) }
    ) { first, _ in first }
    let last = try CommitLog.state(connection).lastSequence
    heals = try HealBook(rows, upload, incarnation: log.incarnation, last: last, now: now, intake)
    waitingBook = WaitingBook(connection: connection)
    restores = RestoreBook(connection: connection)
    reach = Reach(rows)
    decision = BlockDecision(
      rows, upload, reach,
      foreign: try ForeignChanges(connection, catalog, besides: upload.remote, last: last), heals, last: last, now: now)
    settled = SettledRequests(connection, upload.remote, now: now)
    tally = Tally(EchoAccount(connection, catalog, last: last), notesOffers: try !waitingBook.isEmpty())
  }

  /// Call it for each chunk in order, then `finish`.
  package func add(_ chunk: [UInt8]) throws {
    block.append(chunk)
    heldBytes += chunk.count
    if heldBytes >= Self.blockBytes { try processBlock(isLast: false) }
  }

  package func finish() throws -> UploadResults {
    try processBlock(isLast: true)
    let fed = try tally.echo.rowsToFeed()
    let mayHide = try tally.echo.hasSets || log.mayTakeAway()
    try tally.echo.removeNeverThere()
    for row in tally.echo.rowsChangedBack { try log.noteChangedBack(catalog.tables[row.table], row.key) }
    for (row, isSeen) in tally.echo.goneRows { try log.noteGone(catalog.tables[row.table], row.key, isSeen: isSeen) }
    let before = try CommitLog.state(connection)
    // What has waited is another program's to its sender: it is fed what came of it.
    let isOwn = heals.intake.purpose == .upload
    let commit = try log.seal(remote: isOwn ? upload.remote : nil)
    for row in fed { try log.noteDifference(catalog.tables[row.table], row.key, from: upload.remote) }
    if mayHide {
      try log.noteHidden(
        after: before.headSequence, to: before.lastSequence, from: upload.remote, upload.principal)
    }
    try log.expandOwn(after: before.headSequence, to: before.lastSequence)
    _ = try log.seal(remote: nil)
    let results = UploadResults(
      commit: commit, acceptedRequests: tally.accepted, conflicts: tally.conflicts,
      refused: try ServerRows(rows, upload.principal).joined(to: tally.refusals, at: tally.refusedPlaces),
      healed: tally.offers.healed, superseded: tally.offers.superseded, waiting: tally.waitingRanges,
      kept: tally.keptCounters)
    try settled.write(tally.refusedRequests)
    try writeBooks(0)
    try restores.count(tally.offers, of: offeredVersion, by: upload.remote, catalog)
    if held.hasForgotten { try waitingBook.countSettling() }
    guard isOwn else { return results }
    try blobs.finish()
    try book.record(upload.remote, upload.sequence, results, now: now)
    return results
  }

  /// What waits, is kept or was offered goes into the books where there is more than so much of it, so that memory does not grow with
  /// the upload.
  private func writeBooks(_ countMax: Int) throws {
    if tally.kept.count > countMax { try ConflictBook(rows).keep(tally.takeKept(), of: upload, now: now) }
    if tally.settledOffers.count > countMax { try waitingBook.forget(tally.takeSettledOffers(), &held) }
    if tally.held.count > countMax { try waitingBook.keep(tally.takeHeld(), of: upload, catalog, now: now, &held) }
    if offered.values.contains(where: { $0.count > countMax }) {
      try restores.noteOffered(offered)
      offered = offered.mapValues { _ in [] }
    }
    if kept.values.contains(where: { $0.count > countMax }) {
      try restores.noteKept(kept, of: upload.remote)
      kept = kept.mapValues { _ in [] }
    }
  }

  private func processBlock(isLast: Bool) throws {
    let chunks = block
    let isSmall = heldBytes <= Self.smallBlockBytes || heals.intake.purpose != .upload
    block = []
    heldBytes = 0
    // What has waited is looked at as a set, too: one by one each makes SQLite compile every statement anew (`deferReferences`).
    isLarge = !isSmall || heals.intake.purpose == .settling
    if isSmall { try processWhole(chunks, isLast: isLast) } else { try processLarge(chunks, isLast: isLast) }
    if isLast { try decision.decide(tally.takeCarried(), &tally, isLast: true) }
    try decision.noteStraight(&tally)
    try heals.writeOrder()
    try settled.write(tally.takeAcceptedRanges())
    try tally.echo.settle()
    try writeBooks(Self.unwrittenMax)
  }

  /// Nearly always nothing fails: a savepoint for each statement is made only where one did.
  private func processLarge(_ chunks: [[UInt8]], isLast: Bool) throws {
    mayGoBack = try connection.endsOnFailure || reach.hasTriggers()
    defer { mayGoBack = true }
    guard mayGoBack else { return try processStraight(chunks, isLast: isLast) }
    let (tallyBefore, readingBefore) = (tally, reading)
    do {
      return try connection.savepoint("salvor_block") { try processStraight(chunks, isLast: isLast) }
    } catch is Failed {
      (tally, reading, set) = (tallyBefore, readingBefore, [])
      decision.forgetWritten()
    }
    isCareful = true
    defer { isCareful = false }
    try processStraight(chunks, isLast: isLast)
  }

  /// A large block: where a request breaks a constraint, it and the next few are a set, and then it goes on straight.
  private func processStraight(_ chunks: [[UInt8]], isLast: Bool) throws {
    func decideSet() throws {
      let requests = set
      set = []
      try decision.decide(requests, &tally, isLast: false)
      try writeBooks(Self.unwrittenMax)
    }
    func take(_ request: StagedRequest) throws {
      set.append(request)
      let countMax = set[0].isOffer ? Self.setOffersMax : Self.setRequestsMax
      if set.count >= countMax { try decideSet() }
    }
    try read(chunks) { change in
      if !set.isEmpty {
        let request = try request(change)
        if try !isSettled(request) { try take(request) }
      } else if let open = try straight(change) {
        try take(open)
      }
    } group: { request in
      if try isSettled(request) { return }
      if !set.isEmpty {
        try take(request)
      } else if try !decision.decideAlone(request, &tally) {
        try take(request)
      }
    }
    if isLast, let request = reading.group {
      reading.group = nil
      if try !isSettled(request) { try take(request) }
    }
    try decideSet()
  }

  /// A small block, and so nearly every upload: all of it is one set where a request breaks a constraint.
  private func processWhole(_ chunks: [[UInt8]], isLast: Bool) throws {
    let (tallyBefore, readingBefore) = (tally, reading)
    do {
      try connection.savepoint("salvor_block") {
        try read(chunks) { change in
          if try straight(change) != nil { throw NeedsSet() }
        } group: { request in
          if try !isSettled(request), try !decision.decideAlone(request, &tally) { throw NeedsSet() }
        }
        if isLast, let request = reading.group, try !isSettled(request) {
          if try !decision.decideAlone(request, &tally) { throw NeedsSet() }
        }
      }
      if isLast { reading.group = nil }
      return
    } catch  where error is NeedsSet || error is Failed {
      (tally, reading) = (tallyBefore, readingBefore)
      decision.forgetWritten()
    }
    var requests = tally.takeCarried()
    try read(chunks, queues: false) { change in
      requests.append(try request(change))
    } group: {
      requests.append($0)
    }
    if isLast, let request = reading.group {
      requests.append(request)
      reading.group = nil
    }
    requests = try requests.filter { try !isSettled($0) }
    try decision.decide(requests, &tally, isLast: isLast)
  }

  // MARK: Reading

  private typealias Single = (UploadRow) throws -> Void

  /// - Parameters:
  ///   - queues: what nothing speaks against may be written in sets, and `single` is not called with it.
  ///   - single: is given a request of one change.
  private func read(
    _ chunks: [[UInt8]], queues: Bool = true, single: Single, group finished: (StagedRequest) throws -> Void
  ) throws {
    _ = queue.take()
    for chunk in chunks {
      try chunk.withUnsafeBufferPointer { chunk in
        try read(chunk) { change in
          if queues, try canQueue(change) { return try enqueue(change, single) }
          try writeQueue(single)
          try single(change)
        } began: {
          // It gets its place in the order then.
          try writeQueue(single)
        } finished: { request in
          try writeQueue(single)
          try finished(request)
        }
        try writeQueue(single)
      }
    }
  }

  private func read(
    _ chunk: UnsafeBufferPointer<UInt8>, _ single: Single, began: () throws -> Void,
    finished: (StagedRequest) throws -> Void
  ) throws {
    var reader = UploadChunkReader(chunk, blobs: blobs)
    // Each of what has waited is an upload of its own.
    if heals.intake.purpose != .upload { reading.lastCounter = 0 }
    var row = RowItems(chunk)
    var shapes: [ShapePlan] = []
    var range: (first: Int64, last: Int64)?
    while let event = try reader.next() {
      switch event {
      case .shape(let place): shapes.append(try plan(reader.shapes[place]))
      case .request(let first, let last, _): range = (first, last)
      case .former(let first, let contents): reading.former = (first, contents)
      case .lost(_, let order): try heals.note(order)
      case .offer(let first, let last, let offer): reading.offers = (first, last, offer)
      case .change(let place, let stamp, let counter, let made):
        guard counter > reading.lastCounter else { throw reader.malformed("the counters must grow") }
        reading.lastCounter = counter
        let plan = shapes[place]
        note(offer: reading.offer(of: counter), plan.operation)
        try row.read(&reader)
        guard plan.fits(row.items.count, catalog) else { throw reader.malformed("a row does not have its shape") }
        if !row.references.isEmpty { try note(row, plan) }
        if let group = reading.group, counter > group.last {
          reading.group = nil
          try finished(group)
        }
        if reading.group == nil, let range, range.first == counter, range.last > counter {
          try began()
          reading.group = reading.request(stamp, counter, range.last, [])
        }
        guard reading.group != nil else {
          try single(UploadRow(plan: plan, row: row, stamp: stamp, counter: counter, made: made))
          continue
        }
        let next = try change(plan, row, stamp, counter, made)
        reading.group?.changes.append(next)
        if let group = reading.group, counter == group.last {
          reading.group = nil
          try finished(group)
        }
      }
    }
  }

  /// Where the row's blobs will stand, if its request is accepted.
  private func note(_ row: RowItems, _ plan: ShapePlan) throws {
    guard let place = plan.place, !plan.hasUnknownColumns else { return }
    let key = plan.key(of: row)
    for (item, reference) in row.references {
      guard let column = plan.targets[item], reference.size <= limits.blobBytesMax else { continue }
      try blobs.note(reference, at: BlobPlace(table: catalog.tables[place].name, key: key, column: column.name))
    }
  }

  private func plan(_ shape: UploadShape) throws -> ShapePlan {
    if let plan = plans[shape] { return plan }
    let plan = try ShapePlan(shape, connection, catalog, upload.principal)
    plans[shape] = plan
    return plan
  }

  private func request(_ change: UploadRow) throws -> StagedRequest {
    let (stamp, counter) = (change.stamp, change.counter)
    return reading.request(
      stamp, counter, counter, [try self.change(change.plan, change.row, stamp, counter, change.made)])
  }

  private func change(
    _ plan: ShapePlan, _ row: RowItems, _ stamp: RequestStamp, _ counter: Int64, _ made: Int64
  ) throws -> StagedChange {
    var change = plan.change(
      row.items, counter: counter, made: made, hash: plan.hash(row.items),
      refusal: try refusal(plan, row, stamp, counter))
    change.offer = reading.offer(of: counter)
    return change
  }

  /// What speaks against a change whatever is in the tables. A validator's refusal of a group stands at its first change.
  private func refusal(
    _ plan: ShapePlan, _ row: RowItems, _ stamp: RequestStamp, _ counter: Int64
  ) throws -> RefusalText? {
    if !refusedBefore.isEmpty, let refused = refusedBefore[RequestID(stamp: stamp, counter: counter)] { return refused }
    if let refusal = plan.refusal(row, catalog, limits) { return refusal }
    guard purges.key != nil, plan.operation != .delete, let place = plan.place else { return nil }
    let table = catalog.tables[place]
    guard try plan.keys(of: row).contains(where: { try purges.isPurged(table, $0) }) else { return nil }
    return RefusalText(.purged, Purged.message(table.name))
  }

  // MARK: Straight through

  /// A request of one change: most of any upload. Nil: it is decided. Else the request, which breaks a constraint or lacks
  /// a parent.
  private func straight(_ change: UploadRow) throws -> StagedRequest? {
    let (plan, row, stamp, counter, made) = (change.plan, change.row, change.stamp, change.counter, change.made)
    let hash = plan.hash(row.items)
    let offer = reading.offer(of: counter)
    // What the offers before have made of a row must be known.
    if !tally.straightOffers.isEmpty, offer == nil || tally.straightOffers.isLarge { try decision.noteStraight(&tally) }
    let mayRun =
      try plan.statement != nil && !settled.mayHold(stamp) && isClear(offer, plan, row, hash) && isOpen(change, hash)
    let mayDepend = tally.concernsAny && mayConcern(plan, row, hash)
    if mayRun, !mayDepend, try run(plan, row, hash, made, offer) {
      reading.nextOrdinal += 1
      accept(plan, row, stamp, counter, isOffer: offer != nil)
      return nil
    }
    let request = try request(change)
    if try isSettled(request) { return nil }
    if mayRun, mayDepend, try !depends(request), try run(plan, row, hash, made, offer) {
      accept(plan, row, stamp, counter, isOffer: offer != nil)
      return nil
    }
    // The offers of a large block are looked at as a set.
    if offer != nil, isLarge { return request }
    return try decision.decideAlone(request, &tally) ? nil : request
  }

  // Both are functions of their own, since the tally is copied for them.
  @inline(never)
  private func mayConcern(_ plan: ShapePlan, _ row: RowItems, _ hash: UInt64) -> Bool {
    tally.mayConcern(plan, row.items, row: hash)
  }

  /// On one that was refused, is carried or waits.
  @inline(never)
  private func depends(_ request: StagedRequest) throws -> Bool {
    var reader = StepReader(rows, over: tally.refusedRows)
    let steps = try reader.steps(of: request)
    let none = SetDecisions()
    return none.blocker(of: request, steps, tally) != nil || none.waits(request, steps, tally)
      || !request.mayWait && tally.waitingRows.mayHoldWhatIsNeeded(by: steps)
  }

  /// Nothing speaks against the change by itself, and nobody else has changed the row since.
  private func isOpen(_ change: UploadRow, _ hash: UInt64) throws -> Bool {
    let (plan, row) = (change.plan, change.row)
    return try refusal(plan, row, change.stamp, change.counter) == nil
      // An insert's statement does nothing where the row is there.
      && (plan.operation == .insert
        || !decision.foreign.isNewer(
          hash, than: change.made,
          at: plan.place.map { ForeignChanges.Place(table: $0, key: plan.keyItems.map { row.items[$0].value }) }))
  }

  // MARK: Sets of rows

  /// Nothing that is known before the tables are asked speaks against the change, and it depends on nothing that is open.
  private func canQueue(_ change: UploadRow) throws -> Bool {
    guard set.isEmpty, !isCareful, change.plan.writesSets, reading.offer(of: change.counter) == nil else {
      return false
    }
    let hash = change.plan.hash(change.row.items)
    return try !settled.mayHold(change.stamp) && isOpen(change, hash)
      && !(tally.concernsAny && mayConcern(change.plan, change.row, hash))
  }

  private func enqueue(_ change: UploadRow, _ single: Single) throws {
    let hash = change.plan.hash(change.row.items)
    if !queue.takes(change, hash) {
      try writeQueue(single)
      // What was in it may have left something open.
      guard try canQueue(change) else { return try single(change) }
    }
    queue.append(change, hash)
  }

  private func writeQueue(_ single: Single) throws {
    guard !queue.rows.isEmpty else { return }
    let (rows, hashes) = queue.take()
    try decision.noteStraight(&tally)
    try write(rows[...], hashes[...], single)
  }

  /// In the client's order: where a set cannot be written whole, its halves are, and the last few one by one.
  private func write(_ rows: ArraySlice<UploadRow>, _ hashes: ArraySlice<UInt64>, _ single: Single) throws {
    let isSet =
      rows.count >= RowQueue.rowsMin && set.isEmpty
      && !(tally.concernsAny && zip(rows, hashes).contains { mayConcern($0.plan, $0.row, $1) })
    guard isSet else {
      let wasCareful = isCareful
      isCareful = isCareful || isLarge && connection.endsOnFailure
      defer { isCareful = wasCareful }
      for row in rows { try single(row) }
      return
    }
    let isWritten = try writeSet(rows, hashes)
    queue.note(written: isWritten)
    if isWritten { return }
    let middle = rows.startIndex + rows.count / 2
    try write(rows[..<middle], hashes[..<middle], single)
    try write(rows[middle...], hashes[middle...], single)
  }

  /// False: nothing of it is written.
  private func writeSet(_ rows: ArraySlice<UploadRow>, _ hashes: ArraySlice<UInt64>) throws -> Bool {
    struct Undone: Error {}
    guard let plan = rows.first?.plan, let place = plan.place else { return false }
    let entry = try reach.triggers(of: place).isEmpty ? 0 : CommitLog.state(connection).lastSequence
    do {
      let others = try connection.savepoint("salvor_straight") {
        guard let others = try plan.runSet(rows, catalog),
          try !reach.isTakenBack(place, rows: rows.count, after: entry)
        else { throw Undone() }
        return others
      }
      for other in try reach.mayAlter(plan) ? Array(rows.indices.map { $0 - rows.startIndex }) : others {
        let (row, hash) = (rows[rows.startIndex + other].row, hashes[hashes.startIndex + other])
        tally.echo.feed(place, plan.key(of: row), hash)
      }
    } catch is Undone {
      return false
    } catch let error as SalvorError where connection.refusesRow(error) {
      try connection.refuseRolledBack(error)
      return false
    }
    for (change, hash) in zip(rows, hashes) {
      if plan.operation == .insert { try decision.foreign.noteMade(hash, on: change.made) }
      reading.nextOrdinal += 1
      accept(plan, change.row, change.stamp, change.counter, isOffer: false)
    }
    tally.echo.account(rows: Array(hashes))
    return true
  }

  private func accept(
    _ plan: ShapePlan, _ row: RowItems, _ stamp: RequestStamp, _ counter: Int64, isOffer: Bool
  ) {
    tally.accept(stamp, counter, counter, RequestContent(CollectionOfOne(plan.content(row.items))))
    if isOffer { tally.settleOffer(RequestID(stamp: stamp, counter: counter)) }
  }

  /// An offer is one that its statement may decide: nothing became of the row since, also not by this upload.
  private func isClear(_ offer: Offer?, _ plan: ShapePlan, _ row: RowItems, _ hash: UInt64) throws -> Bool {
    guard let offer, let place = plan.place else { return true }
    return try !tally.echo.hasChanged(hash)
      && heals.isClear(offer, plan.operation, in: place, hash) { plan.key(of: row) }
  }

  /// True: the statement has changed its row. False: it did nothing.
  private func run(
    _ plan: ShapePlan, _ row: RowItems, _ hash: UInt64, _ made: Int64, _ offer: Offer?
  ) throws -> Bool {
    guard plan.statement != nil else { return false }
    let before = connection.writtenRows
    var (isAsSent, altered, changes) = (true, Int64(0), 0)
    func runProved() throws {
      (isAsSent, altered) = try plan.run(row, catalog)
      changes = connection.changes
      guard mayGoBack else { return }
      let entry = tally.echo.lastAccounted
      if try reach.isTakenBack(plan, row, changes: changes, since: before, after: entry) { throw Reach.TakenBack() }
    }
    do {
      if isCareful { try connection.savepoint("salvor_row", runProved) } else { try runProved() }
    } catch is Reach.TakenBack {
      if isCareful { return false }
      throw Failed()
    } catch let error as SalvorError where connection.refusesRow(error) {
      try connection.refuseRolledBack(error)
      if connection.endsOnFailure, !isCareful { throw Failed() }
      return false
    }
    guard changes == 1 else {
      return try plan.place.map { try tally.echo.isPassedOver($0, plan.key(of: row), hash, since: before) } ?? false
    }
    if let place = plan.place, try !isAsSent || reach.mayAlter(plan) { tally.echo.feed(place, plan.key(of: row), hash) }
    if plan.operation == .insert { try decision.foreign.noteMade(hash, on: made) }
    let accounted = tally.echo.lastAccounted
    let trace = try tally.echo.account(from: before, row: hash)
    if let offer, let place = plan.place {
      let healing = HealBook.Healing(
        table: place, key: plan.key(of: row), version: offer.version, mask: plan.healedMask,
        entryMask: plan.healedEntry, altered: altered, hasLines: false)
      tally.straightOffers.add(healing, hash, trace, after: accounted)
    }
    return true
  }
}
