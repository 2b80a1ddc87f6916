import SalvorModel
import SalvorStorage

/// What has been decided of an upload so far.
struct Tally {
  var accepted: Int64 = 0
  var conflicts: Int64 = 0
  var refusals: [Refusal] = []
  private(set) var refusedPrints = Footprints()
  private(set) var refusedIDs: [Int: RequestID] = [:]
  /// The rows that refused requests changed, as they would be: what depends on them is known by them.
  private(set) var refusedRows: [UInt64: Row?] = [:]
  /// Requests that lack a parent which a later part of the upload may bring, and what depends on them.
  private(set) var carried: [StagedRequest] = []
  private(set) var carriedPrints = Footprints()
  /// How requests were settled, for the memory of request IDs.
  var acceptedRanges: [(stamp: RequestStamp, first: Int64, last: Int64)] = []
  var refusedRequests: [(request: StagedRequest, refusal: Refusal)] = []
  /// Conflict versions of what stands.
  var kept: [SetEvaluation.ConflictVersion] = []
  var echo: EchoAccount

  init(_ echo: EchoAccount) { self.echo = echo }

  var hasRefused: Bool { !refusedIDs.isEmpty }

  mutating func accept(_ stamp: RequestStamp, _ first: Int64, _ last: Int64) {
    accepted += 1
    if let end = acceptedRanges.last, end.last + 1 == first, end.stamp == stamp {
      acceptedRanges[acceptedRanges.count - 1].last = last
    } else {
      acceptedRanges.append((stamp, first, last))
    }
  }

  mutating func refuse(_ refused: RefusedRequest) {
    refusals.append(refused.refusal)
    if !refused.isRepeated { refusedRequests.append((refused.request, refused.refusal)) }
    refusedPrints.add(refused.steps, by: refused.request.ordinal)
    refusedIDs[refused.request.ordinal] = refused.request.id
    for step in refused.steps { refusedRows[step.row] = .some(step.after) }
  }

  mutating func carry(_ request: StagedRequest, _ steps: [Step]) {
    carried.append(request)
    carriedPrints.add(steps, by: request.ordinal)
  }

  mutating func takeCarried() -> [StagedRequest] {
    defer {
      carried = []
      carriedPrints = Footprints()
    }
    return carried
  }
}

struct RefusedRequest {
  var request: StagedRequest
  var refusal: Refusal
  var steps: [Step]
  /// It was refused under an earlier upload.
  var isRepeated = false

  init(_ request: StagedRequest, _ text: RefusalText, _ steps: [Step], blockedBy: RequestID? = nil) {
    self.request = request
    self.steps = steps
    refusal = Refusal(
      counter: request.first, stamp: request.stamp, reason: text.reason, message: text.message, blockedBy: blockedBy)
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

  /// The refused request, here or before, that one with these steps depends on; the first of them.
  func blocker(of steps: [Step], _ tally: Tally) -> RequestID? {
    let here = refusedPrints.isEmpty ? nil : refusedPrints.first(neededBy: steps)
    let before = tally.hasRefused ? tally.refusedPrints.first(neededBy: steps) : nil
    guard let first = [here, before].compactMap(\.self).min() else { return nil }
    return refusedIDs[first] ?? tally.refusedIDs[first]
  }

  func waits(_ steps: [Step], _ tally: Tally) -> Bool {
    !carriedPrints.isEmpty && carriedPrints.first(neededBy: steps) != nil
      || !tally.carriedPrints.isEmpty && tally.carriedPrints.first(neededBy: steps) != nil
  }

  mutating func accept(_ request: StagedRequest) { accepted.append(request) }

  mutating func refuse(_ entry: RefusedRequest) {
    refused.append(entry)
    refusedPrints.add(entry.steps, by: entry.request.ordinal)
    refusedIDs[entry.request.ordinal] = entry.request.id
  }

  mutating func carry(_ request: StagedRequest, _ steps: [Step]) {
    carried.append((request, steps))
    carriedPrints.add(steps, by: request.ordinal)
  }

  func join(_ tally: inout Tally) {
    for request in accepted { tally.accept(request.stamp, request.first, request.last) }
    for entry in refused { tally.refuse(entry) }
    for entry in carried { tally.carry(entry.request, entry.steps) }
    tally.conflicts += conflicts
  }
}

extension RefusalText {
  static let blocked = RefusalText(.blocked, "It depends on a request that was refused. Settle that one first.")
}
