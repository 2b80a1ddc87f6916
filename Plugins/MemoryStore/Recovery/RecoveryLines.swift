import SalvorModel
import SalvorStorage

/// What a recovery says of itself, from what it did.
extension ClientRecovery {
  /// First the requests, in order; then the rows.
  var items: [RecoveryItem] {
    let versions = lostVersions.map { version in
      var item = item(
        version.change, version.isOffered ? .offered : .lost, version.request, "version-lost-on-server")
      if version.change.operation == .delete { item.before = [] }
      return item
    }
    return otherItems + lostDropped.map { item($0.changes[0], .lost, nil, "lost-on-server") } + versions
  }

  private var otherItems: [RecoveryItem] {
    var items: [RecoveryItem] = []
    let idle = before.requests.filter { requests[$0.id].map { $0.fate == .merged && $0.reason == "row-gone" } ?? false }
    for request in content.requests + idle {
      guard let (fate, reason) = fate(of: request) else { continue }
      items += request.changes.map { item($0, fate, request.id, reason) }
    }
    items.sort { ($0.request?.counter ?? 0) < ($1.request?.counter ?? 0) }
    items += lostRows.compactMap { name in lost[name].map { item($0, .lost, nil, "lost-on-server") } }
    for table in content.schema.tables {
      for key in content.aside.sortedKeys(of: table.name) {
        let name = RowName(table: table.name, key: key)
        guard before.aside[name] == nil, let row = content.aside[name] else { continue }
        items.append(
          RecoveryItem(
            fate: .aside, request: nil, table: table.name, key: key, operation: nil, before: [],
            after: zip(table.columns, row).map { NamedValue($0.name, $1) }, reason: "parent-gone"))
      }
    }
    return items + givenUp
  }

  /// What the recovery did not keep of client-only tables: all rows where it rebuilt everything, else those that went with their
  /// parents.
  private var givenUp: [RecoveryItem] {
    let client = before.schema.tables.filter { $0.maintained == .client }
    let rebuildsAll = order.rebuild == .everything
    func item(_ table: Table, _ key: Key) -> RecoveryItem {
      RecoveryItem(
        fate: .givenUp, request: nil, table: table.name, key: key, operation: nil, before: [], after: [],
        reason: rebuildsAll ? "client-only" : "parent-gone")
    }
    guard rebuildsAll else {
      return client.flatMap { table in
        before.view.rows(of: table.name).keys.sorted(by: keyPrecedes).filter { key in
          let name = RowName(table: table.name, key: key)
          return content.view[name] == nil && content.aside[name] == nil
        }.map { item(table, $0) }
      }
    }
    return client.flatMap { table in
      before.view.rows(of: table.name).keys.sorted(by: keyPrecedes).map { item(table, $0) }
    } + client.flatMap { table in before.aside.sortedKeys(of: table.name).map { item(table, $0) } }
      + before.settings.givenUp
  }

  private func item(
    _ change: Change, _ fate: RecoveryItem.Fate, _ request: RequestID?, _ reason: String?
  ) -> RecoveryItem {
    RecoveryItem(
      fate: fate, request: request, table: change.row.table, key: change.row.key, operation: change.operation,
      before: change.operation == .insert ? [] : change.columns.map { NamedValue($0.name, $0.old) },
      after: change.operation == .delete ? [] : change.columns.map { NamedValue($0.name, $0.new) }, reason: reason)
  }

  /// Nil: the recovery has nothing to say of it.
  private func fate(of request: Request) -> (RecoveryItem.Fate, String?)? {
    if remadeParents.contains(request.id) { return (.remade, "lost-on-server") }
    if let known = requests[request.id] { return known }
    guard request.state == .queued, let old = before.requests.first(where: { $0.id == request.id }) else { return nil }
    let isOnAnotherBase = request.rows.contains { fates[$0] != nil }
    return (old.state == .displaced || isOnAnotherBase ? .merged : .kept, nil)
  }

  var counts: RecoveryCounts {
    var counts = RecoveryCounts()
    let fates = Dictionary(otherItems.compactMap { item in item.request.map { ($0, item.fate) } }) { first, _ in first }
    for (id, fate) in fates where !remadeParents.contains(id) {
      switch fate {
      case .kept: counts.kept += 1
      case .merged, .remade: counts.merged += 1
      case .discarded: counts.discarded += 1
      case .displaced: counts.displaced += 1
      case .offered: counts.lost += 1
      case .lost, .aside, .givenUp: break
      }
    }
    for name in content.bases.differences(from: before.bases) {
      if content.bases[name] == nil { counts.deletes += 1 } else { counts.upserts += 1 }
    }
    // Rows that the server has no more, and that stand here by an offer.
    let stayed = content.requests.filter { requests[$0.id]?.fate == .offered && $0.changes[0].operation == .insert }
    // And those that a change makes again.
    let remade = remade.values.count { requests[$0]?.fate != .displaced }
    counts.deletes -= Int64(stayed.count + remade)
    // The server has lost it, and does not get it now.
    let displaced = Int64(offered.count { requests[$0]?.fate == .displaced })
    counts.lost += Int64(lost.count + lostVersions.count + lostDropped.count + remade) + displaced
    counts.offered = Int64(offered.count + lostVersions.count { $0.isOffered }) - displaced
    counts.givenUp = Int64(givenUp.count)
    counts.unoffered = unoffered
    for version in lostVersions where !version.isOffered {
      counts.unoffered[whyWithheld(version.change.row), default: 0] += 1
    }
    if !lostDropped.isEmpty { counts.unoffered[.otherColumns, default: 0] += Int64(lostDropped.count) }
    return counts
  }

  private func whyWithheld(_ name: RowName) -> Unoffered {
    if before.serverID != order.server { return .otherServer }
    return !isWritable(name) ? .serverMaintained : order.heal == .off ? .off : .tableOff
  }

  /// What the server had acknowledged in columns that its schema has dropped since, and has lost.
  mutating func archiveDroppedValues() {
    guard order.absence == .lost else { return }
    let shared = before.serverID == order.server ? order.shared ?? 0 : -1
    lostDropped = before.droppedValues.filter { $0.version > shared }.map(\.entry)
    content.droppedValues.removeAll { $0.version > shared }
    for entry in lostDropped { content.keep(entry) }
  }

  /// Conflict versions that are lost and withheld are shown in the archive.
  mutating func archiveWithheldVersions() {
    for version in lostVersions where !version.isOffered {
      let request = Request(
        stamp: version.request.stamp, changes: [content.asItIsShown(version.change)], tag: version.tag, state: .kept,
        refusal: Request.Refused(
          reason: "version-lost-on-server", status: nil,
          message: "The server does not have this change any more. Reapply it, or delete the entry."))
      content.keep(request)
    }
  }
}
