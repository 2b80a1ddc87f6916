import SalvorModel
import SalvorStorage

extension StoreComparison {
  /// What stores must agree on: what went, why, and what became of the rest.
  static func perform(_ step: KeepingStep, _ store: any ClientStore) async throws -> Outcome {
    let archive: Set<RequestState> = [.refused, .blocked, .displaced]
    do {
      switch step {
      case .deleteArchive(let place):
        return try await remove(.archive(try await pick(place, archive, store)), store)
      case .deleteEntry(let place):
        guard let id = try await pick(place, archive, store) else { break }
        return try await remove(.entry(id), store)
      case .withdraw(let place):
        guard let id = try await pick(place, [.queued, .sent, .unknownOutcome], store) else { break }
        return try await remove(.withdraw(id), store)
      case .deleteKept(let place):
        guard let id = try await pick(place, [.kept], store) else { break }
        return try await remove(.kept(id), store)
      case .deleteAllKept: return try await remove(.allKept, store)
      case .retry(let place):
        guard let id = try await pick(place, archive, store) else { break }
        return outcome(try await store.retry([id]))
      case .retryAll: return outcome(try await store.retry(nil))
      case .reapply(let place):
        guard let id = try await pick(place, [.kept], store) else { break }
        return Outcome(summary: try await store.reapply(id) == nil ? "nothing to send" : "reapplied")
      case .optimise: return Outcome(summary: "\(try await store.optimiseQueue()) less")
      }
      return Outcome(summary: "there is none")
    } catch let error as SalvorError {
      return Outcome(summary: error.code.rawValue, detail: error.message)
    }
  }

  /// Of equal ones the first is the first on all sides.
  private static func pick(
    _ place: Int, _ states: Set<RequestState>, _ store: any ClientStore
  ) async throws -> RequestID? {
    let requests = try await described(store, states).enumerated()
      .sorted { ($0.element.text, $0.offset) < ($1.element.text, $1.offset) }
    return requests.isEmpty ? nil : requests[place % requests.count].element.id
  }

  private static func remove(
    _ removal: RequestRemoval, _ store: any ClientStore
  ) async throws -> Outcome {
    let planned = try await store.plan(removal)
    let report = try await store.remove(removal)
    try expectEqual(report, planned, "the removal after its plan")
    let gone = report.requests.map { request in
      "\(request.cause.name) "
        + request.changes.map { "\($0.state) \($0.operation) \($0.table) \($0.key)" }.sorted().joined(separator: " + ")
    }
    return Outcome(
      summary: "gone \(gone), rows \(report.rows.map { "\($0.table) \($0.key)" }), returned \(report.returned.count), "
        + "displaced \(report.displaced.count)")
  }

  private static func outcome(_ report: RetryReport) -> Outcome {
    let outcomes = report.requests.map { request in
      switch request.outcome {
      case .queued: "queued"
      case .nothingLeft: "nothing left"
      case .stands: "stands"
      case .displaced: "displaced"
      }
    }
    return Outcome(summary: "sent again: \(outcomes)")
  }
}
