import SalvorModel
import SalvorStorage

/// What becomes of the requests (semantics 9, *Merge rules*).
extension ClientRecovery {
  /// They leave the queue and are in the archive.
  mutating func discardRequests(_ reason: String, _ message: String) {
    for index in content.requests.indices where content.requests[index].state != .kept {
      archive(index, reason: reason, message)
    }
  }

  /// They stay where they can. Rules 1, 3 and 4 are what base ⊕ requests does anyway: a row made here, a delete, and a
  /// field changed here stand over whatever the base is.
  mutating func mergeRequests() {
    keepFailed()
    // A lost row that a request updates is made again by it: it counts as there until it is known which requests stay.
    var standing = content.bases
    for name in lostRows where isRemade(name) { standing[name] = before.bases[name] }
    dropDeletesOfGoneRows(standing)
    forgetOfferedDeletes()
    nameVersions()
    deletedWins(standing)
    remakeLostRows()
    offerLostRows()
    // What the server has deleted since is not lost where a request says what becomes of the row.
    for name in lostRows where fates[name] == .deleted {
      if outstanding.contains(where: { content.requests[$0].rows.contains(name) }) { lost[name] = nil }
    }
    remakeLostParents()
  }

  /// A request in error is not sent by itself, and what it changes of a lost row, or of a lost value, would not come back either. It goes to the
  /// archive with its reason; so the row is offered as it was acknowledged (decisions 223, 231).
  private mutating func keepFailed() {
    var tables = content.bases
    for name in Set(outstanding.flatMap { content.requests[$0].rows }) { tables[name] = before.bases[name] }
    for name in lostRows where isWritable(name) {
      while let index = outstanding.first(where: { index in
        content.requests[index].isInError
          && content.requests[index].changes.contains { $0.row == name && changesLoss($0) }
      }) {
        let id = content.requests[index].id
        let left = content.keepAsItIs(id, on: tables, withFailed: true)
        setAside += left.displaced
        for request in content.requests where left.kept.contains(request.id) {
          requests[request.id] = (.discarded, request.refusal?.reason)
        }
      }
    }
  }

  /// What the server lost of the row, all of it or a value, is something else by this change.
  private func changesLoss(_ change: Change) -> Bool {
    if fates[change.row] == .lost { return true }
    guard fates[change.row] == .changed, let loss = lost[change.row], loss.operation == .update,
      isOfferable(change.row)
    else { return false }
    return change.operation == .delete || change.columns.contains { loss.column($0.name) != nil }
  }

  private func isRemade(_ name: RowName) -> Bool {
    fates[name] == .lost && isWritable(name) && firstChange(of: name)?.change.operation == .update
      && !endsWithDelete(name)
  }

  /// The row was changed, and deleted in the end: nobody wants it made again.
  private func endsWithDelete(_ name: RowName) -> Bool {
    guard firstChange(of: name)?.change.operation == .update else { return false }
    return outstanding.flatMap { content.requests[$0].changes }.last { $0.row == name }?.operation == .delete
  }

  /// The first outstanding change of a row.
  private func firstChange(of name: RowName) -> (index: Int, place: Int, change: Change)? {
    guard let index = outstanding.first(where: { content.requests[$0].rows.contains(name) }),
      let place = content.requests[index].changes.firstIndex(where: { $0.row == name })
    else { return nil }
    return (index, place, content.requests[index].changes[place])
  }

  private mutating func archive(_ index: Int, reason: String, _ message: String) {
    content.requests[index].state = .kept
    content.requests[index].stateBefore = nil
    content.requests[index].refusal = Request.Refused(reason: reason, status: nil, message: message)
    requests[content.requests[index].id] = (.discarded, reason)
  }

  var outstanding: [Int] {
    content.requests.indices.filter {
      content.requests[$0].state != .displaced && content.requests[$0].state != .kept
    }
  }

  func isWritable(_ name: RowName) -> Bool { content.schema.table(name.table)?.maintained == .dual }

  /// The row's loss is this device's to offer, and no request that waits changes it.
  func mayOffer(_ name: RowName) -> Bool {
    isOfferable(name) && !outstanding.contains { content.requests[$0].rows.contains(name) }
  }

  /// The row's loss is this device's to offer, whatever its requests do.
  func isOfferable(_ name: RowName) -> Bool {
    isWritable(name) && isOffered(name) && lostVersion(of: name) != nil
  }

