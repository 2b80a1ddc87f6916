import SalvorModel
import SalvorStorage

/// The upload's two ends: choosing what is sent, and taking in what became of it (semantics 4, 7 and 8).
extension ClientContent {
  /// Chooses what is sent: the waiting requests of `groups` (nil: all), and those they depend on. Not what cannot stand any
  /// more, such as a row below a marked one that goes now. Besides, the failed ones that were joined into others.
  mutating func chooseOutgoing(
    _ groups: Set<String>?, _ budget: UploadBudget, _ constraints: Constraints
  ) throws -> (requests: [Request], joined: Set<Int64>) {
    var joined = joinEdited()
    let displaced = displacedCounters
    try remake(constraints)
    // What an edit of its row has brought back goes with that edit.
    joined.formUnion(joinEdited(displaced))
    try remake(constraints)
    release()
    holdBack()
    // Requests that were sent again may hold one another, in a circle: nothing else holds them now.
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
    let chosen = budget.fitting(wanted, waiting.map { requests[$0] }, dependence).sorted().map { waiting[$0] }
    for index in chosen { requests[index].state = .sent }
    let versions = keptVersions.filter(\.goesAgain).map(\.offer)
    let outgoing = (chosen.map { known(requests[$0]) } + versions).sorted { $0.firstCounter < $1.firstCounter }
    if !outgoing.isEmpty { healDue = false }
    return (outgoing, joined)
  }

  var displacedCounters: Set<Int64> { Set(requests.filter { $0.state == .displaced }.map(\.firstCounter)) }
  var blockedCounters: Set<Int64> { Set(requests.filter { $0.state == .blocked }.map(\.firstCounter)) }

  /// Accepted requests leave the queue and the bases take their effect; refused ones stay in their rows as archive
  /// entries.
  mutating func settle(_ results: UploadResults, at now: Int64) -> SettleReport {
    let attempts = 1 + (upload?.failures ?? 0)
    upload = nil
    var report = SettleReport()
    var erased: Set<RowName> = []
    var refused: [(id: RequestID, isRejected: Bool)] = []
    let again = Set(keptVersions.lazy.filter(\.goesAgain).map(\.request.id))
    report.refused += settleVersions(results, again)
    for sent in outgoing where !again.contains(sent.id) {
      let place = requests.firstIndex { $0.id == sent.id }
      if results.isWaiting(sent.firstCounter) {
        guard let place else { continue }
        let isOffer =
          sent.changes.count == 1 && (sent.changes[0].offer?.written.isEmpty == true || sent.changes[0].givesBack)
        if isOffer, sent.changes[0].operation == .delete {
          // In the server's hands alone until it is accepted: the row is as the server has it. A server that goes back gets it again.
          requests.remove(at: place)
          keptVersions.append(
            KeptVersion(
              request: sent, versions: sent.changes.map { version(of: results, $0.row.table) }, isHeld: true,
              wait: .waits, isAssumed: results.commit == nil))
        } else {
          if requests[place].state != .displaced { requests[place].state = .queued }
          requests[place].isWaiting = isOffer
        }
        continue
      }
      if results.kept.contains(sent.firstCounter) {
        keptVersions.append(
          KeptVersion(
            request: sent, versions: sent.changes.map { version(of: results, $0.row.table) },
            isAssumed: results.commit == nil))
      }
      if let refusal = results.refused.first(where: { $0.id == sent.id }) {
        // What the server has purged leaves this device, too (semantics 10); a new row under its key is somebody's own.
        if refusal.reason == .purged, let place, requests[place].state != .displaced,
          requests[place].changes.count == 1,
          case let change = requests[place].changes[0], change.operation != .insert || change.offer != nil
        {
          erased.insert(change.row)
          requests.remove(at: place)
          continue
        }
        // A newer copy of the server has what was offered.
        if refusal.reason == .notLost, let place, requests[place].state != .displaced, requests[place].isPlainOffer {
          rememberOffered(requests[place])
          requests.remove(at: place)
          continue
        }
        report.refused += 1
        guard let place else { continue }
        requests[place].isWaiting = false
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
          refused.append((sent.id, refusal.reason == .rejected))
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
            BaseChange(
              row: change.row, version: version, isDeleted: bases[change.row] == nil, isOwn: true,
              isAssumed: results.commit == nil, origin: change.origin))
        }
        if let place { requests.remove(at: place) }
        // Nobody wants the older value any more.
        if place != nil {
          for index in requests.indices where requests[index].state == .displaced && sent.overtakes(requests[index]) {
            requests[index].isOvertaken = true
          }
        }
      }
    }
    if !erased.isEmpty { erase(erased) }
    if let commit = results.commit, !commits.contains(commit) { commits.insert(commit, at: 0) }
    outgoing = []
    var hasGivenBack = false
    for (id, isRejected) in refused where giveBack(id, isRejected: isRejected) { hasGivenBack = true }
    report.waiting = waitingCount
    report.asksAgain = hasGivenBack || keptVersions.contains { $0.wait == .isAsked }
    return report
  }
}

