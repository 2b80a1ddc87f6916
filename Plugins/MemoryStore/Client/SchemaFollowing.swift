import SalvorModel
import SalvorStorage
import SalvorWire

/// The declared rules of a schema carry requests along: under their new names; what they say of a dropped table or column
/// is kept in the archive.
extension ClientContent {
  static let dropReason = "schema-dropped"

  /// After it `schema` has the names and columns of `after`, as far as it had them.
  mutating func follow(_ after: Schema) {
    let names = DeclaredNames(from: schema, to: after)
    guard !names.isEmpty else { return }
    noteFormer(names)
    keepDropped(names)
    rememberDropped(names)
    keptVersions = keptVersions.compactMap { stripped($0, names) }
    requests = requests.map(names.renamed)
    let statements = (openGroup?.statements ?? []).map { stripped($0, names).map(names.renamed) }
    openGroup?.statements = statements
    outgoing = outgoing.map { stripped($0, names) }.filter { !$0.changes.isEmpty }.map(names.renamed)
    baseChanges = baseChanges.filter { !names.droppedTables.contains($0.row.table) }.map { change in
      var change = change
      change.row = names.row(change.row)
      return change
    }
    settings.subscriptions = Set(
      settings.subscriptions.map { Subscription(target: names.table($0.target), parameters: $0.parameters) })
    settings.subscribed = Set(settings.subscribed.map(names.table))
    groups = groups.mapValues { group in
      var group = group
      group.subscriptions = group.subscriptions.renamed(names.table)
      return group
    }
    leaving = Dictionary(
      leaving.filter { !names.droppedTables.contains($0.key.table) }.map { (names.row($0.key), $0.value) }
    ) { first, _ in first }
    names.apply(to: &bases, of: schema, keepsTables: false)
    names.apply(to: &view, of: schema, keepsTables: false)
    names.apply(to: &aside, of: schema, keepsTables: false)
    names.apply(to: &schema)
    if outgoing.isEmpty, current != nil { takeUploadBack() }
  }

  /// What waiting requests are before what they wrote goes: a file that was put back from a copy does not know that they were sent, and
  /// the server has settled them with all their columns.
  private mutating func noteFormer(_ names: DeclaredNames) {
    func noting(_ request: Request) -> Request {
      let isOutstanding = request.state != .displaced && request.state != .kept
      let loses = request.changes.contains { change in
        names.droppedTables.contains(change.row.table)
          || change.columns.contains { column in
            names.droppedColumns[change.row.table]?.contains(column.name) == true && change.operation != .delete
              && (change.operation == .update || !column.new.isNull)
          }
      }
      guard isOutstanding, loses else { return request }
      var noted = request
      let former = FormerContent(first: request.firstCounter, content: known(request).content(schema))
      noted.former = (request.former + [former]).suffix(FormerContent.countMax)
      return noted
    }
    requests = requests.map(noting)
    outgoing = outgoing.map(noting)
  }

  /// What requests say of what goes becomes entries of their own; what is left of them stays.
  private mutating func keepDropped(_ names: DeclaredNames) {
    var kept: [Request] = []
    func keep(_ change: Change, _ message: String, reason: String = Self.dropReason) {
      counter += 1
      var change = change
      change.counter = counter
      var request = Request(stamp: stamp, changes: [change], state: .kept)
      request.refusal = Request.Refused(reason: reason, status: nil, message: message)
      kept.append(request)
    }
    func keep(_ changes: [Change], isArchived: Bool) {
      for change in changes {
        if names.droppedTables.contains(change.row.table), !isArchived {
          keep(change, "The table \(change.row.table) was dropped from the schema.")
        }
        for column in names.droppedColumns[change.row.table] ?? [] {
          if let was = change.acknowledged.first(where: { $0.name == column }), !was.value.isNull {
            var rest = change
            (rest.operation, rest.offer, rest.acknowledged) = (.update, nil, [])
            rest.columns = [ChangedColumn(name: column, old: .null, new: was.value)]
            keep(
              rest, "The server acknowledged this value and has lost it. The column was dropped from the schema.",
              reason: "lost-on-server")
          }
          guard let said = change.column(column), change.operation != .delete,
            change.operation == .update || !said.new.isNull
          else { continue }
          var rest = change
          (rest.operation, rest.offer, rest.acknowledged) = (.update, nil, [])
          rest.columns = [said]
          keep(rest, "The column \(change.row.table).\(column) was dropped from the schema.")
        }
      }
    }
    keep(openGroup?.statements.flatMap { $0 } ?? [], isArchived: false)
    for place in requests.indices {
      let request = requests[place]
      keep(request.changes, isArchived: request.state == .displaced || request.state == .kept)
      if request.state == .displaced, request.changes.contains(where: { names.droppedTables.contains($0.row.table) }) {
        requests[place].state = .kept
        requests[place].stateBefore = nil
        requests[place].refusal = Request.Refused(
          reason: Self.dropReason, status: nil, message: "A table of the request was dropped from the schema.")
      }
      requests[place] = stripped(requests[place], names)
    }
    requests.removeAll { $0.changes.isEmpty }
    // What is withheld is in the archive already.
    for version in keptVersions {
      let places = version.request.changes.indices.filter { !version.withheld.contains($0) }
      keep(places.map { version.request.changes[$0] }, isArchived: false)
    }
    requests += kept
  }