  /// A lost row that a request updates: its first update becomes an insert of the whole row, under the same ID. One that
  /// a request deletes is gone as it should be.
  private mutating func remakeLostRows() {
    for name in lostRows where fates[name] == .lost && isWritable(name) {
      guard let table = content.schema.table(name.table), let base = before.bases[name],
        let (index, place, change) = firstChange(of: name)
      else { continue }
      switch change.operation {
      case .insert: continue
      case .delete: lost[name] = nil
      case .update where endsWithDelete(name): lost[name] = nil
      case .update:
        lost[name] = nil
        let offer = neededVersion(of: name).map { Offer($0, isForReview: mode(of: name.table) == .review) }
        // Where nothing is offered by itself, whoever takes the change back takes the row along.
        content.makeAgain(index, place, on: base, in: table, offer, isOffered: offers(name.table))
        if offer != nil { offered.insert(content.requests[index].id) }
        remade[name] = content.requests[index].id
        requests[content.requests[index].id] = (.remade, nil)
      }
    }
  }

  /// What the server lost stays, by requests that offer it again, as if they came before those that wait: what these change
  /// in a row is theirs (semantics 10).
  mutating func offerLostRows() {
    // A restore that was meant to undo a mass deletion: a person looks at it.
    let deletes = Dictionary(grouping: lostRows.filter { isDeleteOfRow($0) }, by: \.table)
    mass = Set(
      deletes.filter { name, rows in rows.count >= 20 && rows.count * 2 > content.bases.rows(of: name).count }.keys)
    guard heals else { return }
    for name in inOrderOfOffers(sorted(Set(lost.keys).union(heldRows))) {
      guard fates[name] != .left, var change = lost[name] ?? held(name), isWritable(name), isOffered(name),
        let version = lostVersion(of: name)
      else { continue }
      let isOfMass = change.operation == .delete && isDeleteOfRow(name) && mass.contains(name.table)
      // Every column is named, also one that is as the server has it.
      if change.operation == .update, let whole = held(name) { change = whole }
      if change.operation == .update, let table = content.schema.table(name.table) {
        // No device can send what the column's type does not store.
        change.columns.removeAll { column in
          table.columns.first { $0.name == column.name }?.type.stores(column.new) == false
        }
        if change.columns.isEmpty { continue }
      }
      let others = outstanding.flatMap { content.requests[$0].changes }.filter { $0.row == name }
      if !others.isEmpty {
        guard change.operation == .update, others.allSatisfy({ $0.operation == .update }) else { continue }
        change.columns.removeAll { column in others.contains { $0.column(column.name) != nil } }
        if change.columns.isEmpty { continue }
      }
      lost[name] = nil
      content.counter += 1
      change.counter = content.counter
      change.made = content.schema.table(name.table).flatMap { content.groups[$0.group]?.cursor?.number } ?? 0
      change.offer = Offer(version, isForReview: isOfMass || mode(of: name.table) == .review)
      let request = Request(stamp: content.stamp, changes: [change])
      content.requests.append(request)
      offered.insert(request.id)
      requests[request.id] = (.offered, "lost-on-server")
    }
  }

  /// Deletes after what is made again, and rows before those that they reference: who may see a row is asked of its parent.
  private func inOrderOfOffers(_ names: [RowName]) -> [RowName] {
    let order = content.schema.deleteOrder
    let deletes = names.enumerated().filter { lost[$1]?.operation == .delete }
      .sorted { (order[$0.element.table] ?? 0, $0.offset) < (order[$1.element.table] ?? 0, $1.offset) }
    return names.filter { lost[$0]?.operation != .delete } + deletes.map(\.element)
  }

  /// Rows that are on both sides the same, and yet of a lost commit: that they are so is offered, or an older version of
  /// another device would take their place.
  private var heldRows: [RowName] {
    guard order.rebuild == .nothing else { return [] }
    return Set(before.baseChanges.map(\.row)).filter { name in
      before.bases[name] != nil && before.bases[name] == content.bases[name] && mayOffer(name)
        && newestChange(of: name)?.isDeleted == false
    }
  }

  /// What makes the server's row the one that this device had; nil: there are no columns, or one of both is not there.
  private func held(_ name: RowName) -> Change? {
    guard let table = content.schema.table(name.table), let before = self.before.schema.table(name.table),
      let mine = self.before.bases[name], let server = content.bases[name]
    else { return nil }
    let columns = table.travelling.filter { column in
      !table.primaryKey.contains(column.name)
    }.map { column in
      let value = table.value(column.name, of: server)
      let isKnown = before.columnIndex(column.name) != nil
      return ChangedColumn(name: column.name, old: value, new: isKnown ? before.value(column.name, of: mine) : value)
    }
    guard !columns.isEmpty else { return nil }
    return Change(counter: 0, made: 0, row: name, operation: .update, columns: columns)
  }

