import SalvorModel
import SalvorStorage

/// Offers (semantics 10): what becomes of each, column by column.
extension SetEvaluation {
  /// Brings back what the server has lost, column by column, where nothing newer stands there (`HealingServerStore`).
  mutating func applyOffer(
    _ change: StagedChange, _ offer: Offer, of request: RequestID, _ place: Int, over present: Row?,
    _ isKept: inout Bool, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    if let refusal = try heals.refusal(of: offer.version) {
      guard !offer.written.isEmpty, change.operation != .update, let known = try heals.known(offer.version) else {
        return refusal
      }
      return try applyWritten(change, offer, made: known, of: request, place, over: present, &isKept, &foreign)
    }
    if offer.isVersion { return try keepVersion(change, of: request, place, over: present, &foreign) }
    let standing = try heals.standing(
      of: change.key, change.hash, at: place, for: offer.version, pending: healings[change.hash] ?? [])
    switch (change.operation, present) {
    case (.delete, let present?) where !offer.written.isEmpty:
      return try deleteWritten(change, of: request, place, over: present, &isKept, &foreign) {
        standing.isUnseen($0)
      }
    case (.delete, let present):
      return try applyOfferedDelete(change, standing, of: request, place, over: present, &foreign)
    case (.insert, nil):
      return try applyOfferedInsert(change, offer, standing, of: request, place, &foreign)
    case (.update, nil):
      // Whether the row was there is told only to those who could see it.
      guard try departures.seesAll(place) || departures.hasLeft(place, change.key, since: change.made) else {
        return .rowDeleted(catalog.tables[place])
      }
      fed.append(change.hash)
      if standing.outcome(ColumnMask.existence, isSame: false) == .superseded {
        offers[place].superseded += 1
      } else {
        try keepOffered(change, of: request, place, server: nil, &foreign)
      }
      return nil
    case (_, let present?):
      return try mergeOffered(change, offer, standing, of: request, place, over: present, &isKept, &foreign)
    }
  }

  /// What the server had kept beside the row is kept again, also where the row is not there yet: who offers the row may come later
  /// (decision 217).
  private mutating func keepVersion(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row?, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    if let refusal = try refusalOfVersion(change, place, over: present) { return refusal }
    fed.append(change.hash)
    try keepOffered(change, of: request, place, server: present, &foreign)
    return nil
  }

  /// What speaks against the row that a version would make when somebody settles for it. A parent that is not there does not.
  private mutating func refusalOfVersion(
    _ change: StagedChange, _ place: Int, over present: Row?
  ) throws -> RefusalText? {
    guard change.operation == .insert || change.operation == .update && present != nil else { return nil }
    let table = catalog.tables[place]
    let row = change.applied(to: present, of: table)
    let isHandedOver = present != nil && table.table.handover
    switch try scope(row, place) {
    case .outside where !isHandedOver: return outOfScope(table)
    case .parentOutside(let reference) where !isHandedOver: return .missingParent(table, reference, catalog)
    default: break
    }
    if catalog.leads[place].isEmpty { return nil }
    let before = overlay
    defer { overlay = before }
    overlay.set(change.hash, to: row)
    return try refusalOfLead(row, place, since: before)
  }

  private mutating func applyOfferedInsert(
    _ change: StagedChange, _ offer: Offer, _ standing: RowStanding, of request: RequestID, _ place: Int,
    _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    let row = change.applied(to: nil, of: table)
    var outcome = standing.outcome(ColumnMask.existence, isSame: false)
    if outcome == .applied, !catalog.tables[place].alternatives.isEmpty {
      outcome = try heals.outcomeOfDeletes(of: change.key, at: place, for: offer.version) {
        try scope(row, place, of: $0) == .inside
      }
    }
    guard outcome == .applied else {
      // It was deleted by who knew more: a change of it that waits is one of a deleted row.
      guard offer.written.isEmpty else { return .rowDeleted(table) }
      if let refusal = try scopeRefusal(row, change.hash, place, over: nil) { return refusal }
      fed.append(change.hash)
      if outcome == .superseded {
        offers[place].superseded += 1
      } else {
        try keepOffered(change, of: request, place, server: nil, &foreign)
      }
      return nil
    }
    let written = ColumnMask.mask(offer.written.compactMap { table.place($0) }.map { table.bits[$0] })
    let offered = ColumnMask.mask(change.columns.map { table.bits[$0] } + [ColumnMask.existence])
    heal(change, place, standing, offered & ~written, entry: ~written)
    noteBeneath(change, place, standing, offer.written.compactMap { table.place($0) })
    offers[place].healed += 1
    return try put(row, change.hash, place, over: nil)
  }