extension ClientContent {
  /// All that this device keeps of rows that the server has purged, and the values in reports.
  private mutating func erase(_ rows: Set<RowName>) {
    func isErased(_ request: Request) -> Bool { request.changes.allSatisfy { rows.contains($0.row) } }
    requests.removeAll { ($0.state == .kept || $0.state == .displaced) && isErased($0) }
    keptVersions.removeAll { isErased($0.request) }
    droppedValues.removeAll { isErased($0.entry) }
    baseChanges.removeAll { rows.contains($0.row) }
    for (place, recovery) in recoveries.enumerated() {
      for (line, item) in recovery.items.enumerated()
      where rows.contains(RowName(table: item.table, key: item.key)) {
        (recoveries[place].items[line].before, recoveries[place].items[line].after) = ([], [])
      }
    }
  }

  /// The server has what this would have brought back: the rows are this device's again, by a commit that counts.
  mutating func rememberOffered(_ request: Request) {
    for change in request.changes {
      guard let version = change.offer?.version else { continue }
      // Of the server's history, whichever of its commits made the row so.
      let isOfKnown = version.origin == nil || incarnations.contains { $0.id == version.incarnation }
      baseChanges.append(
        BaseChange(
          row: change.row, version: isOfKnown ? version.number : version.original.number,
          isDeleted: change.operation == .delete, isOwn: true, origin: isOfKnown ? version.origin : nil))
    }
  }

  /// As of which commit the server has what it accepted.
  func version(of results: UploadResults, _ table: String) -> Int64 {
    results.commit?.number ?? (groups[schema.table(table)?.group ?? ""]?.cursor?.number ?? 0) + 1
  }

  /// What this device gave back and the server holds, as far as it knows.
  var waitingCount: Int64 { Int64(requests.count { $0.isHeldByServer }) + heldDeletes }

  /// Offered deletes among it.
  var heldDeletes: Int64 { Int64(keptVersions.count { $0.wait != nil }) }

  /// Offered deletes that the server holds are asked about whenever it holds fewer of them; where it does not say how many, whenever it has
  /// settled any offer, of each table one at first. True: some are.
  mutating func asksAboutDeletes(_ terms: HealTerms) -> Bool {
    guard keptVersions.contains(where: { $0.wait == .waits }) else { return false }
    if heldAsked?.incarnation == terms.incarnation, heldAsked?.settlings == terms.settlings { return false }
    heldAsked = terms
    let waiting = keptVersions.indices.filter { keptVersions[$0].wait == .waits }
    // A server that has settled none says the number where it holds some.
    if let deletes = terms.deletes ?? (terms.settlings == 0 ? 0 : nil) {
      guard deletes < heldDeletes else { return false }
      for place in waiting { keptVersions[place].wait = .isAsked }
      return true
    }
    for places in Dictionary(grouping: waiting, by: { keptVersions[$0].request.changes[0].row.table }).values {
      guard
        let first = places.min(by: { keptVersions[$0].request.firstCounter < keptVersions[$1].request.firstCounter })
      else { continue }
      keptVersions[first].wait = .isAsked
    }
    return true
  }

  /// In the archive: a delete has the row as it is now.
  func asItIsShown(_ change: Change) -> Change {
    var change = change
    change.offer = nil
    guard change.operation == .delete, let table = schema.table(change.row.table) else { return change }
    let row = view[change.row]
    change.columns =
      row.map { row in
        table.travelling.map { ChangedColumn(name: $0.name, old: table.value($0.name, of: row), new: .null) }
      } ?? []
    return change
  }

