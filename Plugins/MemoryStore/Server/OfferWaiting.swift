import SalvorModel
import SalvorStorage

extension UploadProcessing {
  /// The server can hold it: a device makes each offer a request of its own, and of a lost row that a change of its own makes again it has
  /// that change with it.
  func mayWait(_ request: Request) -> Bool {
    request.changes.count == 1 && (request.changes[0].offer?.written.isEmpty == true || request.changes[0].givesBack)
  }

  /// What a request that would bring something back waits for, but for a parent.
  func wait(of index: Int) -> WaitingReason? {
    let request = requests[index]
    guard intake.purpose == .upload, request.changes.contains(where: \.givesBack) else { return nil }
    if needsConsent(request) != nil { return .review }
    return mayWait(request) && intake.isPaused ? .paused : nil
  }

  /// The table of the request's first change that brings something back only when the server's operator has accepted it.
  private func needsConsent(_ request: Request) -> Table? {
    request.changes.lazy.filter(\.givesBack).compactMap { change in
      self.state.schema.table(change.row.table).flatMap { table in
        self.intake.reviews || change.offer?.isForReview == true || table.heal == .review ? table : nil
      }
    }.first
  }

  /// The server holds requests of one change alone: of another one the device offers the row by itself.
  func waits(_ request: Request, _ reason: WaitingReason) -> Outcome {
    guard !mayWait(request), let table = needsConsent(request) else { return .waiting(reason, parent: nil) }
    return .refused(
      .rowDeleted,
      "The server has lost the row of \(table.name), and its operator has to consent before it comes back. Reapply the change then.",
      blockedBy: nil)
  }

  /// The first row that a row needs and that is not there; nil, too, where its device references that since the loss.
  func missingParent(of request: Request) -> RowName? {
    for change in request.changes {
      guard let table = state.schema.table(change.row.table), change.operation != .delete else { continue }
      for reference in table.references {
        let value =
          change.column(reference.column)?.new ?? tables[change.row].map { table.value(reference.column, of: $0) }
        guard let value, value != .null else { continue }
        let parent = RowName(table: reference.table, key: [value])
        if tables[parent] == nil {
          let isKnown = change.offer?.written.contains(reference.column) == true
          return isKnown || state.purged.contains(parent) ? nil : parent
        }
      }
    }
    return nil
  }

  /// An offer that breaks nothing but that it lacks a parent, which no later request makes.
  func missingParent(of index: Int, _ broken: Set<Violation>) -> RowName? {
    let request = requests[index]
    guard mayWait(request), request.changes[0].operation != .delete else { return nil }
    let isMissing = broken.contains { violation in
      if case .missingParent(let child, _) = violation { child == request.changes[0].row } else { false }
    }
    return isMissing ? missingParent(of: request) : nil
  }

  /// What becomes of an offer that has waited, whatever the tables have.
  mutating func decideHeld(_ index: Int) -> Outcome? {
    switch intake.purpose {
    case .upload, .settling: return nil
    case .rejecting:
      return .refused(
        .rejected, "The server's operator does not take back this row, which the server lost. Withdraw the change.",
        blockedBy: nil)
    case .givingUp:
      keepUnwritable(index)
      return outcomes[index]
    }
  }
}

extension ServerState {
  /// Offers of an upload that wait now, and those that do no more.
  mutating func hold(_ processing: UploadProcessing, by remote: RemoteID, _ principal: Principal, time: Int64) {
    for (index, request) in processing.requests.enumerated() where processing.mayWait(request) {
      let known = waiting.firstIndex { $0.request.id == request.id }
      guard case .waiting(let reason?, let parent)? = processing.outcomes[index] else {
        if let known {
          waiting.remove(at: known)
          settlings += 1
        }
        continue
      }
      if let known {
        waiting[known].remote = remote
        waiting[known].principal = principal
        waiting[known].reason = reason
        waiting[known].parent = parent
      } else {
        waiting.append(
          HeldOffer(
            place: (waiting.map(\.place).max() ?? 0) + 1, request: request, remote: remote, principal: principal,
            reason: reason, parent: parent, time: time))
      }
    }
  }
}

extension MemoryServerStore {
  /// Processes some of what waits, by whom it came from, each as an upload of its own.
  func settle(_ held: [HeldOffer], _ purpose: OfferIntake.Purpose, in state: inout ServerState) throws {
    var groups: [(remote: RemoteID, principal: Principal, requests: [Request])] = []
    for offer in held {
      if let group = groups.firstIndex(where: { $0.remote == offer.remote && $0.principal == offer.principal }) {
        groups[group].requests.append(offer.request)
      } else {
        groups.append((offer.remote, offer.principal, [offer.request]))
      }
    }
    for group in groups {
      let upload = ProcessRequest(
        remote: group.remote, sequence: SequenceID(unchecked: String(repeating: "0", count: 32)),
        principal: group.principal)
      _ = try apply(group.requests, of: upload, OfferIntake(purpose: purpose), to: &state)
    }
  }

