import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides a set of requests in order, over the server's rows and over each other, and writes nothing: what the rows come
/// to be is an overlay (semantics 7). Whether the result may stand in the tables is `SetWriter`'s to find out.
struct SetEvaluation {
  /// What the conflict book is told: a change that is kept beside the server's row for a person, or one that the table's
  /// policy settled.
  struct ConflictVersion {
    var request: RequestID
    var change: StagedChange
    var table: Int
    /// Nil: there is none.
    var server: Row?
    /// The row that it would make; nil: the server has it, or it makes none.
    var unmade: Row?
    /// The entry of the change log by which somebody else changed the row; nil: none that is known.
    var serverEntry: Int64?
    /// The table's policy settled it, and this is what became of the row; nil: it is kept beside the row.
    var settled: Settled?

    struct Settled {
      /// Nil: it was deleted.
      var row: Row?
    }
  }

  /// Whose upload it is.
  private let upload: ProcessRequest
  private let departures: Departures
  /// Milliseconds since 1970.
  private let now: Int64
  private(set) var overlay: RowOverlay
  /// Conflicts, kept and settled ones, of the requests that are accepted.
  private(set) var kept: [ConflictVersion] = []
  /// Rows that the sender must be fed.
  private(set) var fed: [UInt64] = []
  /// The request being decided.
  private var deciding = 0
  /// While requests are decided that depend on one another: rows whose scope comes from one that a later of them may make,
  /// each with the request that wrote it.
  private var postponed: [(request: Int, hash: UInt64, place: Int)]?
  private var catalog: Catalog { overlay.rows.catalog }
  private var principal: Principal { upload.principal }

  init(_ rows: RowReader, _ upload: ProcessRequest, _ departures: Departures, now: Int64) {
    self.departures = departures
    overlay = RowOverlay(rows)
    self.upload = upload
    self.now = now
  }