  /// The server has the row, and a lost commit deleted it.
  private func isDeleteOfRow(_ name: RowName) -> Bool {
    lost[name]?.operation == .delete && content.bases[name] != nil
  }

  private func isOffered(_ name: RowName) -> Bool {
    return mode(of: name.table) == .all || replaced.contains(name)
      || before.baseChanges.contains { $0.row == name && $0.isOwn && $0.version > order.shared ?? 0 }
  }

  /// A lost row that a row with a request references, up to the root: a queued insert of its own. One that a request
  /// inserted over it is there already.
  mutating func remakeLostParents() {
    let view = ClientContent.shown(
      outstanding.map { content.requests[$0] }, over: content.bases, schema: content.schema
    )
    .view
    for name in sorted(Set(outstanding.flatMap { content.requests[$0].rows })) {
      if let row = view[name], let table = content.schema.table(name.table) {
        remakeLostParents(of: row, in: table, view)
      }
    }
  }

  /// Up to the root.
  ///
  /// - Parameter table: as the row was made.
  private mutating func remakeLostParents(of row: Row, in table: Table, _ view: MemoryTables) {
    for reference in table.references {
      let parent = RowName(table: reference.table, key: [table.value(reference.column, of: row)])
      guard fates[parent] == .lost, var change = lost[parent], view[parent] == nil, isWritable(parent),
        let base = before.bases[parent], let parentTable = before.schema.table(parent.table),
        let group = content.schema.table(parent.table)?.group
      else { continue }
      lost[parent] = nil
      content.counter += 1
      change.counter = content.counter
      change.made = content.groups[group]?.cursor?.number ?? 0
      change.offer = neededVersion(of: parent).map { Offer($0, isForReview: mode(of: parent.table) == .review) }
      let request = Request(stamp: content.stamp, changes: [change])
      if change.offer != nil { offered.insert(request.id) }
      content.requests.append(request)
      remadeParents.append(request.id)
      remade[parent] = request.id
      remakeLostParents(of: base, in: parentTable, view)
    }
  }

  /// A waiting request that only deletes rows which the server does not have either has nothing left to do. Where the server
  /// has lost one of them the delete stands all the same (rule 3): it is sent as one of the lost version, so that nobody else's offer of that
  /// makes the row again (decision 184). Where nothing is offered it is in the archive: a newer copy of the server may bring the row back.
  private mutating func dropDeletesOfGoneRows(_ standing: MemoryTables) {
    keepBeforeDeletes()
    var view = standing
    var idle: Set<RequestID> = []
    for index in outstanding {
      let request = content.requests[index]
      let isIdle = request.changes.allSatisfy { change in
        change.operation == .delete && view[change.row] == nil
          && before.bases[change.row] != nil && content.bases[change.row] == nil
      }
      if isIdle && request.state == .queued {
        let isLost = request.changes.contains { fates[$0.row] == .lost }
        if isLost, request.changes.contains(where: { $0.offer != nil }) || offerDeletes(index) {
          // It stays an offer, of nothing now: no older version of another device makes the row again.
        } else if isLost {
          archive(
            index, reason: "row-gone",
            "The server has lost the row. Reapply the delete where the row comes back, or delete the entry.")
        } else {
          takeForOwn(request)
          idle.insert(request.id)
        }
        // Whoever deletes a row does not miss it.
        for change in request.changes { lost[change.row] = nil }
      }
      for (place, change) in request.changes.enumerated() {
        // Beside other changes, too, the delete of a lost row is one of the lost version.
        if !isIdle, request.state == .queued, change.operation == .delete, change.offer == nil, view[change.row] == nil,
          fates[change.row] == .lost, isWritable(change.row), let version = lostVersion(of: change.row)
        {
          offerDelete(index, place, version)
        }
        guard let table = content.schema.table(change.row.table) else { continue }
        view[change.row] = change.applied(to: view[change.row], of: table)
      }
    }
    content.requests.removeAll { idle.contains($0.id) }
    for id in idle { requests[id] = (.merged, "row-gone") }
  }

