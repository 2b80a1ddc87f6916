import SalvorModel
import SalvorStorage
import SalvorWire

/// What has been decided of an upload so far.
struct Tally {
  var accepted: Int64 = 0
  var conflicts: Int64 = 0
  var refusals: [Refusal] = []
  var offers = OfferCount()
  /// Where the rows of the refused requests stand.
  private(set) var refusedPlaces: [RequestID: [ServerRows.Place]] = [:]
  private(set) var refusedPrints = Footprints()
  private(set) var refusedIDs: [Int: RequestID] = [:]
  /// The rows that refused requests changed, and that kept ones would have made, as they would be: what depends on them is
  /// known by them.
  private(set) var refusedRows: [UInt64: Row?] = [:]
  /// Requests that lack a parent which a later part of the upload may bring, and what depends on them.
  private(set) var carried: [StagedRequest] = []
  private(set) var carriedPrints = Footprints()
  /// How requests were settled, for the memory of request IDs.
  private(set) var acceptedRanges: [AcceptedRange] = []
  var refusedRequests: [(request: StagedRequest, refusal: Refusal)] = []
  /// Conflicts of what was accepted: kept ones and settled ones.
  private(set) var kept: [UploadConflict] = []
  /// Requests that wait, and why.
  private(set) var held: [RefusedRequest] = []
  private(set) var waiting: [RequestID: RefusedRequest.Wait] = [:]
  /// Rows of requests that wait and were taken out of `held`.
  private(set) var waitingRows = WaitingRows()
  private var heldBefore: [ClosedRange<Int64>] = []
  /// Of versions that were taken out of `kept`.
  private var keptBefore: [Int64] = []
  /// Offers that are settled now; none where nothing waits.
  private(set) var settledOffers: [RequestID] = []
  /// Offers that were written straight, and that the book of healing does not know yet.
  var straightOffers = StraightOffers()
  var echo: EchoAccount

  private let notesOffers: Bool

  /// - Parameter notesOffers: some wait, and may be among those that are settled now.
  init(_ echo: EchoAccount, notesOffers: Bool) {
    self.echo = echo
    self.notesOffers = notesOffers
  }

  var hasRefused: Bool { !refusedIDs.isEmpty || !waitingRows.isEmpty }

  /// False: nothing was refused, is carried or waits. (It is asked for each change: not `mutating`, it would be given a copy of all of this.)
  var concernsAny: Bool {
    mutating get { !refusedPrints.isEmpty || !carriedPrints.isEmpty || !waitingRows.isEmpty }
  }

  /// False where the change certainly depends on nothing that was refused or is carried.
  func mayConcern(_ plan: ShapePlan, _ items: [PayloadReader.Item], row: UInt64) -> Bool {
    refusedPrints.mayConcern(plan, items, row: row) || carriedPrints.mayConcern(plan, items, row: row)
      || waitingRows.mayConcern(plan, items, row: row)
  }

  mutating func accept(_ stamp: RequestStamp, _ first: Int64, _ last: Int64, _ content: RequestContent) {
    accepted += 1
    let end = acceptedRanges.count - 1
    if end >= 0, acceptedRanges[end].append(stamp, first, last, content) { return }
    acceptedRanges.append(AcceptedRange(stamp, first, last, content))
  }

  mutating func takeAcceptedRanges() -> [AcceptedRange] {
    defer { acceptedRanges = [] }
    return acceptedRanges
  }

  /// First counters of the requests that are kept as conflict versions for a person.
  var keptCounters: [Int64] {
    (keptBefore + kept.lazy.filter { $0.settled == nil }.map(\.request.counter)).sortedOnce()
  }

  /// What waits, by first counters.
  var waitingRanges: [ClosedRange<Int64>] {
    let now = UploadResults.ranges(held.map(\.request.first).sorted())
    if heldBefore.isEmpty { return now }
    return (heldBefore + now).sorted { $0.lowerBound < $1.lowerBound }.reduce(into: []) { joined, range in
      if let last = joined.last, last.upperBound + 1 == range.lowerBound {
        joined[joined.count - 1] = last.lowerBound...range.upperBound
      } else {
        joined.append(range)
      }
    }
  }

  mutating func settleOffer(_ id: RequestID) { if notesOffers { settledOffers.append(id) } }

