import SalvorModel
import SalvorStorage
import SalvorWire

/// One recovery of a device's database (semantics 9), decided row by row and request by request on a copy.
struct ClientRecovery {
  let order: RecoveryOrder
  let before: ClientContent
  var content: ClientContent
  /// What became of each row that had a base, or has one now.
  private(set) var fates: [RowName: RowFate] = [:]
  /// Rows that the server acknowledged and lost, and that no request makes again: before and after as in the archive.
  var lost: [RowName: Change] = [:]
  /// What became of each request that was not kept already.
  var requests: [RequestID: (fate: RecoveryItem.Fate, reason: String?)] = [:]
  /// Requests that make a lost row again for the sake of its children.
  var remadeParents: [RequestID] = []
  /// The requests that make lost rows again: that of each row.
  var remade: [RowName: RequestID] = [:]
  /// Tables of which a restore took back a mass of deletes.
  var mass: Set<String> = []
  /// Why rows in the archive are not offered.
  private(set) var unoffered: [Unoffered: Int64] = [:]
  /// Requests that depend on one in error that went to the archive.
  var setAside: [RequestID] = []
  /// Requests with an offer.
  var offered: Set<RequestID> = []
  /// Rows of which a newer version is offered in the place of one that waited: this device wrote them by lost commits.
  var replaced: Set<RowName> = []
  /// Conflict versions that the server has lost, each as what becomes of it.
  private(set) var lostVersions: [(change: Change, request: RequestID, tag: String?, isOffered: Bool)] = []

  /// Values of columns that are dropped, which the server has lost.
  var lostDropped: [Request] = []

  enum RowFate {
    case same, changed, deleted, left, lost
  }

  /// - Parameter stamp: of the entries and requests that the recovery makes, and of what is captured from here on.
  init(_ order: RecoveryOrder, on content: ClientContent, stamp: RequestStamp) {
    var content = content
    _ = content.splitOpenGroup()
    let takesBack = order.givesUpRequests && order.takesOffers && content.serverID == order.server
    self.order = takesBack && content.takeBackOffers(for: order) ? order.withLostVersions : order
    before = content
    content.stamp = stamp
    self.content = content
  }

  mutating func run(_ payloads: [[UInt8]]) throws {
    content.takeBackUpload(previous: order.previous)
    if order.rebuild != .nothing { makeAnew() }
    let constraints = try Constraints(content.schema, softForeignKeys: false)
    var arrivals = try content.arrivals(in: payloads)
    leaveOutUnasked(&arrivals)
    // Whether the version that is lost may be given back is the server's to say.
    for name in arrivals.hidden where isLost(name) { arrivals.lose(name) }
    let keepsRequests = order.rebuild == .nothing && order.discarded == nil
    _ = content.takeBases(arrivals, keepsDropped: keepsRequests, leftToo: true)
    try content.dropStaleChildren(constraints, downloaded: Set(order.groups.map(\.name)), isRecovery: true)
    rememberLost()
    if keepsRequests { replaceOlderOffers(arrivals, downloaded: Set(order.groups.map(\.name))) }
    judgeRows(arrivals)
    cut(arrivals)
    if let discarded = order.discarded { discardRequests(discarded.reason, discarded.message) }
    if order.rebuild == .nothing {
      mergeRequests()
    } else {
      offerLostRows()
      remakeLostParents()
    }
    _ = content.leaveOut(constraints, of: arrivals)
    for id in try content.remake(constraints, afterDownload: true) { requests[id] = (.displaced, "displaced") }
    for request in content.requests where request.state == .displaced && setAside.contains(request.id) {
      requests[request.id] = (.displaced, "displaced")
    }
    archiveLost()
    archiveDroppedValues()
    archiveWithheldVersions()
    try guardAgainstMassDeletion()
    content.remoteID = order.remoteID ?? content.remoteID
    if content.serverID != order.server { content.incarnations = [] }
    content.serverID = order.server
    content.remember(order.incarnations)
    content.recoveryRequired = nil
    content.recoveryMessage = nil
    content.staged = []
    content.blobs = [:]
    content.stagedDownload = nil
  }