  /// A delete is a version of all columns.
  private mutating func applyOfferedDelete(
    _ change: StagedChange, _ standing: RowStanding, of request: RequestID, _ place: Int, over present: Row?,
    _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    guard let present else {
      // It is gone, and from now on by this version: no older one makes it again. Unless it may be a row that he never saw.
      let isSeen = try departures.seesAll(place) || answerOutside(change, place) == nil
      if change.offer?.written.isEmpty == false {
        // A person's delete, not one that was lost: it is an ordinary write, and stands against every version.
        deletesOfNothing.append((change.hash, isSeen))
        if !isSeen { heal(change, place, standing, ColumnMask.all, entry: 0, claim: .written) }
        return nil
      }
      if standing.outcome(ColumnMask.existence, isSame: true) == .applied {
        heal(change, place, standing, ColumnMask.all, entry: 0, claim: isSeen ? nil : .lost)
      }
      offers[place].superseded += 1
      return nil
    }
    let outcomes = (catalog.tables[place].bits + [ColumnMask.existence]).map { standing.outcome($0, isSame: false) }
    guard outcomes.allSatisfy({ $0 == .applied }) else {
      fed.append(change.hash)
      if outcomes.contains(.conflict) {
        try keepOffered(change, of: request, place, server: present, &foreign)
      } else {
        offers[place].superseded += 1
      }
      return nil
    }
    heal(change, place, standing, ColumnMask.all, entry: ColumnMask.all)
    offers[place].healed += 1
    if catalog.tables[place].bits.contains(where: standing.isOvertaken) {
      try note(change, of: request, place, over: present, becoming: nil, &foreign)
    }
    overlay.set(change.hash, to: nil)
    return nil
  }

