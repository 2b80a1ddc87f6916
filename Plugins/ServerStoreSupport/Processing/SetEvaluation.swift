import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides a set of requests in order, over the server's rows and over each other, and writes nothing: what the rows come
/// to be is an overlay (semantics 7). Whether the result may stand in the tables is `SetWriter`'s to find out.
struct SetEvaluation {
  /// Whose upload it is.
  private let upload: ProcessRequest
  let departures: Departures
  let heals: HealBook
  /// What accepted offers leave in the book of healing, by row.
  private(set) var healings: [UInt64: [HealBook.Healing]] = [:]
  /// What the request being decided found there.
  private var healingsBefore: [(row: UInt64, healings: [HealBook.Healing]?)] = []
  /// Accepted offers that brought something back, and those that found all of it there, or newer.
  private(set) var offers = OfferCount()
  /// Milliseconds since 1970.
  private let now: Int64
  private(set) var overlay: RowOverlay
  /// Conflicts, kept and settled ones, of the requests that are accepted.
  private(set) var kept: [UploadConflict] = []
  /// Rows that the sender must be fed.
  private(set) var fed: [UInt64] = []
  /// Rows that an accepted request changed, also those that a later one changed back.
  private(set) var changed: Set<UInt64> = []
  /// The request being decided.
  private var deciding = 0
  /// While requests are decided that depend on one another: rows whose scope comes from one that a later of them may make,
  /// each with the request that wrote it.
  private var postponed: [(request: Int, hash: UInt64, place: Int)]?
  var catalog: Catalog { overlay.rows.catalog }
  var principal: Principal { upload.principal }

  init(
    _ rows: RowReader, _ upload: ProcessRequest, _ departures: Departures, _ heals: HealBook, now: Int64
  ) {
    self.departures = departures
    self.heals = heals
    overlay = RowOverlay(rows)
    self.upload = upload
    self.now = now
  }

  /// Nil: accepted, and the overlay has it.
  mutating func decide(_ request: StagedRequest, _ foreign: inout ForeignChanges) throws -> RefusalText? {
    let (fedBefore, keptBefore, offersBefore) = (fed.count, kept.count, offers)
    healingsBefore = []
    deciding = request.ordinal
    var isKept = false
    var undo: [(hash: UInt64, row: Row?)] = []
    let wait = heals.intake.wait(of: request, catalog)
    func takeBack() {
      takeBackHealings()
      offers = offersBefore
      for entry in undo.reversed() { overlay.set(entry.hash, to: entry.row) }
      fed.removeSubrange(fedBefore...)
      kept.removeSubrange(keptBefore...)
    }
    for change in request.changes {
      var refusal = change.refusal
      if refusal == nil, let place = change.table {
        let present = try row(place, change.key, change.hash, &foreign)
        undo.append((change.hash, present))
        refusal = try apply(change, of: request.id, place, over: present, &isKept, &foreign)
        if change.offer == nil, healings[change.hash] != nil { noteWrite(change, place) }
      }
      guard let refusal else { continue }
      takeBack()
      if refusal.reason == .missingParent, let wait { return .waits(wait) }
      return refusal
    }
    // What would change nothing has nothing to wait for.
    if let wait, offers.healed > offersBefore.healed || kept.count > keptBefore {
      takeBack()
      return .waits(wait)
    }
    if isKept {
      // A request stands or falls as a whole: none of its rows is written, each is kept beside the server's.
      for entry in undo.reversed() { overlay.set(entry.hash, to: entry.row) }
      kept.removeSubrange(keptBefore...)
      takeBackHealings()
      offers = offersBefore
      feedDifferences(of: request)
      for change in request.changes {
        guard let place = change.table else { continue }
        let server = overlay[change.hash]?.now
        let makesRow = server == nil && change.operation == .insert
        kept.append(
          UploadConflict(
            request: request.id, change: change, table: place, server: server,
            unmade: makesRow ? change.applied(to: nil, of: catalog.tables[place]) : .none,
            serverEntry: try foreign.newestWrite(
              of: change.hash, after: change.made, at: ForeignChanges.Place(table: place, key: change.key))))
      }
    } else {
      noteChanged(undo)
    }
    return nil
  }