  /// What was written to a lost row that was deleted in the end is in the archive: nobody wants the row made again.
  private mutating func keepBeforeDeletes() {
    let ending = Set(
      fates.filter { $0.value == .lost && before.bases[$0.key] != nil && endsWithDelete($0.key) }.map(\.key))
    for index in outstanding
    where content.requests[index].state == .queued
      && content.requests[index].changes.allSatisfy({ $0.operation == .update && ending.contains($0.row) })
    {
      archive(
        index, reason: "row-gone",
        "The row was deleted here after this, and the server has lost it. Reapply the change where the row comes back, or delete the entry."
      )
    }
  }

  /// The deletes of lost rows are ones of the versions that were lost. False: nothing is offered.
  private mutating func offerDeletes(_ index: Int) -> Bool {
    let places = content.requests[index].changes.indices.filter {
      fates[content.requests[index].changes[$0].row] == .lost
    }
    let versions = places.compactMap { place -> LostVersion? in
      let name = content.requests[index].changes[place].row
      return isWritable(name) ? lostVersion(of: name) : nil
    }
    guard versions.count == places.count else { return false }
    for (place, version) in zip(places, versions) { offerDelete(index, place, version) }
    return true
  }

  private mutating func offerDelete(_ index: Int, _ place: Int, _ version: LostVersion) {
    let table = content.schema.table(content.requests[index].changes[place].row.table)
    content.requests[index].changes[place].offer = Offer(version, written: table?.travelling.map(\.name) ?? [])
  }

  /// An update that waits was made upon the lost version of its row (decision 236). So was a delete, and on no older one, where the server has
  /// that version as it was, since another device has given it back.
  private mutating func nameVersions() {
    var made: Set<RowName> = []
    for index in outstanding {
      for (place, change) in content.requests[index].changes.enumerated() {
        if change.operation == .insert { made.insert(change.row) }
        let fate = fates[change.row]
        guard change.operation != .insert, change.offer == nil, content.requests[index].state == .queued,
          !made.contains(change.row), fate == nil || fate == .changed && change.operation == .update,
          content.bases[change.row] != nil, isWritable(change.row), let version = lostVersion(of: change.row)
        else { continue }
        offerDelete(index, place, version)
        if change.operation == .update {
          content.requests[index].changes[place].offer?.written = change.columns.map(\.name)
        }
      }
    }
  }

  /// The server has the row again: a person's delete of it is an ordinary one.
  private mutating func forgetOfferedDeletes() {
    for index in outstanding {
      for place in content.requests[index].changes.indices {
        let change = content.requests[index].changes[place]
        guard change.operation == .delete, change.offer?.written.isEmpty == false, fates[change.row] == .changed,
          content.bases[change.row] != nil
        else { continue }
        content.requests[index].changes[place].offer = nil
      }
    }
  }

  /// This copy of the server has what the device deleted: it is the device's to offer where this copy is lost, too. The commit that
  /// deleted the row here is of this copy's history, whatever number the device's own one had; the newest one is not earlier.
  private mutating func takeForOwn(_ request: Request) {
    for change in request.changes {
      let group = content.schema.table(change.row.table)?.group
      let newest = order.groups.first { $0.name == group }?.cursor?.number ?? order.shared ?? 0
      content.baseChanges.append(BaseChange(row: change.row, version: newest, isDeleted: true, isOwn: true))
    }
  }

  /// Rule 2, deleted on the server and changed here: the delete wins. The change, the whole of its request, and what
  /// depends on it are kept in the archive.
  private mutating func deletedWins(_ standing: MemoryTables) {
    while let first = outstanding.first(where: { changesDeletedRow($0, standing) }) {
      let active = outstanding
      let dependence = Dependence(active.map { content.requests[$0] }, on: standing, schema: content.schema)
      guard let place = active.firstIndex(of: first) else { return }
      for dependent in dependence.dependents(of: [place]) {
        archive(
          active[dependent], reason: "row-deleted",
          "The row was deleted on the server. Reapply the change, or delete the entry.")
      }
    }
  }

  /// It updates a row that is not there when its turn comes, because the server deleted it.
  private func changesDeletedRow(_ index: Int, _ standing: MemoryTables) -> Bool {
    var view = standing
    for other in outstanding {
      for change in content.requests[other].changes {
        guard let table = content.schema.table(change.row.table) else { continue }
        if other == index, change.operation == .update, view[change.row] == nil, fates[change.row] == .deleted {
          return true
        }
        view[change.row] = change.applied(to: view[change.row], of: table)
      }
      if other == index { return false }
    }
    return false
  }
}
