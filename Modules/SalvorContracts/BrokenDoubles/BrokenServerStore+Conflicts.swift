import SalvorModel
import SalvorStorage

/// The faults of conflict versions.
extension BrokenServerStore {
  /// `forgetsConflicts`: none. `forgetsPages` ignores `id`, `forgetsStates` ignores `state`. Others blank out fields.
  public func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion] {
    guard fault != .forgetsConflicts else { return [] }
    return try await base.conflicts(
      after: fault == .forgetsPages ? 0 : id, limit: limit, state: fault == .forgetsStates ? nil : state
    ).filter { fault != .forgetsSettledConflicts || $0.settlement == nil }.map(falsified)
  }

  private func falsified(_ version: ConflictVersion) -> ConflictVersion {
    var version = version
    switch fault {
    case .forgetsTheServersSide: version.server.row = nil
    case .forgetsWhoMadeIt: version.server = ConflictVersion.ServerSide(row: version.server.row)
    case .forgetsWhoResolved: version.resolution?.by = ""
    default: break
    }
    return version
  }

  /// `showsTheRowOfThen`: the row as it was when the version was kept, in the place of the row as it is now.
  public func conflict(_ id: Int64) async throws -> [ConflictRow] {
    try await base.conflict(id).map { row in
      var row = row
      if fault == .showsTheRowOfThen { row.present = row.version.server.row }
      row.version = falsified(row.version)
      return row
    }
  }

  /// `resolvesNothing`: keeps the server's side. `resolvesForTheClientAlways`: the client's. `resolvesTwice`: no error.
  public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
    var keep = keep
    if fault == .resolvesNothing { keep = .server }
    if fault == .resolvesForTheClientAlways { keep = .client }
    do {
      return try await base.resolveConflict(id, keep: keep, by: by).map(falsified)
    } catch let error as SalvorError where error.code == .conflictResolved && fault == .resolvesTwice {
      return []
    }
  }
}