  /// Puts an entry of the archive where it belongs.
  mutating func keep(_ request: Request) {
    requests.insert(request, at: requests.firstIndex { $0.firstCounter > request.firstCounter } ?? requests.count)
  }

  /// What was sent again is there again, waits, or is not to be. Answers how many requests were refused: they are in the archive.
  private mutating func settleVersions(_ results: UploadResults, _ again: Set<RequestID>) -> Int64 {
    let sent = Set(outgoing.map(\.id)).intersection(again)
    let refused = Set(results.refused.map(\.id))
    let notTaken = results.refused.filter {
      $0.reason != .notLost && $0.reason != .purged && sent.contains($0.id)
    }
    for refusal in notTaken {
      guard let version = keptVersions.first(where: { $0.request.id == refusal.id }) else { continue }
      var request = version.request
      let offered = Set(version.offer.changes.map(\.counter))
      request.changes = request.changes.filter { offered.contains($0.counter) }.map(asItIsShown)
      request.state = .kept
      request.refusal = Request.Refused(
        reason: refusal.reason.rawValue, status: nil,
        message: refusal.reason == .rejected ? refusal.message : refusal.ofLostVersion, blockedBy: nil)
      keep(request)
    }
    var settled: Set<String> = []
    for kept in keptVersions
    where sent.contains(kept.request.id) && kept.isHeld && !results.isWaiting(kept.request.firstCounter) {
      settled.insert(kept.request.changes[0].row.table)
    }
    keptVersions.removeAll { sent.contains($0.request.id) && refused.contains($0.request.id) }
    for index in keptVersions.indices where keptVersions[index].isHeld {
      if sent.contains(keptVersions[index].request.id) {
        keptVersions[index].wait = results.isWaiting(keptVersions[index].request.firstCounter) ? .waits : nil
      }
      if keptVersions[index].wait == .waits, settled.contains(keptVersions[index].request.changes[0].row.table) {
        keptVersions[index].wait = .isAsked
      }
    }
    for index in keptVersions.indices where sent.contains(keptVersions[index].request.id) && keptVersions[index].isLost
    {
      keptVersions[index].versions = keptVersions[index].request.changes.map { version(of: results, $0.row.table) }
      keptVersions[index].lost = []
      keptVersions[index].isAssumed = results.commit == nil
    }
    return Int64(notTaken.count)
  }
}

/// Chooses the requests of one upload that has no more than its room (`UploadRoom`).
struct UploadBudget {
  /// A smaller blob stands in the payload.
  let bytesMin: Int
  let room: UploadRoom

  /// The places of `wanted` that an upload holds, with those that they depend on.
  func fitting(_ wanted: [Int], _ requests: [Request], _ dependence: Dependence) -> Set<Int> {
    var wanted = wanted
    if let last = room.lastCounter {
      let fits = wanted.filter { requests[$0].lastCounter <= last }
      wanted = fits.isEmpty ? Array(wanted.prefix(1)) : fits
    }
    guard let bytesMax = room.blobBytes else { return dependence.needs(of: Set(wanted)) }
    var chosen: Set<Int> = []
    var bytes: Int64 = 0
    for place in wanted where !chosen.contains(place) {
      let unit = dependence.needs(of: [place]).subtracting(chosen)
      let more = unit.reduce(0) { $0 + self.bytes(of: requests[$1]) }
      if more == 0 || bytes + more <= bytesMax {
        chosen.formUnion(unit)
        bytes += more
      } else if bytes > 0 {
        break
      }
    }
    if !chosen.isEmpty { return chosen }
    return wanted.map { dependence.needs(of: [$0]) }.min { $0.count < $1.count } ?? []
  }

  private func bytes(of request: Request) -> Int64 {
    request.changes.reduce(0) { sum, change in
      guard change.operation != .delete else { return sum }
      return change.columns.reduce(sum) { sum, column in
        let isKey = change.operation == .insert && change.row.key.contains(column.new)
        return sum + (isKey ? 0 : bytes(of: column.new)) + (change.operation == .update ? bytes(of: column.old) : 0)
      }
    }
  }

  private func bytes(of value: Value) -> Int64 {
    guard case .blob(let bytes) = value, bytes.count >= bytesMin else { return 0 }
    return Int64(bytes.count)
  }
}
