import SalvorModel
import SalvorStorage

/// The upload's two ends: choosing what is sent, and taking in what became of it (semantics 4, 7 and 8).
extension ClientContent {
  /// Chooses what is sent: the waiting requests of `groups` (nil: all), and those they depend on. Not what cannot stand any
  /// more, such as a row below a marked one that goes now.
  mutating func chooseOutgoing(_ groups: Set<String>?, _ constraints: Constraints) throws -> [Request] {
    joinEdited()
    try remake(constraints)
    release()
    holdBack()
    let waiting = requests.indices.filter { requests[$0].state == .queued }
    let dependence = Dependence(waiting.map { requests[$0] }, on: bases, schema: schema)
    let unsendable = unsendable(waiting.map { requests[$0] })
    let wanted = waiting.indices.filter { place in
      !unsendable.contains(place)
        && requests[waiting[place]].changes.contains { change in
          groups.map { $0.contains(schema.table(change.row.table)?.group ?? "") } ?? true
        }
    }
    let chosen = dependence.needs(of: Set(wanted)).sorted().map { waiting[$0] }
    for index in chosen { requests[index].state = .sent }
    return chosen.map { known(requests[$0]) }
  }

  /// Accepted requests leave the queue and the bases take their effect; refused ones stay in their rows as archive
  /// entries.
  mutating func settle(_ results: UploadResults, at now: Int64) -> SettleReport {
    let attempts = 1 + (upload?.failures ?? 0)
    upload = nil
    var report = SettleReport()
    for sent in outgoing {
      let place = requests.firstIndex { $0.id == sent.id }
      if let refusal = results.refused.first(where: { $0.id == sent.id }) {
        report.refused += 1
        guard let place else { continue }
        let state: RequestState = refusal.reason == .blocked ? .blocked : .refused
        if requests[place].state == .displaced {
          requests[place].stateBefore = state
        } else {
          requests[place].state = state
        }
        requests[place].refusal = Request.Refused(
          reason: refusal.reason.rawValue, status: refusal.status, message: refusal.message,
          blockedBy: refusal.blockedBy)
        // A blocked one was not tried.
        if state == .refused {
          requests[place].attempts += attempts
          requests[place].lastAttempt = now
        }
      } else {
        report.accepted += 1
        for change in sent.changes {
          guard let table = schema.table(change.row.table) else { continue }
          bases[change.row] = change.applied(to: bases[change.row], of: table)
          // Without a commit the server may hold something else there, and says so with the next download.
          let version = results.commit?.number ?? (groups[table.group]?.cursor?.number ?? 0) + 1
          baseChanges.append(
            BaseChange(row: change.row, version: version, isDeleted: bases[change.row] == nil, isOwn: true))
        }
        if let place { requests.remove(at: place) }
      }
    }
    if let commit = results.commit, !commits.contains(commit) { commits.insert(commit, at: 0) }
    outgoing = []
    outgoingContext = []
    return report
  }
}
