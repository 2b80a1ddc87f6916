import SalvorModel
import SalvorStorage

/// Offers (semantics 10): what becomes of them, column by column, as the table of `HealingServerStore` says.
extension UploadProcessing {
  private enum ColumnOutcome {
    case applied, superseded, conflict
  }

  mutating func apply(_ change: Change, _ offer: Offer, _ table: Table) -> Reason? {
    let version = offer.version
    let known = [version, version.original].first { state.has($0) }?.number
    let isKnown = known != nil
    if let known, !offer.written.isEmpty, change.operation != .update {
      return applyWritten(change, offer, made: known, table)
    }
    if isKnown || version.incarnation == incarnation || version.parting > state.head.number {
      return (.notLost, "This server has not lost commit \(version.number), or never had it.")
    }
    let present = tables[change.row]
    if let present, !isInside(present, change.row, table) {
      if change.operation == .delete {
        supersededOffers += 1
        return nil
      }
      if change.operation == .insert { return outOfScope(table) }
      return hasLeft(change) ? outOfScope(table) : rowDeleted(table)
    }
    if offer.isVersion { return keepVersion(change, over: present, table) }
    switch (change.operation, present) {
    case (.delete, let present?) where !offer.written.isEmpty:
      let isConflict = HealedColumn.all(of: table).contains { isUnseen($0, of: change.row, version) }
      return deleteWritten(change, over: present, table, isConflict: isConflict)
    case (.delete, let present): return delete(change, offer, over: present, table)
    case (.insert, nil): return insert(change, offer, table)
    case (.update, nil):
      guard hasLeft(change) || !scope.isLimited(table) else { return rowDeleted(table) }
      metAnother.insert(change.counter)
      if outcome(HealedColumn.existence, isSame: false, change, version) == .superseded {
        supersededOffers += 1
      } else {
        keep(change)
      }
      return nil
    case (_, let present?): return merge(change, offer, over: present, table)
    }
  }

  /// What the server had kept beside the row is kept again, also where the row is not there yet.
  private mutating func keepVersion(_ change: Change, over present: Row?, _ table: Table) -> Reason? {
    if let row = change.applied(to: present, of: table),
      let reason = refusalOfVersion(row, change, over: present, table)
    {
      return reason
    }
    metAnother.insert(change.counter)
    keep(change)
    return nil
  }

  /// What speaks against the row that a version would make when somebody settles for it. A parent that is not there does not.
  private mutating func refusalOfVersion(_ row: Row, _ change: Change, over present: Row?, _ table: Table) -> Reason? {
    let isHandedOver = present != nil && table.handover
    switch scope.finding(row, of: table, in: tables) {
    case .outside where !isHandedOver: return outOfScope(table)
    case .parentOutside where !isHandedOver: return missingParent(table)
    default: break
    }
    let before = tables
    defer { tables = before }
    tables[change.row] = row
    return leadRefusal(change.row, since: before)
  }

  private mutating func insert(_ change: Change, _ offer: Offer, _ table: Table) -> Reason? {
    var outcome = outcome(HealedColumn.existence, isSame: false, change, offer.version)
    if outcome == .applied { outcome = outcomeOfDeletes(change, offer.version, table) }
    let columns = Set(table.travelling.map(\.name))
    guard outcome == .applied else {
      guard offer.written.isEmpty else { return rowDeleted(table) }
      let before = tables
      if let reason = put(change.applied(to: nil, of: table), at: change.row, over: nil) { return reason }
      tables = before
      metAnother.insert(change.counter)
      if outcome == .superseded { supersededOffers += 1 } else { keep(change) }
      return nil
    }
    heal(
      change.row, Set(change.columns.map(\.name) + [HealedColumn.existence]).subtracting(offer.written), offer.version,
      entry: columns.union([HealedColumn.existence]).subtracting(offer.written))
    noteBeneath(change, offer.version, offer.written)
    healedOffers += 1
    return put(change.applied(to: nil, of: table), at: change.row, over: nil)
  }