  /// The tables, made anew: they are empty, and what is staged is all that they get.
  private mutating func makeAnew() {
    if let config = order.config {
      content.schema = config.schema(own: content.own, added: content.config.added(in: content.schema))
      content.config = config
      content.isConfigDelivered = true
    }
    content.bases = MemoryTables()
    content.view = MemoryTables()
    content.leaving = [:]
    content.groups = [:]
    if order.rebuild == .everything {
      content.aside = MemoryTables()
      content.settings = DeviceSettings()
    } else {
      for table in before.schema.tables where table.maintained == .client {
        for (key, row) in before.view.rows(of: table.name) {
          content.view[RowName(table: table.name, key: key)] = row
        }
      }
    }
  }

  // MARK: Rows

  /// The change by the newest commit; of one commit's changes the last.
  func newestChange(of name: RowName) -> BaseChange? {
    before.baseChanges.reduce(nil) { newest, change in
      change.row == name && change.version >= newest?.version ?? 0 ? change : newest
    }
  }

  /// The commit that last changed a row's base here, as far as this device knows.
  private func version(of name: RowName) -> Int64 {
    newestChange(of: name)?.version ?? before.wholeSince[before.schema.table(name.table)?.group ?? ""] ?? 0
  }

  /// Another server has lost nothing of this.
  var heals: Bool { order.heal != .off && mayBeOffered }

  private var mayBeOffered: Bool { order.takesOffers && before.serverID == order.server }

  /// The stricter of what the device and the table say.
  func mode(of table: String) -> HealMode { order.heal.stricter(or: content.schema.table(table)?.heal ?? .off) }

  /// The version of a lost row; nil: it is not known which, or nothing is offered.
  func lostVersion(of name: RowName) -> LostVersion? { offers(name.table) ? neededVersion(of: name) : nil }

  /// `heal` has something of the table offered that no request needs.
  func offers(_ table: String) -> Bool { heals && mode(of: table) != .off }

  /// The version of a lost row that a request makes again, whatever `heal` says: what was acknowledged has its rank, or it would stand over
  /// a newer version of another device's (decision 230).
  func neededVersion(of name: RowName) -> LostVersion? {
    let number = version(of: name)
    guard mayBeOffered, isLost(name), number > order.shared ?? 0 else { return nil }
    return lostVersion(of: name, number, origin(of: name))
  }

  /// That of a commit that is lost; nil: of an incarnation that the device does not know.
  private func lostVersion(of name: RowName, _ number: Int64, _ origin: LostVersion.Origin?) -> LostVersion? {
    if var offered = newestChange(of: name)?.lost {
      offered.parting = min(offered.parting, order.shared ?? 0)
      return offered
    }
    return before.incarnations.last { $0.firstCommit > 0 && $0.firstCommit <= number }.map {
      LostVersion(incarnation: $0.id, number: number, parting: order.shared ?? 0, origin: origin)
    }
  }

  /// The lost commit that made the row what it is, where every change by its newest commit was an accepted offer.
  private func origin(of name: RowName) -> LostVersion.Origin? {
    guard let newest = newestChange(of: name) else { return nil }
    let changes = before.baseChanges.filter { $0.row == name && $0.version == newest.version }
    return changes.allSatisfy { $0.origin != nil } ? newest.origin : nil
  }

  /// Those whose commits are lost now, after the ones that were lost before.
  private mutating func rememberLost() {
    for index in content.requests.indices { content.requests[index].isWaiting = false }
    content.healAsked = nil
    content.healDue = false
    (content.healWanted, content.healSeen) = (nil, nil)
    for index in content.requests.indices {
      guard var withheld = content.requests[index].withheld else { continue }
      if order.shared != nil || order.absence == .lost {
        withheld.version.parting = min(withheld.version.parting, order.shared ?? 0)
      }
      content.requests[index].withheld = withheld
    }
    if before.serverID != order.server, order.absence == .lost { giveUpVersions() }
    guard mayBeOffered, order.absence == .lost else { return }
    let known = before.incarnations.filter { $0.firstCommit > 0 }
    let last = content.lostIncarnations.filter { id in !content.lostOrder.contains { $0.earlier == id } }
    var previous: IncarnationID?
    func note(_ earlier: IncarnationID, before later: IncarnationID, apartFrom: Int64) {
      guard earlier != later else { return }
      LostNeighbours(earlier, before: later, apartFrom: apartFrom).add(to: &content.lostOrder)
    }
    for (place, incarnation) in known.enumerated() {
      let end = place + 1 < known.count ? known[place + 1].firstCommit : .max
      guard end > (order.shared ?? 0) + 1 else { continue }
      if !content.lostIncarnations.contains(incarnation.id) { content.lostIncarnations.append(incarnation.id) }
      if let previous { note(previous, before: incarnation.id, apartFrom: incarnation.firstCommit) }
      if before.met.contains(incarnation.id) {
        for earlier in last {
          let next = known.firstIndex { $0.id == earlier }.map { $0 + 1 } ?? known.count
          let end = next < known.count ? known[next].firstCommit : LostNeighbours.allApart
          note(earlier, before: incarnation.id, apartFrom: end)
        }
      }
      previous = incarnation.id
    }
    content.met = []
    loseVersions(known)
  }