  /// - Parameter undo: rows as they were before each change of a request that is accepted.
  private mutating func noteChanged(_ undo: [(hash: UInt64, row: Row?)]) {
    var seen: Set<UInt64> = []
    for (hash, row) in undo where seen.insert(hash).inserted && overlay[hash]?.now != row { changed.insert(hash) }
  }

  /// The sender shows the rows of a kept request as it made them. One that it made and deleted again it does not have, no more than
  /// the server.
  private mutating func feedDifferences(of request: StagedRequest) {
    var shown: [UInt64: Row?] = [:]
    for change in request.changes {
      guard let place = change.table else { continue }
      let row = shown[change.hash] ?? overlay[change.hash]?.now
      shown[change.hash] = .some(change.operation == .delete ? nil : change.applied(to: row, of: catalog.tables[place]))
    }
    for change in request.changes {
      if let row = shown[change.hash], row != overlay[change.hash]?.now { fed.append(change.hash) }
    }
  }

  /// From here on requests are decided that depend on one another.
  mutating func beginCircle() { postponed = [] }

  /// All of them are decided. What speaks against a row of theirs, and the ordinal of the request that wrote it; nil: nothing.
  ///
  /// - Parameter before: as it was when they began.
  mutating func endCircle(since before: SetEvaluation) throws -> (request: Int, refusal: RefusalText)? {
    let waiting = postponed ?? []
    postponed = nil
    for (request, hash, place) in waiting {
      guard let entry = overlay[hash], let row = entry.now else { continue }
      let present = before.overlay[hash].map(\.now) ?? entry.before
      if let refusal = try scopeRefusal(row, hash, place, over: present) { return (request, refusal) }
    }
    return nil
  }

  /// Takes back what was kept beyond the first `count` versions.
  mutating func withdrawKept(beyond count: Int) { kept.removeSubrange(count...) }

  private mutating func row(
    _ place: Int, _ key: Key, _ hash: UInt64, _ foreign: inout ForeignChanges
  ) throws -> Row? {
    let (row, isNew) = try overlay.row(place, key, hash)
    if isNew { foreign.notePresence(row != nil, of: hash) }
    return row
  }