  /// A delete is a version of all columns.
  private mutating func delete(
    _ change: Change, _ offer: Offer, over present: Row?, _ table: Table
  ) -> Reason? {
    let version = offer.version
    let all = Set(table.travelling.map(\.name) + [HealedColumn.existence])
    guard present != nil else {
      // From now on it is gone by this version: no older one makes it again. Unless it may be a row that he never saw.
      let isSeen = !scope.isLimited(table) || hasLeft(change) || change.made < state.trimmed
      if !offer.written.isEmpty {
        // A person's delete, not one that was lost: it is an ordinary write, and stands against every version.
        gone.insert(change.row)
        if !isSeen {
          healedEntries[change.row] = all
          claimedDeletes[change.row, default: []].append(
            ClaimedDelete(version: nil, at: .max, principal: scope.scope.principal))
        }
        return nil
      }
      if outcome(HealedColumn.existence, isSame: true, change, version) == .applied {
        if isSeen {
          heal(change.row, all, version, entry: [])
        } else {
          claimedDeletes[change.row, default: []].append(
            ClaimedDelete(version: version.original, at: .max, principal: scope.scope.principal))
        }
      }
      supersededOffers += 1
      return nil
    }
    let outcomes = Set(all.map { outcome($0, isSame: false, change, version) })
    let overtaken = marks(of: change.row, since: version.parting)
    if outcomes == [.applied] {
      heal(change.row, all, version, entry: all)
      healedOffers += 1
      if table.travelling.contains(where: { isOvertaken($0.name, overtaken, version) }) {
        noteOvertaken(change, becoming: nil, table)
      }
      return put(nil, at: change.row, over: present)
    }
    metAnother.insert(change.counter)
    if outcomes.contains(.conflict) { keep(change) } else { supersededOffers += 1 }
    return nil
  }

