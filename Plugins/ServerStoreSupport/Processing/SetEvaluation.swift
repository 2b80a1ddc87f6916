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
  var offers = OfferCount()
  /// Milliseconds since 1970.
  private let now: Int64
  var overlay: RowOverlay
  /// Conflicts, kept and settled ones, of the requests that are accepted.
  var kept: [UploadConflict] = []
  /// Rows that the sender must be fed.
  var fed: [UInt64] = []
  /// Rows that the server lost and that an ordinary delete found gone, and whether its sender is known to have seen them.
  var deletesOfNothing: [(row: UInt64, isSeen: Bool)] = []
  /// Rows that an accepted request changed, also those that a later one changed back.
  private(set) var changed: Set<UInt64> = []
  /// The request being decided.
  var deciding = 0
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
    let deletedBefore = deletesOfNothing.count
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
      deletesOfNothing.removeSubrange(deletedBefore...)
    }
    for change in request.changes {
      var refusal = change.refusal
      if refusal == nil, let place = change.table {
        let present = try row(place, change.key, change.hash, &foreign)
        undo.append((change.hash, present))
        refusal = try apply(change, of: request.id, place, over: present, &isKept, &foreign)
        if refusal == nil { try noteWrite(change, place) }
      }
      guard let refusal else { continue }
      takeBack()
      if refusal.reason == .missingParent, let wait { return waits(request, wait) }
      return refusal
    }
    // What would change nothing has nothing to wait for.
    if let wait, offers.healed > offersBefore.healed || offers.conflicts > offersBefore.conflicts {
      takeBack()
      return waits(request, wait)
    }
    if isKept {
      // A request stands or falls as a whole: none of its rows is written, each is kept beside the server's.
      for entry in undo.reversed() { overlay.set(entry.hash, to: entry.row) }
      kept.removeSubrange(keptBefore...)
      takeBackHealings()
      offers = offersBefore
      deletesOfNothing.removeSubrange(deletedBefore...)
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

  /// The server holds requests of one change alone.
  private func waits(_ request: StagedRequest, _ reason: WaitingReason) -> RefusalText {
    if !request.mayWait, let table = heals.intake.needsConsent(request, catalog) { return .lost(table) }
    return .waits(reason)
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

  mutating func row(
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
    if let offer = change.offer, change.madeUpon == nil {
      return try applyOffer(change, offer, of: request, place, over: present, &isKept, &foreign)
    }
    switch change.operation {
    case .insert:
      guard let present else { return try write(change, place, over: nil) }
      if try change.columns.indices.allSatisfy({ try holds(present, change.columns[$0], change.new[$0], table) }) {
        if change.columns.count < table.columns.count || upload.isNarrowed || overlay.rows.connection.altersRows {
          fed.append(change.hash)
        }
        return nil
      }
      if table.table.sameKey == .refuse {
        return RefusalText(.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
      }
      // The same key is the same thing: merged like an update of the columns that the insert sets.
      fed.append(change.hash)
      let merging = change.merging(into: table)
      let isInConflict = try merging.columns.enumerated().contains { index, column in
        try table.columns[column].isSet(present[column]) && !holds(present, column, merging.new[index], table)
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
      let standing = try standing(upon: change, place)
      let isInConflict = try change.columns.indices.contains { index in
        let column = change.columns[index]
        return try present[column] != change.old[index] && standing?.isUnseen(table.bits[column]) != false
          && !holds(present, column, change.new[index], table)
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

  /// The row has the value already: as it was sent, or as the database would write it.
  private func holds(_ row: Row, _ column: Int, _ sent: Value, _ table: ServerTable) throws -> Bool {
    let connection = overlay.rows.connection
    if row[column] == sent { return true }
    guard connection.altersRows, !row[column].isNull, !sent.isNull else { return false }
    let name = table.columns[column].name
    guard let stored = try connection.asStored(sent, in: table.name, name) else { return false }
    return try stored == row[column] || stored == connection.asStored(row[column], in: table.name, name)
  }

  /// Of a row that the sender cannot see now, or of a delete's that is gone. Whether it is there is told only where he could
  /// see it, or has written it himself; an insert must be told that its key is taken.
  func answerOutside(_ change: StagedChange, _ place: Int) throws -> RefusalText? {
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
  mutating func settle(
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
  mutating func note(
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

  mutating func write(_ change: StagedChange, _ place: Int, over present: Row?) throws -> RefusalText? {
    guard change.operation != .delete else {
      overlay.set(change.hash, to: nil)
      return nil
    }
    return try put(change.applied(to: present, of: catalog.tables[place]), change.hash, place, over: present)
  }

  mutating func put(_ row: Row, _ hash: UInt64, _ place: Int, over present: Row?) throws -> RefusalText? {
    let before = catalog.leads[place].isEmpty ? nil : overlay
    overlay.set(hash, to: row)
    if let refusal = try scopeRefusal(row, hash, place, over: present) { return refusal }
    guard let before else { return nil }
    return try refusalOfLead(row, place, since: before)
  }

  // MARK: What offers leave

  /// - Parameter isBeneath: the upload writes over it.
  mutating func heal(
    _ change: StagedChange, _ place: Int, _ standing: RowStanding, _ mask: Int64, entry: Int64,
    claim: HealBook.Claim? = nil, isBeneath: Bool = false
  ) {
    healingsBefore.append((change.hash, healings[change.hash]))
    healings[change.hash, default: []].append(
      HealBook.Healing(
        table: place, key: change.key, version: standing.version.original, mask: mask, entryMask: entry,
        hasLines: standing.hasLines, claim: claim, isBeneath: isBeneath))
  }

  /// A person's write of these columns was made upon the version of an offer: that was there, and whoever offers it, or an older one, brings
  /// nothing (decision 236). Where something newer stood there, that is what was written over.
  mutating func noteBeneath(_ change: StagedChange, _ place: Int, _ standing: RowStanding, _ columns: [Int]) {
    let bits = columns.map { catalog.tables[place].bits[$0] }.filter { standing.isOlderOrNone($0) }
    if !bits.isEmpty { heal(change, place, standing, ColumnMask.mask(bits), entry: 0, isBeneath: true) }
  }

  /// What is known of the row beside the lost version that an update was made upon; nil: none was lost.
  private func standing(upon change: StagedChange, _ place: Int) throws -> RowStanding? {
    guard let version = change.madeUpon, try heals.refusal(of: version) == nil else { return nil }
    return try heals.standing(
      of: change.key, change.hash, at: place, for: version, pending: healings[change.hash] ?? [])
  }

  private mutating func takeBackHealings() {
    while let (row, before) = healingsBefore.popLast() { healings[row] = before }
  }

  /// An ordinary change of a row: what an offer of the same upload has brought there is beneath it, and so is the version that it was made upon.
  private mutating func noteWrite(_ change: StagedChange, _ place: Int) throws {
    guard change.offer == nil || change.madeUpon != nil else { return }
    if let before = healings[change.hash] {
      let bits = catalog.tables[place].bits
      let mask = change.operation == .delete ? ColumnMask.all : ColumnMask.mask(change.columns.map { bits[$0] })
      healingsBefore.append((change.hash, before))
      healings[change.hash] = before.flatMap { $0.writtenOver(mask) }
    }
    if let standing = try standing(upon: change, place) { noteBeneath(change, place, standing, change.columns) }
  }

  // MARK: Scope

  /// What speaks against a row that is to be.
  mutating func scopeRefusal(
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
