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
  ///
  /// - Parameter isRejected: the server's operator does not take the rows back: a row by itself is not sent again until a person asks.
  mutating func giveBack(_ id: RequestID, isRejected: Bool) -> Bool {
    let lost = takeApart([id])
    guard !lost.isEmpty else { return false }
    keepAsItIs(id, on: bases, withFailed: false)
    offerAgain(lost, rejected: isRejected ? requests.first { $0.id == id } : nil)
    return true
  }

  /// The request in error goes to the archive. What depends on it returns where it can stand without: answers with it.
  ///
  /// - Parameter withFailed: those in error that depend on it go to the archive, too.
  @discardableResult
  mutating func keepAsItIs(
    _ id: RequestID, on tables: MemoryTables, withFailed: Bool
  ) -> (displaced: [RequestID], kept: [RequestID]) {
    let active = requests.indices.filter { requests[$0].state != .displaced && requests[$0].state != .kept }
    guard let place = active.firstIndex(where: { requests[$0].id == id }) else { return ([], []) }
    let dependence = Dependence(active.map { requests[$0] }, on: tables, schema: schema)
    var displaced: [RequestID] = []
    var kept: [RequestID] = []
    for dependent in dependence.dependents(of: [place]) {
      let index = active[dependent]
      if requests[index].id == id || (withFailed && requests[index].isInError) {
        requests[index].state = .kept
        kept.append(requests[index].id)
      } else {
        requests[index].stateBefore = requests[index].state
        requests[index].state = .displaced
        displaced.append(requests[index].id)
      }
    }
    return (displaced, kept)
  }

  /// The row's first change, an update, makes the lost row again: it is an insert of the whole row.
  ///
  /// - Parameters:
  ///   - offer: nil: the version is not known.
  ///   - isOffered: so it is by itself, too, where the change leaves.
  mutating func makeAgain(
    _ index: Int, _ place: Int, on base: Row, in table: Table, _ offer: Offer?, isOffered: Bool = true
  ) {
    var made = requests[index].changes[place]
    let (columns, row) = (made.columns, made.applied(to: base, of: table) ?? base)
    if made.madeUpon != nil { made.offer = nil }
    made.operation = .insert
    made.columns = table.travelling.map {
      ChangedColumn(name: $0.name, old: .null, new: table.value($0.name, of: row))
    }
    // What was offered before stays of the version that it was of: the row beneath it came since, with another copy.
    if var offer, made.offer == nil {
      offer.written = columns.map(\.name)
      made.offer = offer
      if isOffered { made.acknowledged = columns.map { NamedValue($0.name, table.value($0.name, of: base)) } }
    }
    requests[index].changes[place] = made
  }

  /// Inserts that make lost rows again are the changes that they were, upon what was acknowledged.
  private mutating func takeApart(_ ids: Set<RequestID>) -> [(row: RowName, offer: Offer)] {
    var lost: [(row: RowName, offer: Offer)] = []
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
        lost.append((made.row, Offer(offer.version, isForReview: offer.isForReview)))
      }
    }
    return lost
  }

  /// By a request of its own, or with the change that is the row's first one now.
  private mutating func offerAgain(_ lost: [(row: RowName, offer: Offer)], rejected: Request? = nil) {
    for (name, offer) in lost {
      guard let was = bases[name], let table = schema.table(name.table) else { continue }
      bases[name] = nil
      let first = requests.firstIndex { $0.state != .displaced && $0.state != .kept && $0.rows.contains(name) }
      guard let index = first, let place = requests[index].changes.firstIndex(where: { $0.row == name }) else {
        counter += 1
        let columns = table.travelling.map {
          ChangedColumn(name: $0.name, old: .null, new: table.value($0.name, of: was))
        }
        let made = groups[table.group]?.cursor?.number ?? 0
        let change = Change(
          counter: counter, made: made, row: name, operation: .insert, columns: columns, offer: offer)
        var request = Request(stamp: stamp, changes: [change])
        if let rejected {
          (request.state, request.refusal) = (.refused, rejected.refusal)
          (request.attempts, request.lastAttempt) = (rejected.attempts, rejected.lastAttempt)
        }
        requests.append(request)
        continue
      }
      switch requests[index].changes[place].operation {
      case .insert: break
      case .update: makeAgain(index, place, on: was, in: table, offer)
      case .delete:
        var offer = offer
        offer.written = table.travelling.map(\.name)
        requests[index].changes[place].offer = offer
      }
    }
  }
}