  private mutating func apply(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row?, _ isKept: inout Bool,
    _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    if let present, try scope(present, place) != .inside, postponed?.contains(where: { $0.hash == change.hash }) != true
    {
      // Of a table with a scope, whether the row is there is told to nobody who cannot see it.
      if change.offer != nil, change.operation == .delete {
        offers[place].superseded += 1
        return nil
      }
      return try answerOutside(change, place)
    }
    if let offer = change.offer {
      return try applyOffer(change, offer, of: request, place, over: present, &isKept, &foreign)
    }
    switch change.operation {
    case .insert:
      guard let present else { return try write(change, place, over: nil) }
      if change.columns.indices.allSatisfy({ present[change.columns[$0]] == change.new[$0] }) {
        if change.columns.count < table.columns.count || upload.isNarrowed { fed.append(change.hash) }
        return nil
      }
      if table.table.sameKey == .refuse {
        return RefusalText(.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
      }
      // The same key is the same thing: merged like an update of the columns that the insert sets.
      fed.append(change.hash)
      let merging = change.merging(into: table)
      let isInConflict = merging.columns.enumerated().contains { index, column in
        present[column] != merging.new[index] && table.columns[column].isSet(present[column])
      }
      return isInConflict
        ? try settle(merging, of: request, place, over: present, &isKept, &foreign)
        : try write(merging, place, over: present)
    case .update:
      guard let present else { return .rowDeleted(table) }
      guard try foreign.isNewer(change, at: place) else {
        return try write(change, place, over: present)
      }
      fed.append(change.hash)
      let isInConflict = change.columns.indices.contains { index in
        let value = present[change.columns[index]]
        return value != change.old[index] && value != change.new[index]
      }
      return isInConflict
        ? try settle(change, of: request, place, over: present, &isKept, &foreign)
        : try write(change, place, over: present)
    case .delete:
      guard let present else { return departures.seesAll(place) ? nil : try answerOutside(change, place) }
      guard try foreign.isNewer(change, at: place) else {
        return try write(change, place, over: present)
      }
      fed.append(change.hash)
      return try settle(change, of: request, place, over: present, &isKept, &foreign)
    }
  }

  /// Of a row that the sender cannot see now, or of a delete's that is gone. Whether it is there is told only where he could
  /// see it, or has written it himself; an insert must be told that its key is taken.
  private func answerOutside(_ change: StagedChange, _ place: Int) throws -> RefusalText? {
    let table = catalog.tables[place]
    let entry = overlay[change.hash]
    if change.operation == .insert { return outOfScope(table) }
    if try entry?.before != entry?.now || departures.hasLeft(place, change.key, since: change.made)
      || entry?.now.map({ try wasInside($0, place) }) == true
    {
      return entry?.now == nil ? nil : outOfScope(table)
    }
    if try change.operation == .delete && departures.isForgotten(change.made) { return nil }
    return .rowDeleted(table)
  }

  /// The table's policy settles a conflict. What it overwrites is noted.
  private mutating func settle(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row, _ isKept: inout Bool,
    _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    let answer = catalog.policies[place].answer(in: table.table) { conflict(change, request, table, present) }
    switch answer {
    case .failed(let message): return RefusalText(.conflictPolicy, message)
    case .settled(.client):
      let row = change.operation == .delete ? nil : change.applied(to: present, of: table)
      try note(change, of: request, place, over: present, becoming: row, &foreign)
      return try write(change, place, over: present)
    case .settled(.server):
      return RefusalText(
        .conflict, "The row of \(table.name) was changed on the server meanwhile. Look at it and change it again.")
    case .settled(.both):
      isKept = true
      return nil
    case .settled(.merged(let values)):
      var row = present
      for value in values { if let column = table.place(value.name) { row[column] = value.value } }
      try note(change, of: request, place, over: present, becoming: row, &foreign)
      return try put(row, change.hash, place, over: present)
    }
  }

  /// No value is overwritten in silence: the book is told what a policy settled.
  private mutating func note(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row, becoming row: Row?,
    _ foreign: inout ForeignChanges
  ) throws {
    kept.append(
      UploadConflict(
        request: request, change: change, table: place, server: present, unmade: .none,
        serverEntry: try foreign.newestWrite(
          of: change.hash, after: change.made, at: ForeignChanges.Place(table: place, key: change.key)),
        settled: UploadConflict.Settled(row: row)))
  }

  private func conflict(
    _ change: StagedChange, _ request: RequestID, _ table: ServerTable, _ present: Row
  ) -> Conflict {
    Conflict(
      table: table.table, key: change.key, operation: change.operation, columns: change.conflictColumns(of: table),
      server: zip(table.columns, present).map { NamedValue($0.name, $1) }, request: request, remote: upload.remote,
      principal: principal.name, time: now, made: change.made)
  }

  private mutating func write(_ change: StagedChange, _ place: Int, over present: Row?) throws -> RefusalText? {
    guard change.operation != .delete else {
      overlay.set(change.hash, to: nil)
      return nil
    }
    return try put(change.applied(to: present, of: catalog.tables[place]), change.hash, place, over: present)
  }

  private mutating func put(_ row: Row, _ hash: UInt64, _ place: Int, over present: Row?) throws -> RefusalText? {
    let before = catalog.leads[place].isEmpty ? nil : overlay
    overlay.set(hash, to: row)
    if let refusal = try scopeRefusal(row, hash, place, over: present) { return refusal }
    guard let before else { return nil }
    return try refusalOfLead(row, place, since: before)
  }

  // MARK: Offers

  /// Brings back what the server has lost, column by column, where nothing newer stands there (`HealingServerStore`).
  private mutating func applyOffer(
    _ change: StagedChange, _ offer: Offer, of request: RequestID, _ place: Int, over present: Row?,
    _ isKept: inout Bool, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    if let refusal = try heals.refusal(of: offer.version) {
      guard !offer.written.isEmpty, change.operation != .update, try heals.has(offer.version) else { return refusal }
      return try applyWritten(change, offer, of: request, place, over: present, &isKept, &foreign)
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

  /// What the server had kept beside the row is kept again. Whether the row is there is told only to those who could see it.
  private mutating func keepVersion(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row?, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    if present == nil, change.operation != .insert, !departures.seesAll(place),
      try !departures.hasLeft(place, change.key, since: change.made)
    {
      return .rowDeleted(catalog.tables[place])
    }
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
      if standing.outcome(ColumnMask.existence, isSame: true) == .applied {
        heal(change, place, standing, ColumnMask.all, entry: 0, isClaim: !isSeen)
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
    if change.operation == .insert, standing.outcome(ColumnMask.existence, isSame: true) == .applied {
      bits.append(ColumnMask.existence)
    }
    for (index, column) in change.columns.enumerated() where !written.contains(column) {
      switch standing.outcome(table.bits[column], isSame: present[column] == change.new[index]) {
      case .applied:
        bits.append(table.bits[column])
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
    heal(change, place, standing, ColumnMask.mask(bits), entry: ColumnMask.mask(bits))
    if row != present {
      offers[place].healed += 1
      if let refusal = try put(row, change.hash, place, over: present) { return refusal }
    } else if lost.isEmpty && written.isEmpty {
      offers[place].superseded += 1
    }
    guard !written.isEmpty else { return nil }
    let own = change.taking(change.columns.indices.filter { written.contains(change.columns[$0]) })
    let isInConflict = own.columns.enumerated().contains { index, column in
      row[column] != own.new[index] && standing.isUnseen(table.bits[column])
    }
    return isInConflict
      ? try settle(own, of: request, place, over: row, &isKept, &foreign) : try write(own, place, over: row)
  }

  /// The server has the version after all, since a newer copy of it was put back: what the device wrote upon it is an ordinary
  /// change of these columns, made on that version.
  private mutating func applyWritten(
    _ change: StagedChange, _ offer: Offer, of request: RequestID, _ place: Int, over present: Row?,
    _ isKept: inout Bool, _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    guard let present else { return change.operation == .delete ? nil : .rowDeleted(table) }
    var version = offer.version
    version.parting = version.number
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

  private mutating func heal(
    _ change: StagedChange, _ place: Int, _ standing: RowStanding, _ mask: Int64, entry: Int64,
    isClaim: Bool = false
  ) {
    healingsBefore.append((change.hash, healings[change.hash]))
    healings[change.hash, default: []].append(
      HealBook.Healing(
        table: place, key: change.key, version: standing.version, mask: mask, entryMask: entry,
        hasLines: standing.hasLines, isClaim: isClaim))
  }

  private mutating func takeBackHealings() {
    while let (row, before) = healingsBefore.popLast() { healings[row] = before }
  }

  /// An ordinary change of a row that an offer before it has changed.
  private mutating func noteWrite(_ change: StagedChange, _ place: Int) {
    let bits = catalog.tables[place].bits
    let mask = change.operation == .delete ? ColumnMask.all : ColumnMask.mask(change.columns.map { bits[$0] })
    healingsBefore.append((change.hash, healings[change.hash]))
    for index in (healings[change.hash] ?? []).indices {
      healings[change.hash]?[index].mask &= ~mask
      healings[change.hash]?[index].entryMask &= ~mask
    }
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

  // MARK: Scope

  /// What speaks against a row that is to be.
  private mutating func scopeRefusal(
    _ row: Row, _ hash: UInt64, _ place: Int, over present: Row?
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    switch try scope(row, place) {
    case .inside: return nil
    case .outside: return present != nil && table.table.handover ? nil : outOfScope(table)
    case .parentOutside(let reference):
      return present != nil && table.table.handover ? nil : .missingParent(table, reference, catalog)
    case .parentMissing(let reference):
      guard postponed != nil else { return .missingParent(table, reference, catalog) }
      postponed?.append((deciding, hash, place))
      return nil
    }
  }

  func outOfScope(_ table: ServerTable) -> RefusalText {
    RefusalText(.outOfScope, "The row of \(table.name) is outside of what you may write. Withdraw the change.")
  }
}