  /// What the server of before kept beside rows is nowhere on this one, and is not offered to it.
  private mutating func giveUpVersions() {
    for kept in content.keptVersions {
      for (place, change) in kept.request.changes.enumerated() where !kept.withheld.contains(place) {
        lostVersions.append((change, kept.request.id, kept.request.tag, false))
      }
    }
    content.keptVersions = []
  }

  /// What the server kept beside rows by lost commits goes with the next upload.
  private mutating func loseVersions(_ known: [Incarnation]) {
    let shared = order.shared ?? 0
    for index in content.keptVersions.indices {
      let kept = content.keptVersions[index]
      var lost: [LostVersion?] = kept.lost.isEmpty ? kept.versions.map { _ in nil } : kept.lost
      var isNew: Set<Int> = []
      for place in kept.versions.indices {
        if var known = lost[place] {
          known.parting = min(known.parting, shared)
          lost[place] = known
        } else if kept.versions[place] > shared,
          let incarnation = known.last(where: { $0.firstCommit <= kept.versions[place] }) ?? known.first
        {
          lost[place] = LostVersion(incarnation: incarnation.id, number: kept.versions[place], parting: shared)
          content.keptVersions[index].wait = nil
          isNew.insert(place)
          let name = kept.request.changes[place].row
          if !heals || mode(of: name.table) == .off || !isWritable(name) {
            content.keptVersions[index].withheld.insert(place)
          }
        }
      }
      content.keptVersions[index].lost = lost
      let withheld = content.keptVersions[index].withheld
      for place in lost.indices where lost[place] != nil && (!withheld.contains(place) || isNew.contains(place)) {
        lostVersions.append(
          (kept.request.changes[place], kept.request.id, kept.request.tag, !withheld.contains(place)))
      }
    }
  }

  /// Lost is not deleted (semantics 6): what a commit made that the server has, it has not lost.
  private func isLost(_ name: RowName) -> Bool {
    order.absence == .lost && (order.shared.map { version(of: name) > $0 } ?? true)
  }

  private mutating func judgeRows(_ arrivals: Arrivals) {
    let downloaded = Set(order.groups.map(\.name))
    for name in content.bases.differences(from: before.bases) {
      guard let table = before.schema.table(name.table) ?? content.schema.table(name.table) else { continue }
      let old = before.bases[name].map { named($0, before.schema.table(name.table)) }
      let new = content.bases[name].map { named($0, content.schema.table(name.table)) }
      switch (old, new) {
      case (nil, nil): continue
      case (let old?, nil):
        switch arrivals.departures[name] {
        case .deleted:
          // It was made by a commit after that, which the server has lost.
          let isOlder = order.shared.map { shared in
            arrivals.versions.last { $0.row == name }.map { $0.version <= shared } ?? false
          }
          fates[name] = isOlder == true && isLost(name) ? .lost : .deleted
          if fates[name] == .lost {
            noteLoss(of: name, old)
          } else if order.rebuild == .nothing, isOfferable(name) || (isLost(name) && isOwnLoss(name)) {
            // Its values become a conflict version there, or are this device's to keep: nobody who deleted it need have seen them.
            lost[name] = change(name, .insert, old.map { ($0.name, .null, $0.value) })
          }
        // What a lost commit brought into the subscriptions is lost with it, and may be given back (decision 232).
        case .dropped where isLost(name) && !outstanding.contains { content.requests[$0].rows.contains(name) }:
          fates[name] = .lost
          noteLoss(of: name, old)
        case .left, .dropped:
          fates[name] = .left
          // What this device wrote is nowhere else, and it may not offer it any more.
          if order.rebuild == .nothing, isLost(name), isOwnLoss(name),
            !content.requests.contains(where: { $0.state != .displaced && $0.state != .kept && $0.rows.contains(name) })
          {
            lost[name] = change(name, .insert, old.map { ($0.name, .null, $0.value) })
          }
        case .lost where isUnasked(name): noteLoss(of: name, old)
        case .lost, nil:
          let isStale = order.rebuild == .nothing && !downloaded.contains(table.group)
          fates[name] = isStale ? .left : isLost(name) ? .lost : .deleted
          if fates[name] == .lost { noteLoss(of: name, old) }
        }
      case (nil, let new?):
        fates[name] = .changed
        if newestChange(of: name)?.isDeleted == true && isLost(name) {
          lost[name] = change(name, .delete, new.map { ($0.name, $0.value, .null) })
        }
      case (let old?, let new?):
        let columns = old.compactMap { mine in
          new.first { $0.name == mine.name && $0.value != mine.value }.map { (mine.name, $0.value, mine.value) }
        }
        if columns.isEmpty { continue }
        fates[name] = .changed
        if isLost(name) { lost[name] = change(name, .update, columns) }
      }
    }
    // What this device deleted, and the server forgot with the row: a newer copy of the server may bring it back.
    for name in Set(before.baseChanges.map(\.row)) where before.bases[name] == nil && content.bases[name] == nil {
      guard content.schema.table(name.table) != nil, isLost(name) else { continue }
      if wasDeletedHere(name) || (newestChange(of: name)?.isDeleted == true && mayOffer(name)) {
        lost[name] = change(name, .delete, [])
      }
    }
  }