  private mutating func mergeOffered(
    _ change: StagedChange, _ offer: Offer, _ standing: RowStanding, of request: RequestID, _ place: Int,
    over present: Row, _ isKept: inout Bool, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    if change.operation == .insert, table.table.sameKey == .refuse, standing.isWritten(ColumnMask.existence) {
      // Another row has taken the key meanwhile.
      guard offer.written.isEmpty else {
        return RefusalText(.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
      }
      fed.append(change.hash)
      try keepOffered(change, of: request, place, server: present, &foreign)
      return nil
    }
    let written = Set(offer.written.compactMap { table.place($0) })
    var row = present
    var bits: [Int] = []
    var lost: [Int] = []
    var isOvertaken = false
    if change.operation == .insert, standing.outcome(ColumnMask.existence, isSame: true) == .applied {
      bits.append(ColumnMask.existence)
    }
    for (index, column) in change.columns.enumerated() where !written.contains(column) {
      switch standing.outcome(table.bits[column], isSame: present[column] == change.new[index]) {
      case .applied:
        bits.append(table.bits[column])
        isOvertaken = isOvertaken || row[column] != change.new[index] && standing.isOvertaken(table.bits[column])
        row[column] = change.new[index]
      case .superseded: break
      // No lost commit is known to have changed it: it is offered for its rank.
      case .conflict where change.operation == .update && change.old[index] == change.new[index]: break
      case .conflict: lost.append(index)
      }
    }
    let isWhole = change.columns.indices.allSatisfy { row[change.columns[$0]] == change.new[$0] }
    if try change.operation == .insert || !isWhole || foreign.isNewer(change, at: place) { fed.append(change.hash) }
    if !lost.isEmpty {
      // The row is there: what is kept beside it is an update, whatever was offered.
      var rest = change.taking(lost)
      rest.operation = .update
      rest.old = change.operation == .update ? lost.map { change.old[$0] } : rest.columns.map { present[$0] }
      try keepOffered(rest, of: request, place, server: present, &foreign)
    }
    if isOvertaken { try note(change, of: request, place, over: present, becoming: row, &foreign) }
    heal(change, place, standing, ColumnMask.mask(bits), entry: ColumnMask.mask(bits))
    if row != present {
      offers[place].healed += 1
      if let refusal = try put(row, change.hash, place, over: present) { return refusal }
    } else if lost.isEmpty && written.isEmpty {
      offers[place].superseded += 1
    }
    guard !written.isEmpty else { return nil }
    let own = change.taking(change.columns.indices.filter { written.contains(change.columns[$0]) })
    noteBeneath(change, place, standing, own.columns)
    let isInConflict = own.columns.enumerated().contains { index, column in
      row[column] != own.new[index] && standing.isUnseen(table.bits[column])
    }
    return isInConflict
      ? try settle(own, of: request, place, over: row, &isKept, &foreign) : try write(own, place, over: row)
  }

  /// The server has the version after all, since a newer copy of it was put back: what the device wrote upon it is an ordinary
  /// change of these columns, made on that version.
  private mutating func applyWritten(
    _ change: StagedChange, _ offer: Offer, made known: Int64, of request: RequestID, _ place: Int,
    over present: Row?, _ isKept: inout Bool, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    guard let present else { return change.operation == .delete ? nil : .rowDeleted(table) }
    var version = offer.version
    version.parting = known
    let since = try heals.standing(
      of: change.key, change.hash, at: place, for: version, pending: healings[change.hash] ?? [])
    if change.operation == .delete {
      return try deleteWritten(change, of: request, place, over: present, &isKept, &foreign, isUnseen: since.isChanged)
    }
    if table.table.sameKey == .refuse, since.isChanged(ColumnMask.existence) {
      return RefusalText(.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
    }
    let written = Set(offer.written.compactMap { table.place($0) })
    let own = change.taking(change.columns.indices.filter { written.contains(change.columns[$0]) })
    fed.append(change.hash)
    let isInConflict = own.columns.enumerated().contains { index, column in
      present[column] != own.new[index] && since.isChanged(table.bits[column])
    }
    return isInConflict
      ? try settle(own, of: request, place, over: present, &isKept, &foreign) : try write(own, place, over: present)
  }

  /// A person's delete, made on the version that it names.
  private mutating func deleteWritten(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row, _ isKept: inout Bool,
    _ foreign: inout ForeignChanges, isUnseen: (Int) -> Bool
  ) throws -> RefusalText? {
    guard (catalog.tables[place].bits + [ColumnMask.existence]).contains(where: isUnseen) else {
      return try write(change, place, over: present)
    }
    fed.append(change.hash)
    return try settle(change, of: request, place, over: present, &isKept, &foreign)
  }

  /// What an offer would bring back is kept beside the row, once.
  private mutating func keepOffered(
    _ change: StagedChange, of request: RequestID, _ place: Int, server: Row?, _ foreign: inout ForeignChanges
  ) throws {
    let table = catalog.tables[place]
    guard try !ConflictBook(overlay.rows).isKept(change, table) else {
      offers[place].superseded += 1
      return
    }
    offers[place].conflicts += 1
    kept.append(
      UploadConflict(
        request: request, change: change, table: place, server: server,
        unmade: server == nil && change.operation == .insert ? change.applied(to: nil, of: table) : .none,
        serverEntry: try foreign.newestWrite(
          of: change.hash, after: change.offer?.version.parting ?? change.made,
          at: ForeignChanges.Place(table: place, key: change.key))))
  }

  /// An offer that cannot stand in the tables is kept beside the row, whole.
  mutating func keepUnwritable(_ request: StagedRequest, _ foreign: inout ForeignChanges) throws {
    deciding = request.ordinal
    for change in request.changes {
      guard let place = change.table else { continue }
      let present = try row(place, change.key, change.hash, &foreign)
      fed.append(change.hash)
      try keepOffered(change, of: request.id, place, server: present, &foreign)
    }
  }
}
