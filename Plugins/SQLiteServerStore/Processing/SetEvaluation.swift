import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides a set of requests in order, over the server's rows and over each other, and writes nothing: what the rows come
/// to be is an overlay (semantics 7). Whether the result may stand in the tables is `SetWriter`'s to find out.
struct SetEvaluation {
  /// What is kept beside the server's row, for a person.
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
  }

  /// Whose upload it is.
  private let upload: ProcessRequest
  /// Milliseconds since 1970.
  private let now: Int64
  private(set) var overlay: RowOverlay
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

  init(_ rows: RowReader, _ upload: ProcessRequest, now: Int64) {
    overlay = RowOverlay(rows)
    self.upload = upload
    self.now = now
  }

  /// Nil: accepted, and the overlay has it.
  mutating func decide(_ request: StagedRequest, _ foreign: inout ForeignChanges) throws -> RefusalText? {
    let fedBefore = fed.count
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
      return refusal
    }
    if isKept {
      // A request stands or falls as a whole: none of its rows is written, each is kept beside the server's.
      for entry in undo.reversed() { overlay.set(entry.hash, to: entry.row) }
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
      return outOfScope(table)
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
      // The same key is the same thing: merged like an update of every column.
      fed.append(change.hash)
      return try settle(change, of: request, place, over: present, &isKept)
    case .update:
      guard let present else {
        return RefusalText(
          .rowDeleted, "The row of \(table.name) was deleted on the server. Withdraw the change or insert the row.")
      }
      guard try foreign.isNewer(change, at: place) else {
        return try write(change, place, over: present)
      }
      fed.append(change.hash)
      let isInConflict = change.columns.indices.contains { index in
        let value = present[change.columns[index]]
        return value != change.old[index] && value != change.new[index]
      }
      return isInConflict
        ? try settle(change, of: request, place, over: present, &isKept) : try write(change, place, over: present)
    case .delete:
      guard let present else { return nil }
      guard try foreign.isNewer(change, at: place) else {
        return try write(change, place, over: present)
      }
      fed.append(change.hash)
      return try settle(change, of: request, place, over: present, &isKept)
    }
  }

  /// The table's policy settles a conflict.
  private mutating func settle(
    _ change: StagedChange, of request: RequestID, _ place: Int, over present: Row, _ isKept: inout Bool
  ) throws -> RefusalText? {
    let table = catalog.tables[place]
    let answer = catalog.policies[place].answer(in: table.table) { conflict(change, request, table, present) }
    switch answer {
    case .failed(let message): return RefusalText(.conflictPolicy, message)
    case .settled(.client): return try write(change, place, over: present)
    case .settled(.server):
      return RefusalText(
        .conflict, "The row of \(table.name) was changed on the server meanwhile. Look at it and change it again.")
    case .settled(.both):
      isKept = true
      return nil
    case .settled(.merged(let values)):
      var row = present
      for value in values { if let column = table.place(value.name) { row[column] = value.value } }
      return try put(row, change.hash, place, over: present)
    }
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
    overlay.set(hash, to: row)
    return try scopeRefusal(row, hash, place, over: present)
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
    case .parentMissing(let reference):
      guard postponed != nil else { return RefusalText.missingParent(table, reference) }
      postponed?.append((deciding, hash, place))
      return nil
    }
  }

  /// Over the server's rows and over what the requests before made of them.
  private func scope(_ row: Row, _ place: Int) throws -> ScopeFinding {
    let overlay = overlay, principal = principal
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
    let table = catalog.tables[place]
    return try search.finding(row, of: table.name, by: table.alternatives)
  }

  private func outOfScope(_ table: ServerTable) -> RefusalText {
    RefusalText(.outOfScope, "The row of \(table.name) is outside of what you may write. Withdraw the change.")
  }
}

extension RefusalText {
  static func missingParent(_ table: ServerTable, _ reference: Reference) -> RefusalText {
    RefusalText(
      .missingParent,
      "The row of \(reference.table) that \(table.name).\(reference.column) references is not on the server. Insert it first."
    )
  }
}
