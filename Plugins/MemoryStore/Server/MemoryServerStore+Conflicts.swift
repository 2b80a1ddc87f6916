import SalvorModel
import SalvorStorage

extension ServerState {
  /// Keeps conflict versions, request by request, and gives them their IDs.
  mutating func keep(_ requests: [[ConflictVersion]]) {
    for versions in requests {
      let first = lastConflict + 1
      for var version in versions {
        lastConflict += 1
        version.id = lastConflict
        version.first = first
        conflictVersions.append(version)
      }
    }
  }

  /// All versions of the request that the version belongs to.
  func conflictVersions(with id: Int64) -> [ConflictVersion] {
    guard let asked = conflictVersions.first(where: { $0.id == id }) else { return [] }
    return conflictVersions.filter { $0.first == asked.first }
  }
}

extension MemoryServerStore {
  /// Those with an ID greater than `id`; nil for `state`: in whatever state.
  public func conflicts(after id: Int64, limit: Int, state: ConflictState?) throws -> [ConflictVersion] {
    let found = try read().conflictVersions.filter { $0.id > id && (state == nil || $0.state == state) }
    return Array(found.prefix(max(0, limit)))
  }

  /// The versions of all rows of the same conflict; empty where there is none of this ID. `present` is nil where the
  /// row is gone.
  public func conflict(_ id: Int64) throws -> [ConflictRow] {
    let state = try read()
    return state.conflictVersions(with: id).map { version in
      guard let table = state.schema.table(version.table),
        let row = state.tables[RowName(table: version.table, key: version.key)]
      else { return ConflictRow(version: version, present: nil) }
      return ConflictRow(
        version: version, present: zip(table.travelling, table.travelling(row)).map { NamedValue($0.name, $1) })
    }
  }

  /// Resolves every row of the conflict, in one transaction. Throws where there is no such conflict, a policy or a
  /// person has settled it already, or the client's values would break a constraint.
  public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) throws -> [ConflictVersion] {
    var state = try read()
    let versions = state.conflictVersions(with: id)
    guard let asked = versions.first(where: { $0.id == id }) else { throw SalvorError.noConflict(id) }
    if let policy = asked.settlement?.policy { throw SalvorError.conflictSettled(asked, by: policy) }
    if let resolution = asked.resolution { throw SalvorError.conflictResolved(asked, resolution) }
    if keep == .client {
      let before = state.tables
      for version in versions { try Self.apply(version, to: &state) }
      let constraints = try Constraints(state.schema, softForeignKeys: true)
      let broken = constraints.violations(in: state.tables).subtracting(constraints.violations(in: before))
      if let violation = broken.first {
        throw SalvorError.conflictUnresolvable(asked, .constraint, "\(violation.table): \(violation.summary).")
      }
      state.unnumbered.formUnion(state.tables.differences(from: before))
    }
    let resolution = ConflictVersion.Resolution(keep: keep, time: clock.now(), by: by)
    for index in state.conflictVersions.indices where state.conflictVersions[index].first == asked.first {
      state.conflictVersions[index].resolution = resolution
    }
    write(state)
    return state.conflictVersions(with: id)
  }

  private static func apply(_ version: ConflictVersion, to state: inout ServerState) throws {
    let name = RowName(table: version.table, key: version.key)
    guard let table = state.schema.table(version.table) else {
      throw SalvorError.conflictUnresolvable(version, gone: nil)
    }
    let present = state.tables[name]
    switch version.client.operation {
    case .delete:
      state.tables[name] = nil
      return
    case .update where present == nil: throw SalvorError.conflictUnresolvable(deleted: version)
    case .insert, .update: break
    }
    let isMerged = version.client.operation == .insert && present != nil
    var row = present ?? table.columns.map { $0.defaultValue ?? .null }
    for column in version.client.columns {
      guard let place = table.columnIndex(column.name) else {
        throw SalvorError.conflictUnresolvable(version, gone: column.name)
      }
      if isMerged, !table.columns[place].isSet(column.new) { continue }
      row[place] = column.new
    }
    state.tables[name] = row
  }
}