  private mutating func noteLoss(of name: RowName, _ old: [NamedValue]) {
    fates[name] = .lost
    lost[name] = change(name, .insert, old.map { ($0.name, .null, $0.value) })
  }

  /// A row that this device made or changed by a commit that is lost, of a group that was never synchronized: no line says so.
  private func isUnasked(_ name: RowName) -> Bool {
    guard order.rebuild == .nothing, let table = before.schema.table(name.table), isLost(name),
      !order.groups.contains(where: { $0.name == table.group }), let newest = newestChange(of: name)
    else { return false }
    return before.baseChanges.contains { $0.row == name && $0.version == newest.version && $0.isOwn }
  }

  private func leaveOutUnasked(_ arrivals: inout Arrivals) {
    for name in Set(before.baseChanges.map(\.row)) where before.bases[name] != nil && isUnasked(name) {
      arrivals.add(name, .lost, nil)
    }
  }

  /// The newest thing known of the row is that a request of this device deleted it.
  private func wasDeletedHere(_ name: RowName) -> Bool {
    guard let newest = newestChange(of: name), newest.isDeleted else { return false }
    return before.baseChanges.contains { $0.row == name && $0.version == newest.version && $0.isOwn }
  }

  private func named(_ row: Row, _ table: Table?) -> [NamedValue] {
    (table?.travelling ?? []).map { NamedValue($0.name, table?.value($0.name, of: row) ?? .null) }
  }

  private func change(
    _ name: RowName, _ operation: SalvorModel.Operation, _ columns: [(name: String, old: Value, new: Value)]
  ) -> Change {
    Change(
      counter: 0, made: 0, row: name, operation: operation,
      columns: columns.map { ChangedColumn(name: $0.name, old: $0.old, new: $0.new) })
  }

  /// Commits, versions and cursors as they are after the shared commit; then what arrived, and the new cursors.
  private mutating func cut(_ arrivals: Arrivals) {
    let bound = order.shared ?? (order.absence == .lost ? 0 : nil)
    if let bound { content.cut(to: bound, isShared: order.shared != nil) }
    if content.serverID != nil && content.serverID != order.server { content.wholeSince = [:] }
    let compared = Set(order.starts.filter { $0.commit == nil }.map(\.name))
    let rebuilt = order.rebuild == .nothing ? [] : Set(content.schema.groups.map(\.name))
    let whole = content.groups(of: arrivals.full).union(compared).union(rebuilt)
    content.remember(arrivals, cameWhole: whole, as: order.groups)
    // What was asked for by its key was so where the feed went on from: a server that goes back further is asked again.
    let fed = order.groups.filter { !whole.contains($0.name) }.map { group in
      var group = group
      if let commit = order.starts.first(where: { $0.name == group.name })?.commit { group.cursor = commit }
      return group
    }
    content.rememberCompared(arrivals, as: fed)
  }

