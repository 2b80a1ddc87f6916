import SalvorModel
import SalvorStorage

/// Lost rows that a request of their device makes again, with what it changes (decision 219).
extension ClientContent {
  /// Takes requests out for good. A lost row that one of them made again is offered as it was acknowledged.
  mutating func takeOut(_ ids: Set<RequestID>) {
    let lost = takeApart(ids)
    requests.removeAll { ids.contains($0.id) }
    offerAgain(lost)
  }

  /// The request was refused: it goes to the archive, and the lost rows that it made again are offered as they were
  /// acknowledged. False: it makes none.
  mutating func giveBack(_ id: RequestID) -> Bool {
    let lost = takeApart([id])
    guard !lost.isEmpty else { return false }
    keepAsItIs(id, on: bases)
    offerAgain(lost)
    return true
  }

  /// The request in error goes to the archive. What depends on it returns where it can stand without: answers with it.
  @discardableResult
  mutating func keepAsItIs(_ id: RequestID, on tables: MemoryTables) -> [RequestID] {
    let active = requests.indices.filter { requests[$0].state != .displaced && requests[$0].state != .kept }
    guard let place = active.firstIndex(where: { requests[$0].id == id }) else { return [] }
    let dependence = Dependence(active.map { requests[$0] }, on: tables, schema: schema)
    var displaced: [RequestID] = []
    for dependent in dependence.dependents(of: [place]) {
      let index = active[dependent]
      if requests[index].id == id {
        requests[index].state = .kept
      } else {
        requests[index].stateBefore = requests[index].state
        requests[index].state = .displaced
        displaced.append(requests[index].id)
      }
    }
    return displaced
  }

  /// The row's first change, an update, makes the lost row again: it is an insert of the whole row.
  ///
  /// - Parameter version: nil: nothing is offered.
  mutating func makeAgain(_ index: Int, _ place: Int, on base: Row, in table: Table, _ version: LostVersion?) {
    var made = requests[index].changes[place]
    let (columns, row) = (made.columns, made.applied(to: base, of: table) ?? base)
    made.operation = .insert
    made.columns = table.travelling.map {
      ChangedColumn(name: $0.name, old: .null, new: table.value($0.name, of: row))
    }
    // What was offered before stays of the version that it was of: the row beneath it came since, with another copy.
    if let version, made.offer == nil {
      made.offer = Offer(version, written: columns.map(\.name))
      made.acknowledged = columns.map { NamedValue($0.name, table.value($0.name, of: base)) }
    }
    requests[index].changes[place] = made
  }

  /// Inserts that make lost rows again are the changes that they were, upon what was acknowledged.
  private mutating func takeApart(_ ids: Set<RequestID>) -> [(row: RowName, version: LostVersion)] {
    var lost: [(row: RowName, version: LostVersion)] = []
    for index in requests.indices
    where ids.contains(requests[index].id) && requests[index].state != .displaced && requests[index].state != .kept {
      for (place, made) in requests[index].changes.enumerated() {
        guard made.operation == .insert, let offer = made.offer, !made.acknowledged.isEmpty, bases[made.row] == nil,
          let table = schema.table(made.row.table), var was = made.applied(to: nil, of: table)
        else { continue }
        for value in made.acknowledged {
          if let column = table.columnIndex(value.name) { was[column] = value.value }
        }
        bases[made.row] = was
        var change = made
        (change.operation, change.offer, change.acknowledged) = (.update, nil, [])
        change.columns = made.acknowledged.compactMap { old in
          made.column(old.name).map { ChangedColumn(name: old.name, old: old.value, new: $0.new) }
        }
        requests[index].changes[place] = change
        lost.append((made.row, offer.version))
      }
    }
    return lost
  }

  /// By a request of its own, or with the change that is the row's first one now.
  private mutating func offerAgain(_ lost: [(row: RowName, version: LostVersion)]) {
    for (name, version) in lost {
      guard let was = bases[name], let table = schema.table(name.table) else { continue }
      bases[name] = nil
      let first = requests.firstIndex { $0.state != .displaced && $0.state != .kept && $0.rows.contains(name) }
      guard let index = first, let place = requests[index].changes.firstIndex(where: { $0.row == name }) else {
        counter += 1
        let columns = table.travelling.map {
          ChangedColumn(name: $0.name, old: .null, new: table.value($0.name, of: was))
        }
        let made = groups[table.group]?.cursor?.number ?? 0
        let offer = Change(
          counter: counter, made: made, row: name, operation: .insert, columns: columns, offer: Offer(version))
        requests.append(Request(stamp: stamp, changes: [offer]))
        continue
      }
      switch requests[index].changes[place].operation {
      case .insert: break
      case .update: makeAgain(index, place, on: was, in: table, version)
      case .delete: requests[index].changes[place].offer = Offer(version, written: table.travelling.map(\.name))
      }
    }
  }
}