  mutating func refuse(_ refused: RefusedRequest) {
    if let wait = refused.wait {
      held.append(refused)
      waiting[refused.request.id] = wait
      refusedPrints.add(refused.steps, by: refused.request.ordinal)
      refusedIDs[refused.request.ordinal] = refused.request.id
      for step in refused.steps { refusedRows[step.effect.row] = .some(step.after) }
      return
    }
    if refused.request.mayWait { settleOffer(refused.request.id) }
    refusals.append(refused.refusal)
    if refused.request.isOffer, !refused.isRepeated { offers.noteRefused(refused.request, refused.refusal.reason) }
    refusedPlaces[refused.request.id] = refused.request.changes.compactMap(ServerRows.Place.init)
    if !refused.isRepeated { refusedRequests.append((refused.request, refused.refusal)) }
    refusedPrints.add(refused.steps, by: refused.request.ordinal)
    refusedIDs[refused.request.ordinal] = refused.request.id
    for step in refused.steps { refusedRows[step.effect.row] = .some(step.after) }
  }

  mutating func keep(_ versions: [UploadConflict]) {
    kept += versions
    for version in versions { if let row = version.unmade { refusedRows[version.change.hash] = .some(row) } }
  }

  /// It was kept under an earlier upload.
  mutating func noteKept(_ request: StagedRequest) { keptBefore.append(request.first) }

  /// What waits, for the book. Of it stays here what later requests must be told by, as little as may be.
  mutating func takeHeld() -> [RefusedRequest] {
    let taken = held
    held = []
    heldBefore += UploadResults.ranges(taken.map(\.request.first).sorted())
    for entry in taken {
      for step in entry.steps {
        waitingRows.add(step.effect.row)
        refusedRows.removeValue(forKey: step.effect.row)
      }
      guard !refusedPrints.forgetRows(entry.steps, by: entry.request.ordinal) else { continue }
      refusedIDs[entry.request.ordinal] = nil
      waiting[entry.request.id] = nil
    }
    return taken
  }

  /// What is kept beside rows, for the book of conflicts.
  mutating func takeKept() -> [UploadConflict] {
    let taken = kept
    kept = []
    for version in taken {
      if version.settled == nil { keptBefore.append(version.request.counter) }
      if version.unmade != nil { refusedRows.removeValue(forKey: version.change.hash) }
    }
    return taken
  }

  mutating func takeSettledOffers() -> [RequestID] {
    defer { settledOffers = [] }
    return settledOffers
  }

  /// So many offers that lack a parent are carried that the others wait for theirs in the book.
  var isCarryingMuch: Bool { carried.count >= Self.carriedOffersMax }

  private static let carriedOffersMax = 2000

  mutating func carry(_ request: StagedRequest, _ steps: [Step]) {
    carried.append(request)
    carriedPrints.add(steps, by: request.ordinal)
  }

  /// In the client's order.
  mutating func takeCarried() -> [StagedRequest] {
    defer {
      carried = []
      carriedPrints = Footprints()
    }
    return carried.sorted { $0.ordinal < $1.ordinal }
  }
}

extension Array<Int64> {
  fileprivate func sortedOnce() -> [Int64] {
    sorted().reduce(into: []) { if $0.last != $1 { $0.append($1) } }
  }
}

/// What offers leave that were each one statement (`HealBook`).
struct StraightOffers {
  /// The last entry of the log before the first of them.
  private(set) var before: Int64 = 0
  private(set) var list: [(row: UInt64, healing: HealBook.Healing)] = []
  /// By their entries, in their order, as far as the statements told them.
  private(set) var entries: [HealBook.Entries] = []
  /// Those that found all of it there.
  private(set) var same: Set<UInt64> = []
  /// Every statement told what it left.
  private(set) var isTold = true
  private(set) var entryCount = 0

  @inline(__always)
  var isEmpty: Bool { list.isEmpty }
  /// It is time that the book is told.
  @inline(__always)
  var isLarge: Bool { list.count >= 1000 }
  /// By row, each once.
  var healings: [UInt64: [HealBook.Healing]] { Dictionary(list.map { ($0.row, [$0.healing]) }) { $1 } }

  mutating func add(_ healing: HealBook.Healing, _ row: UInt64, _ trace: EchoAccount.Trace, after last: Int64) {
    if isEmpty { before = last }
    list.append((row, healing))
    switch trace {
    case .entry(let number):
      entryCount += 1
      let entry = HealBook.Entries(
        first: number, last: number, version: healing.version, mask: healing.mask, entry: healing.entryMask,
        altered: healing.altered & healing.mask)
      if entries.isEmpty || !entries[entries.count - 1].append(entry) { entries.append(entry) }
    case .nothing: same.insert(row)
    case .unknown: isTold = false
    }
  }
}

/// Accepted requests of one stamp whose counters follow one another.
struct AcceptedRange {
  /// A group of more changes is a range of its own.
  private static let groupMax: Int64 = 64
  /// Where a range is cut, so that one is never large.
  private static let countersMax = 1 << 16