  /// What waits and may go on.
  func settleWaiting(in state: inout ServerState) throws {
    while true {
      let ready = state.waiting.filter { offer in
        switch offer.reason {
        case .paused, .rate: !state.pace.isPaused
        case .parent: offer.parent.map { state.tables[$0] != nil || state.purged.contains($0) } ?? false
        case .review: false
        }
      }
      guard !ready.isEmpty else { return }
      let before = state.waiting.map(\.place)
      let paced = ready.filter { $0.reason != .parent }
      try settle(paced.isEmpty ? ready : paced, .settling, in: &state)
      let moved = state.waiting.filter { $0.reason == .parent }.contains { offer in
        paced.contains { $0.place == offer.place }
      }
      if state.waiting.map(\.place) == before, !moved { return }
    }
  }

  private func chosen(_ query: WaitingQuery, _ reasons: [WaitingReason], in state: ServerState) -> [HeldOffer] {
    state.waiting.filter { offer in
      reasons.contains(offer.reason) && query.restore ?? 0 == 0
        && query.table.map { $0 == offer.request.changes[0].row.table } ?? true
        && query.remote.map { $0 == offer.remote } ?? true
    }
  }

  /// In the order of their places; at most `limit`, none for a `limit` that is not positive.
  public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) throws -> [WaitingOffer] {
    let state = try read()
    return chosen(query, WaitingReason.allCases, in: state).filter { $0.place > after }.prefix(max(0, limit)).compactMap
    {
      offer in
      let change = offer.request.changes[0]
      guard let version = change.offer?.version, let table = state.schema.table(change.row.table) else { return nil }
      return WaitingOffer(
        place: offer.place, restore: 0, request: offer.request.id, remote: offer.remote,
        principal: offer.principal.name, time: offer.time, table: change.row.table, key: change.row.key,
        operation: change.operation, version: version, reason: offer.reason,
        parent: offer.parent.map { WaitingOffer.ParentRow(table: $0.table, key: $0.key) },
        values: change.operation == .delete ? [] : change.columns.map { NamedValue($0.name, $0.new) },
        present: state.tables[change.row].map { row in
          zip(table.travelling, table.travelling(row)).map { NamedValue($0.name, $1) }
        })
    }
  }

  /// In no order; groups without a waiting offer are left out.
  public func waitingOffers() throws -> [WaitingCount] {
    let groups = Dictionary(grouping: try read().waiting) { offer in
      WaitingCount(
        restore: 0, table: offer.request.changes[0].row.table, remote: offer.remote,
        operation: offer.request.changes[0].operation, reason: offer.reason, count: 0)
    }
    return groups.map { group, offers in
      var count = group
      count.count = Int64(offers.count)
      return count
    }
  }

  /// Of the chosen offers only those that wait for a review. Returns how many were chosen.
  public func acceptOffers(_ query: WaitingQuery) throws -> Int64 { try settle([.review], query, .settling) }

  /// The chosen offers, whatever they wait for. Returns how many were chosen.
  public func rejectOffers(_ query: WaitingQuery) throws -> Int64 {
    try settle(WaitingReason.allCases, query, .rejecting)
  }

  /// Returns how many of them waited, deletes aside.
  public func withdrawOffers(_ ids: [RequestID], of remote: RemoteID) throws -> Int64 {
    var state = try swept()
    let isTaken = { (offer: HeldOffer) in offer.remote == remote && ids.contains(offer.request.id) }
    let count = state.waiting.count { isTaken($0) && $0.request.changes[0].operation != .delete }
    state.waiting.removeAll(where: isTaken)
    write(state)
    return Int64(count)
  }

  private func settle(
    _ reasons: [WaitingReason], _ query: WaitingQuery, _ purpose: OfferIntake.Purpose
  ) throws -> Int64 {
    var state = try swept()
    let found = chosen(query, reasons, in: state)
    try settle(found, purpose, in: &state)
    try settleWaiting(in: &state)
    write(state)
    return Int64(found.count)
  }

  public func settleWaitingOffers() throws {
    var state = try swept()
    try settleWaiting(in: &state)
    write(state)
  }

  public func healPace() throws -> HealPace { try read().pace }

  /// The specification lets any number of rows pass.
  public func setHealPace(_ pace: HealPace) throws {
    var state = try swept()
    state.pace = pace
    try settleWaiting(in: &state)
    write(state)
  }
}
