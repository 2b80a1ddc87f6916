import SalvorModel
import SalvorStorage

/// Requests that a person takes out of the queue or the archive (semantics 8).
extension ClientContent {
  mutating func remove(
    _ removal: RequestRemoval, _ constraints: Constraints, now: Int64
  ) throws -> RemovalReport {
    // As the next sync would, whose requests these are.
    _ = splitOpenGroup()
    let before = self
    let listing = RequestListing(before, now: now)
    var causes = try asked(removal, listing)
    try refuseUnderWay(causes.keys)
    let held = requests.filter { causes[$0.id] != nil && $0.isHeldByServer }.map(\.id)
    takeOut(Set(causes.keys))
    if case .archive = removal {
      let archived = before.requests.map(\.id).filter { causes[$0] != nil }
      while let fallen = try fallen(constraints) {
        for id in fallen {
          let need = listing.needs(of: id).first(where: archived.contains) ?? archived[0]
          causes[id] = .cannotStand(without: need)
        }
        try refuseUnderWay(fallen)
        takeOut(Set(fallen))
      }
    }
    var report = RemovalReport()
    report.displaced = try remake(constraints)
    report.returned = requests.filter { $0.state != .displaced && before.isDisplaced($0.id) }.map(\.id)
    report.requests = before.requests.compactMap { request in
      causes[request.id].map { RemovedRequest(id: request.id, changes: listing.entries(of: request), cause: $0) }
    }
    report.rows = remadeRows(report, before)
    withdrawn += held
    return report
  }

  private func isDisplaced(_ id: RequestID) -> Bool { requests.contains { $0.id == id && $0.state == .displaced } }

  /// What is asked for, and what has to go with it.
  private func asked(_ removal: RequestRemoval, _ listing: RequestListing) throws -> [RequestID: RemovalCause] {
    let archive: Set<RequestState> = [.refused, .blocked, .displaced]
    var causes: [RequestID: RemovalCause] = [:]
    switch removal {
    case .archive(let asked):
      for request in requests where archive.contains(request.state) { causes[request.id] = .archived }
      if let asked { causes[try known(asked, in: archive)] = .askedFor }
    case .entry(let asked):
      for id in listing.dependents(of: try known(asked, in: archive)) { causes[id] = .dependsOn(asked) }
      causes[asked] = .askedFor
    case .withdraw(let asked):
      let waiting: Set<RequestState> = [.queued, .sent, .unknownOutcome]
      for id in listing.dependents(of: try known(asked, in: waiting)) { causes[id] = .dependsOn(asked) }
      causes[asked] = .askedFor
    case .kept(let asked) where requests.contains { $0.id == asked && $0.state == .queued && $0.isHeldByServer }:
      return try self.asked(.withdraw(asked), listing)
    case .kept(let asked): causes[try known(asked, in: [.kept])] = .askedFor
    case .allKept: for request in requests where request.state == .kept { causes[request.id] = .askedFor }
    }
    return causes
  }

  /// Throws `not-found`, with the state or the new ID that the request has.
  func known(_ id: RequestID, in states: Set<RequestState>) throws -> RequestID {
    let state = requests.first { $0.id == id }?.state
    if let state, states.contains(state) { return id }
    throw SalvorError.requestNotFound(
      id, state: state, now: requests.first { $0.history.contains(id) }?.id)
  }

  /// What was sent may have been taken in already.
  private func refuseUnderWay(_ ids: some Sequence<RequestID>) throws {
    guard let upload = upload else { return }
    let underWay = Set(outgoing.map(\.id))
    if let id = ids.filter(underWay.contains).min(by: { $0.counter < $1.counter }) {
      throw SalvorError.outcomeUnknown(id, upload.sequence)
    }
  }

  /// The requests that cannot stand on what remains, in order, those that depend on them among them. Nil: all stand.
  private func fallen(_ constraints: Constraints) throws -> [RequestID]? {
    var attempt = self
    let fallen = try attempt.remake(constraints)
    return fallen.isEmpty ? nil : fallen
  }

  /// The rows of what went, came back or fell, as far as they were or are shown.
  private func remadeRows(_ report: RemovalReport, _ before: ClientContent) -> [RemadeRow] {
    let gone = before.requests.filter { request in
      request.state != .displaced && request.state != .kept
        && (report.displaced.contains(request.id) || report.requests.contains { $0.id == request.id })
    }
    let returned = requests.filter { report.returned.contains($0.id) }
    let names = Set((gone + returned).flatMap(\.rows))
    return schema.tables.flatMap { table in
      names.filter { $0.table == table.name }.map(\.key).sorted(by: keyPrecedes)
        .map { RemadeRow(table: table.name, key: $0) }
    }
  }
}