  let stamp: RequestStamp
  let first: Int64
  private(set) var last: Int64
  /// One for each counter, zero within a group; or a single one for the whole range.
  private(set) var contents: [UInt32]

  init(_ stamp: RequestStamp, _ first: Int64, _ last: Int64, _ content: RequestContent) {
    self.stamp = stamp
    self.first = first
    self.last = last
    contents = [content.bits]
    if last - first < Self.groupMax { pad(to: last) }
  }

  private mutating func pad(to last: Int64) {
    while Int64(contents.count) <= last - first { contents.append(0) }
  }

  /// False: the request does not continue this range.
  mutating func append(
    _ stamp: RequestStamp, _ first: Int64, _ last: Int64, _ content: RequestContent
  ) -> Bool {
    guard self.last + 1 == first, stamp == self.stamp, last - first < Self.groupMax,
      Int64(contents.count) == first - self.first, contents.count < Self.countersMax
    else { return false }
    contents.append(content.bits)
    self.last = last
    pad(to: last)
    return true
  }
}

struct RefusedRequest {
  var request: StagedRequest
  var refusal: Refusal
  var steps: [Step]
  /// It was refused under an earlier upload.
  var isRepeated = false
  /// Not nil: it is not refused. It waits.
  var wait: Wait?

  struct Wait {
    /// Nil: it is no offer. Its device keeps it until what it depends on is settled.
    var reason: WaitingReason?
    /// The table's place.
    var parent: (table: Int, key: Key)?

    init(_ reason: WaitingReason?, _ parent: (table: Int, key: Key)? = nil) {
      self.reason = reason
      self.parent = parent
    }
  }

  init(
    _ request: StagedRequest, _ text: RefusalText, _ steps: [Step], blockedBy: RequestID? = nil, wait: Wait? = nil
  ) {
    self.wait = wait
    self.request = request
    self.steps = steps
    refusal = Refusal(
      counter: request.first, stamp: request.stamp, reason: text.reason, message: text.message, status: text.status,
      blockedBy: blockedBy)
  }

  init(_ request: StagedRequest, repeating refusal: Refusal, _ steps: [Step]) {
    self.request = request
    self.refusal = refusal
    self.steps = steps
    isRepeated = true
  }
}

/// What one attempt at a set of requests decides. It joins the tally only where the set is written.
struct SetDecisions {
  private(set) var accepted: [StagedRequest] = []
  private(set) var refused: [RefusedRequest] = []
  private(set) var carried: [(request: StagedRequest, steps: [Step])] = []
  var conflicts: Int64 = 0
  private var refusedPrints = Footprints()
  private var carriedPrints = Footprints()
  private var refusedIDs: [Int: RequestID] = [:]
  private(set) var waiting: [RequestID: RefusedRequest.Wait] = [:]

  /// The refused request, here or before, that one with these steps depends on; the first of them.
  func blocker(of request: StagedRequest, _ steps: [Step], _ tally: Tally) -> RequestID? {
    let here = refusedPrints.first(neededBy: steps, of: request.ordinal)
    let before = tally.refusedPrints.first(neededBy: steps, of: request.ordinal)
    guard let first = [here, before].compactMap(\.self).min() else { return nil }
    return refusedIDs[first] ?? tally.refusedIDs[first]
  }

  func waits(_ request: StagedRequest, _ steps: [Step], _ tally: Tally) -> Bool {
    carriedPrints.first(neededBy: steps, of: request.ordinal) != nil
      || tally.carriedPrints.first(neededBy: steps, of: request.ordinal) != nil
  }

  mutating func accept(_ request: StagedRequest) { accepted.append(request) }

  mutating func refuse(_ entry: RefusedRequest) {
    refused.append(entry)
    waiting[entry.request.id] = entry.wait
    refusedPrints.add(entry.steps, by: entry.request.ordinal)
    refusedIDs[entry.request.ordinal] = entry.request.id
  }

  mutating func carry(_ request: StagedRequest, _ steps: [Step]) {
    carried.append((request, steps))
    carriedPrints.add(steps, by: request.ordinal)
  }

  func join(_ tally: inout Tally) {
    for request in accepted {
      tally.accept(request.stamp, request.first, request.last, request.content)
      if request.mayWait { tally.settleOffer(request.id) }
    }
    for entry in refused { tally.refuse(entry) }
    for entry in carried { tally.carry(entry.request, entry.steps) }
    tally.conflicts += conflicts
  }
}

extension RefusalText {
  static let rejected = RefusalText(
    .rejected, "The server's operator does not take back this row, which the server lost. Withdraw the change.")
  static let blocked = RefusalText(.blocked, "It depends on a request that was refused. Settle that one first.")
}
