import SalvorModel
import SalvorStorage

/// What has been decided of an upload so far. A value: an attempt that fails takes nothing with it.
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

  mutating func refuse(_ request: StagedRequest, _ text: RefusalText, _ steps: [Step], blockedBy: RequestID? = nil) {
    let refusal = Refusal(
      counter: request.first, stamp: request.stamp, reason: text.reason, message: text.message, blockedBy: blockedBy)
    refusals.append(refusal)
    refusedRequests.append((request, refusal))
    remember(request, steps)
  }

  /// A request that was refused under an earlier upload.
  mutating func repeatRefusal(_ request: StagedRequest, _ refusal: Refusal, _ steps: [Step]) {
    refusals.append(refusal)
    remember(request, steps)
  }

  private mutating func remember(_ request: StagedRequest, _ steps: [Step]) {
    refusedPrints.add(steps, by: request.ordinal)
    refusedIDs[request.ordinal] = request.id
    for step in steps { refusedRows[step.row] = .some(step.after) }
  }

  /// The refused request that one with these steps depends on.
  func blocker(of steps: [Step]) -> RequestID? {
    guard hasRefused, let ordinal = refusedPrints.first(neededBy: steps) else { return nil }
    return refusedIDs[ordinal]
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

extension RefusalText {
  static let blocked = RefusalText(.blocked, "It depends on a request that was refused. Settle that one first.")
}
