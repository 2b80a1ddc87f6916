import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Takes requests out of the queue and the archive for a person (semantics 8): they leave the log, and their rows are made
/// anew. In a transaction, with foreign keys and triggers off.
struct Removal {
  let context: StoreContext
  private let index: LogIndex
  private let dependence: DependenceLookup
  private let listing: RequestListing
  private let displacedBefore: [RequestRange]

  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) throws {
    self.context = context
    try RequestSorting(context).sort()
    index = try LogIndex(context)
    dependence = try DependenceLookup(context, index, withDisplaced: true)
    listing = try RequestListing(context, index, dependence)
    displacedBefore = try context.displacedRequests()
  }

  private struct Leaving {
    var range: RequestRange
    var isArchived: Bool
    var cause: RemovalCause
  }

  /// Requests that cannot stand without what goes.
  private struct Fallen: Error {
    var requests: [RequestRange]
  }

  func run(_ removal: RequestRemoval) throws -> RemovalReport {
    var leaving = try asked(removal)
    try context.refuseUnderWay(leaving.map(\.range))
    let held = try context.heldOffers(leaving.filter { !$0.isArchived }.map(\.range))
    var report = RemovalReport()
    report.requests = try leaving.map { try removed($0) }
    if case .archive = removal, let fallen = try takeOutWhole(leaving, &report) {
      let archived = leaving
      for range in fallen {
        let needs = Set(try dependence.needs(of: [range]).map(\.first))
        let need = archived.first { needs.contains($0.range.first) } ?? archived[0]
        let cause = RemovalCause.cannotStand(without: try context.requestID(first: need.range.first))
        leaving.append(Leaving(range: range, isArchived: false, cause: cause))
      }
      leaving.sort { $0.range.first < $1.range.first }
      try context.refuseUnderWay(fallen)
      report.requests = try leaving.map { try removed($0) }
    } else if case .archive = removal {
      return report
    }
    try takeOut(leaving, &report)
    try context.noteWithdrawn(held)
    return report
  }

  private func removed(_ leaving: Leaving) throws -> RemovedRequest {
    let changes = try listing.entries(of: leaving.range, isArchived: leaving.isArchived)
    return RemovedRequest(
      id: try context.requestID(first: leaving.range.first), changes: changes, cause: leaving.cause)
  }

  // MARK: What goes

  /// What is asked for, and what has to go with it, in order.
  private func asked(_ removal: RequestRemoval) throws -> [Leaving] {
    let archive: Set<RequestState> = [.refused, .blocked, .displaced]
    switch removal {
    case .archive(let id):
      let asked = try id.map { try context.known($0, in: archive).range.first }
      func leaving(_ range: RequestRange, _ isArchived: Bool) -> Leaving {
        Leaving(range: range, isArchived: isArchived, cause: range.first == asked ? .askedFor : .archived)
      }
      let failed = try context.failedRequests().map { leaving($0, false) }
      return (failed + displacedBefore.map { leaving($0, true) }).sorted { $0.range.first < $1.range.first }
    case .entry(let id): return try withDependents(id, try context.known(id, in: archive))
    case .withdraw(let id):
      return try withDependents(id, try context.known(id, in: [.queued, .sent, .unknownOutcome]))
    case .kept(let id) where try context.isHeldOffer(id):
      return try asked(.withdraw(id))
    case .kept(let id):
      return [Leaving(range: try context.known(id, in: [.kept]).range, isArchived: true, cause: .askedFor)]
    case .allKept:
      return try context.requests(in: .kept).map { Leaving(range: $0, isArchived: true, cause: .askedFor) }
    }
  }

  private func withDependents(_ id: RequestID, _ root: FoundRequest) throws -> [Leaving] {
    let displaced = Set(displacedBefore.map(\.first))
    return try dependence.dependents(of: [root.range]).map { range in
      Leaving(
        range: range, isArchived: displaced.contains(range.first),
        cause: range.first == root.range.first ? .askedFor : .dependsOn(id))
    }
  }

  /// Nil: it is done. Otherwise nothing is, and these cannot stand on what would remain, those that depend on them among
  /// them.
  private func takeOutWhole(_ leaving: [Leaving], _ report: inout RemovalReport) throws -> [RequestRange]? {
    guard !leaving.isEmpty else { return nil }
    do {
      try connection.savepoint("salvor_removal") {
        let fallen = try takeOut(leaving, &report)
        if !fallen.isEmpty { throw Fallen(requests: fallen) }
      }
      return nil
    } catch let fallen as Fallen {
      return fallen.requests
    }
  }

  // MARK: Its going

  /// Answers the requests displaced by it.
  @discardableResult
  private func takeOut(_ leaving: [Leaving], _ report: inout RemovalReport) throws -> [RequestRange] {
    var move = Move()
    move.removed = leaving.filter { !$0.isArchived }.map(\.range)
    move.removedArchived = leaving.filter(\.isArchived).map(\.range)
    var rows = try move.removed.flatMap { try context.rows(changedBy: $0) }.map {
      RemadeRow(table: $0.table.name, key: $0.key)
    }
    let settlement = try context.settle(move)
    for range in settlement.displaced {
      rows += try context.archived(where: "first = ?1", [.integer(range.first)])
        .map { RemadeRow(table: $0.table.name, key: $0.key) }
    }
    rows += try settlement.returned.flatMap { try context.rows(changedBy: $0) }.map {
      RemadeRow(table: $0.table.name, key: $0.key)
    }
    report.returned = try settlement.returned.map { try context.requestID(first: $0.first) }
    report.displaced = try settlement.displaced.map { try context.requestID(first: $0.first) }
    report.rows = inOrder(Set(rows))
    return settlement.displaced
  }

  private func inOrder(_ rows: Set<RemadeRow>) -> [RemadeRow] {
    context.schema.tables.flatMap { table in
      rows.filter { $0.table == table.name }.sorted { keyPrecedes($0.key, $1.key) }
    }
  }
}