  /// What the server has acknowledged in columns that go, of rows that this device wrote: nobody knows yet whether it still has it.
  private mutating func rememberDropped(_ names: DeclaredNames) {
    for table in schema.tables {
      for column in names.droppedColumns[table.name] ?? [] {
        for key in bases.sortedKeys(of: table.name) {
          let name = RowName(table: table.name, key: key)
          let known = baseChanges.filter { $0.row == name }
          guard known.contains(where: { $0.isOwn && !$0.isDeleted }), let row = bases[name],
            let version = known.map(\.version).max()
          else { continue }
          let value = table.value(column, of: row)
          if value.isNull { continue }
          counter += 1
          let change = Change(
            counter: counter, made: version, row: names.row(name), operation: .update,
            columns: [ChangedColumn(name: column, old: .null, new: value)])
          let refused = Request.Refused(
            reason: "lost-on-server", status: nil,
            message: "The server acknowledged this value and has lost it. The column was dropped from the schema.")
          droppedValues.append(
            DroppedValue(
              entry: Request(stamp: stamp, changes: [change], state: .kept, refusal: refused), version: version))
        }
      }
    }
  }

  /// What the server keeps beside rows, without what goes; nil: there is nothing left.
  private func stripped(_ version: KeptVersion, _ names: DeclaredNames) -> KeptVersion? {
    let left = version.request.changes.map { stripped([$0], names).first }
    let places = left.indices.filter { left[$0] != nil }
    if places.isEmpty { return nil }
    var now = version
    now.request.changes = places.compactMap { left[$0] }.map(names.renamed)
    now.versions = places.map { version.versions[$0] }
    if !version.lost.isEmpty { now.lost = places.map { version.lost[$0] } }
    now.withheld = Set(places.indices.filter { version.withheld.contains(places[$0]) })
    return now
  }

  /// Without what goes; entries of the archive keep the changes of tables that are gone.
  private func stripped(_ request: Request, _ names: DeclaredNames) -> Request {
    var request = request
    request.changes = stripped(request.changes, names, keepsTables: request.state == .kept)
    return request
  }

  private func stripped(_ changes: [Change], _ names: DeclaredNames, keepsTables: Bool = false) -> [Change] {
    changes.compactMap { change in
      if names.droppedTables.contains(change.row.table) { return keepsTables ? change : nil }
      guard let gone = names.droppedColumns[change.row.table] else { return change }
      var change = change
      change.columns.removeAll { gone.contains($0.name) }
      change.acknowledged.removeAll { gone.contains($0.name) }
      let isUpon = change.madeUpon != nil
      change.offer?.written.removeAll { gone.contains($0) }
      if isUpon, change.madeUpon == nil { change.offer = nil }
      return change.operation == .update && change.columns.isEmpty ? nil : change
    }
  }

  /// The server has said that it was not processed.
  mutating func takeUploadBack() {
    for place in requests.indices {
      if [.sent, .unknownOutcome].contains(requests[place].state) { requests[place].state = .queued }
      if let before = requests[place].stateBefore, [.sent, .unknownOutcome].contains(before) {
        requests[place].stateBefore = .queued
      }
    }
    outgoing = []
    current = nil
    upload = nil
  }
}

/// What the device's schema has and the server's SyncConfig does not (`SyncConfig.schema(own:added:)`).
extension ClientContent {
  /// What stays when `own` no longer names it (decision 214). A device that has met no server keeps whole tables, and columns where the
  /// file that had them was of a later version: a column that another file lacks is refused by name.
  func added(beside own: Schema) -> [Table] {
    let added = config.added(in: schema)
    if isConfigDelivered || own.version < self.own.version { return added }
    return added.filter { table in
      guard own.table(table.name) != nil else { return true }
      // It stayed when an earlier file was withdrawn.
      let known = self.own.table(table.name)
      return table.columns.allSatisfy { table.primaryKey.contains($0.name) || known?.columnIndex($0.name) == nil }
    }
  }

  private func isUnknown(_ change: Change) -> Bool {
    guard let known = config.entries.first(where: { $0.table.name == change.row.table })?.table else { return true }
    guard change.operation != .delete, let table = schema.table(change.row.table) else { return false }
    return change.columns.contains { column in
      guard known.columnIndex(column.name) == nil else { return false }
      let value = table.columnIndex(column.name).flatMap { table.columns[$0].defaultValue } ?? .null
      return change.operation == .update || column.new != value
    }
  }

  /// Of requests in order, the places of those that the server cannot be told yet, and of those that depend on them.
  func unsendable(_ waiting: [Request]) -> Set<Int> {
    let roots = waiting.indices.filter {
      waiting[$0].changes.contains(where: isUnknown) || (waiting[$0].isWaiting && !healDue)
    }
    if roots.isEmpty { return [] }
    return Dependence(waiting, on: bases, schema: schema).dependents(of: Set(roots))
  }

  /// What of a request the server knows.
  func known(_ request: Request) -> Request {
    var request = request
    for place in request.changes.indices {
      let change = request.changes[place]
      guard let known = config.entries.first(where: { $0.table.name == change.row.table })?.table else { continue }
      request.changes[place].columns.removeAll { known.columnIndex($0.name) == nil }
    }
    return request
  }

  /// After a SyncConfig: what the upload under way cannot say to this server waits for a later one.
  mutating func leaveOutUnsendable() {
    guard current != nil else { return }
    let left = unsendable(outgoing)
    for place in left {
      if let index = requests.firstIndex(where: { $0.id == outgoing[place].id }) { requests[index].state = .queued }
    }
    outgoing = outgoing.indices.filter { !left.contains($0) }.map { known(outgoing[$0]) }
    if outgoing.isEmpty { takeUploadBack() }
  }
}
