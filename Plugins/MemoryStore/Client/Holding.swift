import SalvorModel
import SalvorStorage

/// Requests that wait for others (semantics 7 and 8): held back behind one that has failed, and released when it is accepted
/// at last.
extension ClientContent {
  /// Blocked requests that nothing holds any more wait for the next upload. What was sent before has a new ID, since the
  /// server has settled the old one; it keeps its place, and what it saw.
  mutating func release() {
    let active = self.active
    let dependence = Dependence(active.map { requests[$0] }, on: bases, schema: schema)
    var held = Set(active.indices.filter { requests[active[$0]].holdsOthers })
    while true {
      held = dependence.dependents(of: held)
      let more = active.indices.filter { place in
        !held.contains(place) && requests[active[place]].state == .blocked
          && held.contains { requests[active[$0]].isNamed(requests[active[place]].refusal?.blockedBy) }
      }
      if more.isEmpty { break }
      held.formUnion(more)
    }
    for place in active.indices where requests[active[place]].state == .blocked && !held.contains(place) {
      let index = active[place]
      if requests[index].stamp != stamp {
        requests[index].restamp(stamp)
      }
      requests[index].state = .queued
      requests[index].refusal = nil
    }
  }

  /// A displaced request that was blocked by one that has left is blocked by nothing.
  mutating func releaseDisplaced() {
    for index in requests.indices where requests[index].state == .displaced && requests[index].stateBefore == .blocked {
      let blocker = requests[index].refusal?.blockedBy
      if blocker == nil || requests.contains(where: { $0.state != .kept && $0.isNamed(blocker) }) { continue }
      if requests[index].stamp != stamp {
        requests[index].restamp(stamp)
      }
      requests[index].stateBefore = .queued
      requests[index].refusal = nil
    }
  }

  /// What depends on a failed request is not sent: it is blocked by the oldest.
  mutating func holdBack() {
    let active = self.active
    let dependence = Dependence(active.map { requests[$0] }, on: bases, schema: schema)
    var covered: Set<Int> = []
    for place in active.indices where requests[active[place]].hasFailed && !covered.contains(place) {
      let dependents = dependence.dependents(of: [place])
      let waiting = dependents.subtracting(covered).map { active[$0] }
      block(waiting.map { requests[$0].id }, by: requests[active[place]].id)
      covered.formUnion(dependents)
    }
  }

  /// The waiting requests that depend on some of these, without them.
  func waitingDependents(of ids: Set<RequestID>) -> Set<RequestID> {
    let active = self.active
    let dependence = Dependence(active.map { requests[$0] }, on: bases, schema: schema)
    let dependents = dependence.dependents(of: Set(active.indices.filter { ids.contains(requests[active[$0]].id) }))
    return Set(dependents.map { requests[active[$0]] }.filter { $0.state == .queued }.map(\.id)).subtracting(ids)
  }

  /// Of these, the ones that wait.
  mutating func block(_ ids: some Collection<RequestID>, by id: RequestID) {
    for index in requests.indices where requests[index].state == .queued && ids.contains(requests[index].id) {
      requests[index].state = .blocked
      requests[index].refusal = Request.Refused(
        reason: RefusalReason.blocked.rawValue, status: RefusalReason.blocked.status,
        message: QueuedRequest.blockedMessage, blockedBy: id)
    }
  }

  /// The places of the requests that are shown.
  private var active: [Int] {
    requests.indices.filter { requests[$0].state != .displaced && requests[$0].state != .kept }
  }
}

extension Request {
  fileprivate var hasFailed: Bool { state == .refused || state == .blocked }

  /// It was refused; or it is sent again, and not accepted yet.
  fileprivate var holdsOthers: Bool {
    switch state {
    case .refused: true
    case .queued, .sent, .unknownOutcome: !history.isEmpty
    case .blocked, .displaced, .kept: false
    }
  }

  fileprivate func isNamed(_ id: RequestID?) -> Bool { id.map { self.id == $0 || history.contains($0) } ?? false }
}