  /// Nil: accepted, and the overlay has it.
  mutating func decide(_ request: StagedRequest, _ foreign: inout ForeignChanges) throws -> RefusalText? {
    let fedBefore = fed.count
    let keptBefore = kept.count
    deciding = request.ordinal
    var isKept = false
    var undo: [(hash: UInt64, row: Row?)] = []
    for change in request.changes {
      var refusal = change.refusal
      if refusal == nil, let place = change.table {
        let present = try row(place, change.key, change.hash, &foreign)
        undo.append((change.hash, present))
        refusal = try apply(change, of: request.id, place, over: present, &isKept, &foreign)
      }
      guard let refusal else { continue }
      for entry in undo.reversed() { overlay.set(entry.hash, to: entry.row) }
      fed.removeSubrange(fedBefore...)
      kept.removeSubrange(keptBefore...)
      return refusal
    }
    if isKept {
      // A request stands or falls as a whole: none of its rows is written, each is kept beside the server's.
      for entry in undo.reversed() { overlay.set(entry.hash, to: entry.row) }
      kept.removeSubrange(keptBefore...)
      for change in request.changes {
        guard let place = change.table else { continue }
        let server = overlay[change.hash]?.now
        let makesRow = server == nil && change.operation == .insert
        fed.append(change.hash)
        kept.append(
          ConflictVersion(
            request: request.id, change: change, table: place, server: server,
            unmade: makesRow ? change.applied(to: nil, of: catalog.tables[place]) : .none,
            serverEntry: try foreign.newestWrite(
              of: change.hash, after: change.made, at: ForeignChanges.Place(table: place, key: change.key))))
      }
    }
    return nil
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

  /// Whether a row that the request would leave references one that is not there.
  func lacksParent(_ request: StagedRequest, _ steps: [Step]) throws -> Bool {
    for (change, step) in zip(request.changes, steps) {
      guard let place = change.table, let after = step.after else { continue }
      let table = catalog.tables[place]
      for reference in table.table.references {
        guard let column = table.place(reference.column), !after[column].isNull,
          let parent = catalog.place(of: reference.table)
        else { continue }
        if try overlay.peek(parent, [after[column]]) == nil { return true }
      }
    }
    return false
  }

  private mutating func apply(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row?, _ isKept: inout Bool,
    _ foreign: inout ForeignChanges
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    if let present, try scope(present, place) != .inside, postponed?.contains(where: { $0.hash == change.hash }) != true
    {
      return try answerOutside(change, place)
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
    if try entry?.before != entry?.now || departures.hasLeft(place, change.key, since: change.made) {
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
      ConflictVersion(
        request: request, change: change, table: place, server: present, unmade: .none,
        serverEntry: try foreign.newestWrite(
          of: change.hash, after: change.made, at: ForeignChanges.Place(table: place, key: change.key)),
        settled: ConflictVersion.Settled(row: row)))
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

  /// Over the server's rows and over what the requests before made of them.
  private func scope(_ row: Row, _ place: Int) throws -> ScopeFinding {
    try scope(row, place, over: overlay, by: catalog.tables[place].alternatives)
  }

  private func scope(
    _ row: Row, _ place: Int, over overlay: RowOverlay, by alternatives: [ScopeAlternative]
  ) throws -> ScopeFinding {
    let principal = principal
    let catalog = overlay.rows.catalog
    let search = ScopeSearch(
      by: ScopeReader(catalog.schema, ReadScope(principal)),
      value: { column, row, name in
        catalog.table(name).flatMap { table in table.place(column).map { row[$0] } } ?? .null
      },
      rows: { join, value throws(any Error) in
        guard let joined = catalog.place(of: join.table) else { return [] }
        if join.reference != nil { return try overlay.peek(joined, [value]).map { [$0] } ?? [] }
        return try overlay.rows(joined, by: join, value, principal)
      })
    return try search.finding(row, of: catalog.tables[place].name, by: alternatives)
  }

  /// A write never brings its writer into a scope that he was not in before it (semantics 7): what speaks against a row
  /// of a table that scopes go through, where it shows him rows that he did not see.
  ///
  /// - Parameter before: as the rows were before it.
  private func refusalOfLead(_ row: Row, _ place: Int, since before: RowOverlay) throws -> RefusalText? {
    let table = catalog.tables[place]
    for lead in catalog.leads[place] {
      guard let target = table.place(lead.join.target), !row[target].isNull else { continue }
      let shown = catalog.tables[lead.table]
      let isShown = ScopeAlternative(joins: [lead.join])
      var isBrought = false
      try overlay.each(lead.table, lead.join.column, row[target]) { candidate in
        // Another row of the table has shown it before, and everything else under the same value.
        if try scope(candidate, lead.table, over: before, by: [isShown]) == .inside { return false }
        isBrought =
          try scope(candidate, lead.table, over: before, by: shown.alternatives) != .inside
          && scope(candidate, lead.table, over: overlay, by: shown.alternatives) == .inside
        return !isBrought
      }
      guard isBrought else { continue }
      guard let reference = lead.reference else { return outOfScope(table) }
      return .missingParent(table, reference, catalog)
    }
    return nil
  }

  private func outOfScope(_ table: ServerTable) -> RefusalText {
    RefusalText(.outOfScope, "The row of \(table.name) is outside of what you may write. Withdraw the change.")
  }
}

extension RefusalText {
  /// Of a table with a scope the words are the same for a row that is not there and for one that the sender may not see.
  static func missingParent(_ table: ServerTable, _ reference: Reference, _ catalog: Catalog) -> RefusalText {
    let isScoped = catalog.table(reference.table)?.isScoped == true
    return RefusalText(
      .missingParent,
      "The row of \(reference.table) that \(table.name).\(reference.column) references is not on the server"
        + "\(isScoped ? ", or not within your scope" : ""). Insert it first.")
  }

  static func rowDeleted(_ table: ServerTable) -> RefusalText {
    RefusalText(
      .rowDeleted,
      "The row of \(table.name) was deleted on the server\(table.isScoped ? ", or is not within your scope" : ""). "
        + "Withdraw the change or insert the row.")
  }
}