  /// What was lost is in the archive, in the order of the schema's tables and of the keys, each as a request of its own.
  private mutating func archiveLost() {
    for name in lostRows {
      guard var change = lost[name] else { continue }
      content.counter += 1
      change.counter = content.counter
      var request = Request(
        stamp: content.stamp, changes: [change], state: .kept,
        refusal: Request.Refused(
          reason: "lost-on-server", status: nil,
          message: "The server acknowledged this and has lost it. Reapply it, or delete the entry."))
      let (why, version) = unoffered(name, change)
      unoffered[why, default: 0] += 1
      if var withheld = version {
        // It stands for older versions of its row.
        for index in content.requests.indices where content.requests[index].changes[0].row == name {
          guard let older = content.requests[index].withheld else { continue }
          if older.isOwn { withheld.isOwn = true }
          content.requests[index].withheld = nil
        }
        request.withheld = withheld
      }
      content.requests.append(request)
    }
  }

  /// This device wrote the row by a lost commit.
  private func isOwnLoss(_ name: RowName) -> Bool {
    before.baseChanges.contains { $0.row == name && $0.isOwn && $0.version > order.shared ?? 0 }
  }

  /// Why the archive has a loss in the place of an offer; and what would be offered under another setting.
  private func unoffered(_ name: RowName, _ change: Change) -> (why: Unoffered, version: Request.Withheld?) {
    if fates[name] == .left { return (.outOfScope, nil) }
    guard let table = content.schema.table(name.table) else { return (.otherColumns, nil) }
    guard before.serverID == order.server else { return (.otherServer, nil) }
    guard order.takesOffers else { return (.notTaken, nil) }
    guard table.maintained == .dual else { return (.serverMaintained, nil) }
    let number = version(of: name)
    guard order.absence == .lost, number > order.shared ?? 0, let lost = lostVersion(of: name, number, nil) else {
      return (.unknownVersion, nil)
    }
    let isOwn = isOwnLoss(name)
    let mode = mode(of: name.table)
    if mode == .all || mode != .off && isOwn { return (.changedHere, nil) }
    let withheld = Request.Withheld(
      version: lost, isOwn: isOwn,
      isForReview: change.operation == .delete && mass.contains(name.table),
      was: change.operation == .delete ? nil : before.bases[name].map { named($0, before.schema.table(name.table)) })
    return (order.heal == .off ? .off : mode == .off ? .tableOff : .notOwn, withheld)
  }

  /// In the order of the schema's tables and of the keys.
  var lostRows: [RowName] { sorted(lost.keys) }

  func sorted(_ names: some Sequence<RowName>) -> [RowName] {
    let places = Dictionary(before.schema.tables.enumerated().map { ($1.name, $0) }) { first, _ in first }
    return names.sorted { a, b in
      a.table == b.table ? keyPrecedes(a.key, b.key) : (places[a.table] ?? 0) < (places[b.table] ?? 0)
    }
  }

  private func guardAgainstMassDeletion() throws {
    guard let share = order.removedShareMax else { return }
    let tables = before.schema.synchronized.map(\.name).filter { table in
      let rows = before.view.rows(of: table)
      let gone = rows.keys.count { content.view.rows(of: table)[$0] == nil }
      return rows.count >= 20 && Double(gone) > share * Double(rows.count)
    }
    guard tables.isEmpty else {
      throw SalvorError(
        .massDeletion,
        "The recovery would remove most rows of \(tables.joined(separator: ", ")). Nothing was changed. "
          + "Look at it, and recover by hand.", context: ["tables": tables.joined(separator: ", ")])
    }
  }
}

extension ClientContent {
  /// Requests of an upload under way wait again, with their IDs.
  mutating func takeBackUpload(previous: SequenceID?) {
    // Both are remembered: a server that names one of them as S went back in time, or came forward again.
    for old in [self.previous, current].compactMap({ $0 }) where old != previous { olderSequences.insert(old, at: 0) }
    olderSequences.removeAll { $0 == previous }
    takeUploadBack()
    self.previous = previous
  }

  /// What was made on a commit that the server does not have was made on the newest one that it has; what such a commit
  /// changed is not known to be newer than that one.
  mutating func cut(to bound: Int64, isShared: Bool) {
    for index in requests.indices {
      for place in requests[index].changes.indices {
        requests[index].changes[place].made = min(requests[index].changes[place].made, bound)
        // What waits of an earlier recovery is offered to a server that went back further.
        if let parting = requests[index].changes[place].offer?.version.parting {
          requests[index].changes[place].offer?.version.parting = min(parting, bound)
        }
      }
    }
    leaving = leaving.mapValues { min($0, bound) }
    commits.removeAll { $0.number > bound || !isShared }
    incarnations.removeAll { $0.firstCommit > bound || !isShared }
    baseChanges.removeAll { $0.version > bound || !isShared }
  }
}