  private mutating func merge(_ change: Change, _ offer: Offer, over present: Row, _ table: Table) -> Reason? {
    let version = offer.version
    if change.operation == .insert, table.sameKey == .refuse,
      isWritten(HealedColumn.existence, of: change.row, since: version.parting)
    {
      guard offer.written.isEmpty else {
        return (.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
      }
      metAnother.insert(change.counter)
      keep(change)
      return nil
    }
    var row = present
    var applied: Set<String> = []
    var lost: [ChangedColumn] = []
    var overtakes = false
    let marks = marks(of: change.row, since: version.parting)
    if change.operation == .insert, outcome(HealedColumn.existence, isSame: true, change, version) == .applied {
      applied.insert(HealedColumn.existence)
    }
    for column in change.columns where !offer.written.contains(column.name) {
      let value = table.value(column.name, of: present)
      switch outcome(column.name, isSame: value == column.new, change, version) {
      case .applied:
        applied.insert(column.name)
        overtakes = overtakes || value != column.new && isOvertaken(column.name, marks, version)
        if let place = table.columnIndex(column.name) { row[place] = column.new }
      case .superseded: break
      // No lost commit is known to have changed it: it is offered for its rank.
      case .conflict where change.operation == .update && column.old == column.new: break
      case .conflict:
        lost.append(
          ChangedColumn(
            name: column.name, old: change.operation == .update ? column.old : value, new: column.new))
      }
    }
    let isWhole = change.columns.allSatisfy { table.value($0.name, of: row) == $0.new }
    if change.operation == .insert || !isWhole || isNewer(change) { metAnother.insert(change.counter) }
    if !lost.isEmpty {
      var rest = change
      rest.operation = .update
      rest.columns = lost
      keep(rest)
    }
    if overtakes { noteOvertaken(change, becoming: row, table) }
    if !applied.isEmpty { heal(change.row, applied, version, entry: applied) }
    if row != present {
      healedOffers += 1
      if let reason = put(row, at: change.row, over: present) { return reason }
    } else if lost.isEmpty && offer.written.isEmpty {
      supersededOffers += 1
    }
    guard !offer.written.isEmpty else { return nil }
    // The rest is a change of its own, which the device made on the version that it offers.
    var own = change
    own.columns = change.columns.filter { offer.written.contains($0.name) }
    noteBeneath(change, version, own.columns.map(\.name))
    let isInConflict = own.columns.contains { column in
      table.value(column.name, of: row) != column.new && isUnseen(column.name, of: change.row, version)
    }
    if isInConflict { return settleConflict(own, over: row, table) }
    return put(own.applied(to: row, of: table), at: change.row, over: row)
  }

  /// The server has the version after all: what the device wrote upon it is an ordinary change of these columns.
  private mutating func applyWritten(
    _ change: Change, _ offer: Offer, made known: Int64, _ table: Table
  ) -> Reason? {
    guard let present = tables[change.row] else { return change.operation == .delete ? nil : rowDeleted(table) }
    guard isInside(present, change.row, table) else { return outOfScope(table) }
    func isChanged(_ column: String) -> Bool {
      isWritten(column, of: change.row, since: known) || mark(column, of: change.row, since: known) != nil
    }
    if change.operation == .delete {
      let isConflict = HealedColumn.all(of: table).contains(where: isChanged)
      return deleteWritten(change, over: present, table, isConflict: isConflict)
    }
    if table.sameKey == .refuse, isChanged(HealedColumn.existence) {
      return (.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
    }
    var own = change
    own.columns = change.columns.filter { offer.written.contains($0.name) }
    metAnother.insert(change.counter)
    let isInConflict = own.columns.contains { column in
      table.value(column.name, of: present) != column.new && isChanged(column.name)
    }
    if isInConflict { return settleConflict(own, over: present, table) }
    return put(own.applied(to: present, of: table), at: change.row, over: present)
  }

  /// A person's delete, made on the version that it names.
  private mutating func deleteWritten(
    _ change: Change, over present: Row, _ table: Table, isConflict: Bool
  ) -> Reason? {
    guard isConflict else { return put(nil, at: change.row, over: present) }
    metAnother.insert(change.counter)
    return settleConflict(change, over: present, table)
  }

  // MARK: What stands

  private func isWritten(_ column: String, of row: RowName, since parting: Int64) -> Bool {
    state.ordinaryWrites(of: row, since: parting).contains { $0.columns.contains(column) }
  }

  /// What came by an offer after the device and the server parted.
  private func mark(_ column: String, of row: RowName, since parting: Int64) -> HealedColumn? {
    healed[row]?[column].flatMap { $0.at > 2 * parting ? $0 : nil }
  }

  private func marks(of row: RowName, since parting: Int64) -> [String: HealedColumn] {
    (healed[row] ?? [:]).filter { $0.value.at > 2 * parting }
  }

  /// What stands there came by an offer of an earlier history, and goes: nobody who made what is offered has seen it.
  private func isOvertaken(_ column: String, _ marks: [String: HealedColumn], _ version: LostVersion) -> Bool {
    guard let mark = marks[column] else { return false }
    return state.lostOrder.relation(mark.version, beside: version)
      == LostOrder.Relation(finding: .older, isApart: true)
  }

  private mutating func noteOvertaken(_ change: Change, becoming row: Row?, _ table: Table) {
    guard let deciding else { return }
    note(change, of: requests[deciding].id, by: table.conflicts, becoming: row)
  }

  private func outcome(_ column: String, isSame: Bool, _ change: Change, _ version: LostVersion) -> ColumnOutcome {
    let writes = state.ordinaryWrites(of: change.row, since: version.parting).filter { $0.columns.contains(column) }
    let stands: ColumnOutcome = isSame ? .superseded : .conflict
    guard let mark = mark(column, of: change.row, since: version.parting) else {
      return writes.isEmpty ? .applied : stands
    }
    let relation = state.lostOrder.relation(mark.version, beside: version)
    switch relation.finding {
    case .same: return writes.contains { mark.at != .max && 2 * $0.commit > mark.at } ? .superseded : stands
    case .newer:
      // Or in another history, where nobody had seen what is offered.
      return relation.isApart || writes.contains { 2 * $0.commit < mark.at } ? stands : .superseded
    case .older: return writes.isEmpty ? .applied : stands
    case .unranked: return stands
    }
  }

  /// The server's value is one that a device which has the version has not seen.
  private func isUnseen(_ column: String, of row: RowName, _ version: LostVersion) -> Bool {
    if isWritten(column, of: row, since: version.parting) { return true }
    guard let mark = mark(column, of: row, since: version.parting) else { return false }
    return switch state.lostOrder.finding(mark.version, beside: version) {
    case .same, .older: false
    case .newer, .unranked: true
    }
  }

  /// Others have offered the row's delete without being known to have seen it: it counts where they may write it as it is offered.
  private func outcomeOfDeletes(_ change: Change, _ version: LostVersion, _ table: Table) -> ColumnOutcome {
    var (isWritten, isNewer, isUnranked) = (false, false, false)
    let row = change.applied(to: nil, of: table) ?? []
    for delete in claimedDeletes[change.row] ?? [] where delete.at != .max && delete.at > 2 * version.parting {
      let theirs = ScopeCheck(schema: state.schema, scope: ReadScope(delete.principal))
      guard theirs.finding(row, of: table, in: tables) == .inside else { continue }
      guard let deleted = delete.version else {
        isWritten = true
        continue
      }
      let relation = state.lostOrder.relation(deleted, beside: version)
      switch relation.finding {
      case .same, .older: continue
      case .newer where relation.isApart: isUnranked = true
      case .newer: isNewer = true
      case .unranked: isUnranked = true
      }
    }
    return isWritten ? .conflict : isNewer ? .superseded : isUnranked ? .conflict : .applied
  }

  // MARK: What it leaves

  private mutating func heal(
    _ row: RowName, _ columns: Set<String>, _ version: LostVersion, entry: Set<String>
  ) {
    for column in columns { healed[row, default: [:]][column] = HealedColumn(version: version.original, at: .max) }
    healedEntries[row, default: []].formUnion(entry)
  }

  /// An ordinary change of a row: what an offer of the same upload has brought there is beneath it, and so is the version that it was made upon.
  mutating func noteWrite(_ change: Change) {
    guard change.offer == nil || change.madeUpon != nil, let table = state.schema.table(change.row.table) else {
      return
    }
    let all = Set(table.travelling.map(\.name) + [HealedColumn.existence])
    let columns = change.operation == .delete ? all : Set(change.columns.map(\.name))
    healedEntries[change.row]?.subtract(columns)
    for column in columns where healed[change.row]?[column]?.at == .max {
      healed[change.row]?[column]?.at = 2 * state.head.number + 1
    }
    if let version = lostVersion(beneath: change) { noteBeneath(change, version, change.columns.map(\.name)) }
  }

  /// The lost version that an ordinary update was made upon; nil: none was lost.
  private func lostVersion(beneath change: Change) -> LostVersion? {
    guard let version = change.madeUpon, ![version, version.original].contains(where: { state.has($0) }),
      version.incarnation != incarnation, version.parting <= state.head.number
    else { return nil }
    return version
  }

  /// What stands in the column is nothing that the device had not seen when it made the update.
  func hasSeen(_ change: Change, _ column: String) -> Bool {
    lostVersion(beneath: change).map { !isUnseen(column, of: change.row, $0) } ?? false
  }

  /// A person's write of these columns was made upon the version of an offer: that was there, and whoever offers it, or an older one, brings
  /// nothing (decision 236). Where something newer stood there, that is what was written over.
  private mutating func noteBeneath(_ change: Change, _ version: LostVersion, _ columns: [String]) {
    for column in columns {
      if let mark = mark(column, of: change.row, since: version.parting),
        state.lostOrder.finding(mark.version, beside: version) != .older
      {
        continue
      }
      healed[change.row, default: [:]][column] = HealedColumn(
        version: version.original, at: 2 * state.head.number + 1)
    }
  }

  /// What an offer would bring back is kept beside the row, once.
  private mutating func keep(_ change: Change) {
    guard let deciding, let version = conflictVersion(change, of: requests[deciding].id) else { return }
    let isKept = state.conflictVersions.contains { other in
      other.table == version.table && other.key == version.key && other.client.operation == version.client.operation
        && other.client.offer?.incarnation == version.client.offer?.incarnation
        && other.client.offer?.number == version.client.offer?.number
        && other.client.columns.map { [$0.name: $0.new] } == version.client.columns.map { [$0.name: $0.new] }
    }
    if isKept { supersededOffers += 1 } else { offered.append(version) }
  }

  /// An offer that cannot stand: others hold its unique values, or need the row that it would delete.
  func isKeptBeside(_ unit: [Int], _ broken: Set<Violation>) -> Bool {
    let request = requests[unit[0]]
    guard unit.count == 1, request.changes.allSatisfy({ $0.offer?.written.isEmpty == true }) else { return false }
    if request.changes.allSatisfy({ $0.operation == .delete }) { return true }
    return broken.allSatisfy { if case .unique = $0 { true } else { false } }
  }

  mutating func keepUnwritable(_ index: Int) {
    begin(index)
    for change in requests[index].changes {
      metAnother.insert(change.counter)
      keep(change)
    }
    end(index)
  }
}
