import SalvorModel
import SalvorStorage

/// Losses that were not offered as the device was set up, and may be now (decision 162).
extension ClientContent {
  private func mode(of table: String, _ heal: HealMode) -> HealMode {
    heal.stricter(or: schema.table(table)?.heal ?? .off)
  }

  private func mayBeOffered(_ request: Request, _ heal: HealMode) -> Bool {
    guard request.state == .kept, let withheld = request.withheld,
      schema.table(request.changes[0].row.table)?.maintained == .dual
    else { return false }
    switch mode(of: request.changes[0].row.table, heal) {
    case .all: return true
    case .own, .review: return withheld.isOwn
    case .off: return false
    }
  }

  private func releasedPlaces(_ version: KeptVersion, _ heal: HealMode) -> Set<Int> {
    version.withheld.filter { place in
      let change = version.request.changes[place]
      // A person has reapplied or deleted its entry.
      guard requests.contains(where: { $0.state == .kept && $0.firstCounter == change.counter }) else { return false }
      return mode(of: change.row.table, heal) != .off
    }
  }

  /// True: there is something that the next session offers. Once for each change of the settings.
  mutating func wantsWithheld(_ heal: HealMode) -> Bool {
    guard requests.contains(where: { $0.withheld != nil }) || keptVersions.contains(where: { !$0.withheld.isEmpty })
    else { return false }
    let settings = [heal] + schema.synchronized.map(\.heal)
    guard healSeen != settings else { return false }
    let isAny =
      requests.contains { mayBeOffered($0, heal) } || keptVersions.contains { !releasedPlaces($0, heal).isEmpty }
    if isAny { healWanted = heal } else { healSeen = settings }
    return isAny
  }

  /// What requests make of a row stays theirs: what is not offered for that stays in the archive.
  mutating func offerWithheld() {
    guard let heal = healWanted else { return }
    healWanted = nil
    healSeen = [heal] + schema.synchronized.map(\.heal)
    for index in keptVersions.indices {
      let released = releasedPlaces(keptVersions[index], heal)
      keptVersions[index].withheld.subtract(released)
      let counters = Set(released.map { keptVersions[index].request.changes[$0].counter })
      requests.removeAll { $0.state == .kept && counters.contains($0.firstCounter) }
    }
    // As a recovery offers them: deletes last, and rows before those that they reference.
    let order = schema.deleteOrder
    func place(_ entry: Request) -> (Int, Int64) {
      let change = entry.changes.first { $0.operation == .delete }
      return (change.map { 1 + (order[$0.row.table] ?? 0) } ?? 0, entry.firstCounter)
    }
    for entry in requests.filter({ mayBeOffered($0, heal) }).sorted(by: { place($0) < place($1) }) {
      guard let withheld = entry.withheld else { continue }
      let name = entry.changes[0].row
      for index in olderOffers(of: name, than: withheld.version, upon: bases[name]) {
        if requests[index].isHeldByServer { withdrawn.append(requests[index].id) }
        replaceOffer(index)
      }
      let others = outstanding.flatMap(\.changes).filter { $0.row == name }
      if others.contains(where: { $0.offer != nil && $0.madeUpon == nil }) {
        // A version that was lost later is offered already.
        for index in requests.indices where requests[index].id == entry.id { requests[index].withheld = nil }
        continue
      }
      guard var change = offer(of: name, withheld.was, instead: entry.changes[0], beside: others) else { continue }
      counter += 1
      change.counter = counter
      let isForReview = withheld.isForReview || mode(of: name.table, heal) == .review
      change.offer = Offer(withheld.version, isForReview: isForReview)
      requests.removeAll { $0.id == entry.id }
      requests.append(Request(stamp: stamp, changes: [change]))
    }
  }

  /// What makes the row what it was; nil: requests have made something else of it.
  private func offer(
    of name: RowName, _ was: [NamedValue]?, instead loss: Change, beside others: [Change]
  ) -> Change? {
    guard let table = schema.table(name.table) else { return nil }
    let base = bases[name]
    var change = Change(
      counter: 0, made: groups[table.group]?.cursor?.number ?? 0, row: name, operation: .delete, columns: [])
    if let was {
      change.operation = base == nil ? .insert : .update
      change.columns = table.travelling.filter { base == nil || !table.primaryKey.contains($0.name) }.map { column in
        let known = was.first { $0.name.folded == column.name.folded }?.value
        let here = base.map { table.value(column.name, of: $0) }
        return ChangedColumn(
          name: column.name, old: here ?? .null, new: known ?? here ?? column.defaultValue ?? .null)
      }
      if base != nil, loss.operation == .update {
        // Somebody has written it since, and no lost commit is known to have changed it.
        change.columns.removeAll { $0.old != $0.new && loss.column($0.name) == nil }
      }
      if base != nil, change.columns.isEmpty { return nil }
    } else if let base {
      change.columns = table.travelling.map {
        ChangedColumn(name: $0.name, old: table.value($0.name, of: base), new: .null)
      }
    }
    guard !others.isEmpty else { return change }
    guard change.operation == .update, others.allSatisfy({ $0.operation == .update }) else { return nil }
    change.columns.removeAll { column in others.contains { $0.column(column.name) != nil } }
    return change.columns.isEmpty ? nil : change
  }
}
