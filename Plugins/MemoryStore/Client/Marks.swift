import SalvorModel
import SalvorStorage

/// The application's flag columns (semantics 3). A row whose deleted column is set is not there for requests and bases: to
/// set the mark is a delete, to take it back an insert, and what is written to it meanwhile nobody hears of.
extension ClientContent {
  /// What one statement changed, the marks among it, with all that a mark takes along.
  mutating func changes(of statement: [RowChange], _ runner: inout StatementRunner) -> [Change] {
    var captured: [Change] = []
    var withdrawn: Set<Int64> = []
    for change in statement {
      guard let table = schema.table(change.name.table), table.maintained != .client else { continue }
      let before = change.before.flatMap { table.isMarked($0) ? nil : $0 }
      let after = change.after.flatMap { table.isMarked($0) ? nil : $0 }
      switch (change.before, change.after) {
      case (.some, .some) where before != nil && after == nil: captured += mark(change.name, before, &runner)
      case (.some, .some) where before == nil && after != nil:
        captured += unmark(change.name, &runner, withdrawn: &withdrawn)
      default:
        // Another row under the name, or none: what a mark did to it is over.
        if change.before == nil || change.after == nil { marks[change.name] = nil }
        if change.before == nil, let row = change.after, table.isMarked(row) {
          marks[change.name] = Mark(root: change.name, counter: nil)
        }
        if let made = self.change(for: RowChange(name: change.name, before: before, after: after)) {
          captured.append(made)
        }
      }
    }
    takeOut(withdrawn)
    for change in captured { setDirty(change.row, in: &runner) }
    return captured
  }

  // MARK: A mark is set

  /// The deletes of the rows below, the lowest first, and of the row itself.
  private mutating func mark(_ root: RowName, _ before: Row?, _ runner: inout StatementRunner) -> [Change] {
    guard let table = schema.table(root.table) else { return [] }
    let descent = MarkDescent(of: table, in: schema)
    var captured: [Change] = []
    for name in rowsBelow(root, descent, runner.tables).reversed() {
      guard let below = schema.table(name.table), let row = runner.tables[name],
        let change = change(for: RowChange(name: name, before: row, after: nil))
      else { continue }
      captured.append(change)
      marks[name] = Mark(root: root, counter: change.counter)
      let stays = descent.steps.contains { $0.table.name == name.table && $0.stays }
      if stays {
        runner.set(name, below.flagged(row, below.flags.deleted, true))
      } else {
        for gone in runner.remove(name) { marks[gone] = nil }
      }
    }
    if let change = change(for: RowChange(name: root, before: before, after: nil)) {
      captured.append(change)
      marks[root] = Mark(root: root, counter: change.counter)
    }
    return captured
  }

  /// The undeleted rows below, the nearest first.
  private func rowsBelow(_ root: RowName, _ descent: MarkDescent, _ tables: MemoryTables) -> [RowName] {
    var found: [RowName] = []
    var waiting = [root]
    while !waiting.isEmpty {
      let parent = waiting.removeFirst()
      for step in descent.steps {
        let columns = step.references.filter { $0.table == parent.table }.map(\.column)
        for key in tables.sortedKeys(of: step.table.name) {
          let name = RowName(table: step.table.name, key: key)
          guard name != root, !found.contains(name), let row = tables[name], !step.table.isMarked(row),
            columns.contains(where: { step.table.value($0, of: row) == parent.key[0] })
          else { continue }
          found.append(name)
          waiting.append(name)
        }
      }
    }
    return found
  }

  // MARK: It is taken back

  /// The row, and those that its mark took along, are there again. A delete that waits is withdrawn, and what was written
  /// to the row meanwhile is an update; one that does not wait any more stands, and is followed by an insert.
  private mutating func unmark(
    _ root: RowName, _ runner: inout StatementRunner, withdrawn: inout Set<Int64>
  ) -> [Change] {
    let group = marks.filter { $0.value.root == root && $0.key != root }.sorted {
      ($0.value.counter ?? 0) > ($1.value.counter ?? 0)
    }
    var captured: [Change] = []
    for (name, mark) in [(root, marks[root])] + group.map({ ($0.key, .some($0.value)) }) {
      guard let table = schema.table(name.table) else { continue }
      let deleted = mark?.counter.flatMap(deletion)
      let gone = mark?.gone
      marks[name] = nil
      let row: Row
      if let there = runner.tables[name] {
        row = table.flagged(there, table.flags.deleted, false)
      } else if let before = deleted?.before ?? (deleted == nil ? nil : gone) {
        row = zip(table.columns, before).map { column, value in
          table.travelling.contains(column) ? value : column.defaultValue ?? .null
        }
      } else {
        continue
      }
      runner.set(name, row)
      var before: Row?
      if let deleted, deleted.waits, deleted.before != nil {
        withdrawn.insert(deleted.counter)
        before = deleted.before
      }
      if let change = change(for: RowChange(name: name, before: before, after: row)) { captured.append(change) }
    }
    return captured
  }

  private struct Deletion {
    var counter: Int64
    /// Its request has not been sent.
    var waits: Bool
    /// The row that it deletes, on the bases as they are; nil: there is none.
    var before: Row?
  }

  /// The delete that a mark made, where it is outstanding.
  private func deletion(_ counter: Int64) -> Deletion? {
    let open = openGroup.map { $0.statements.flatMap { $0 } } ?? []
    let changes =
      outstanding.flatMap { request in request.changes.map { ($0, request.state == .queued) } }
      + open.map { ($0, true) }
    guard let (change, waits) = changes.first(where: { $0.0.counter == counter }), change.operation == .delete,
      let table = schema.table(change.row.table)
    else { return nil }
    var before = bases[change.row]
    for (earlier, _) in changes where earlier.row == change.row && earlier.counter != counter {
      before = earlier.applied(to: before, of: table)
    }
    return Deletion(counter: counter, waits: waits, before: before)
  }

  private mutating func takeOut(_ counters: Set<Int64>) {
    guard !counters.isEmpty else { return }
    for place in requests.indices { requests[place].changes.removeAll { counters.contains($0.counter) } }
    requests.removeAll { $0.changes.isEmpty }
    guard let open = openGroup else { return }
    openGroup?.statements = open.statements.map { $0.filter { !counters.contains($0.counter) } }.filter { !$0.isEmpty }
  }

  // MARK: What is shown

  /// The marked rows of the view that stay in it: an outstanding request deletes them, or a row that is there needs them until
  /// the next download (`basesMayBreak`). Of two in each other's way, or where a row is in the way that is there, the marked one goes.
  func markedRows(
    besides shown: MemoryTables, _ outstanding: [Request], _ constraints: Constraints, basesMayBreak: Bool
  ) -> MemoryTables {
    var last: [RowName: SalvorModel.Operation] = [:]
    for change in outstanding.flatMap(\.changes) { last[change.row] = change.operation }
    var found = MemoryTables()
    for table in schema.synchronized where table.flags.deleted != nil {
      for (key, row) in view.rows(of: table.name) where table.isMarked(row) {
        let name = RowName(table: table.name, key: key)
        if shown[name] == nil { found[name] = row }
      }
    }
    let needed = basesMayBreak ? needed(found, shown, outstanding) : []
    var marked: Set<RowName> = []
    var all = shown
    for name in found.names where last[name] == .delete || (last[name] == nil && needed.contains(name)) {
      marked.insert(name)
      all[name] = found[name]
    }
    while let name = inTheWay(marked, constraints.violations(in: all)) {
      marked.remove(name)
      all[name] = nil
    }
    return all
  }

  /// The marked rows that a row which is there references, straight or by other marked ones, by no request's doing.
  private func needed(_ marked: MemoryTables, _ shown: MemoryTables, _ outstanding: [Request]) -> Set<RowName> {
    var set: [RowName: Set<String>] = [:]
    for change in outstanding.flatMap(\.changes) where change.operation != .delete {
      set[change.row, default: []].formUnion(change.columns.map(\.name))
    }
    var needed: Set<RowName> = []
    func parents(_ name: RowName, _ tables: MemoryTables) -> [RowName] {
      guard let table = schema.table(name.table), let row = tables[name] else { return [] }
      return table.references.filter { set[name]?.contains($0.column) != true }
        .map { RowName(table: $0.table, key: [table.value($0.column, of: row)]) }
    }
    var waiting = shown.names.flatMap { parents($0, shown) }
    while let name = waiting.popLast() {
      if marked[name] != nil, needed.insert(name).inserted { waiting += parents(name, marked) }
    }
    return needed
  }

  private func inTheWay(_ marked: Set<RowName>, _ violations: Set<Violation>) -> RowName? {
    for violation in violations {
      switch violation {
      case .notNull(let name, _), .check(let name, _), .missingParent(let name, _):
        if marked.contains(name) { return name }
      case .unique(let one, let other, _):
        if let name = [other, one].first(where: marked.contains) { return name }
      }
    }
    return nil
  }

  /// The base of a marked row has changed: the row follows it in the columns that did. It goes with its base.
  mutating func followBase(_ name: RowName, from old: Row?, to new: Row?) {
    guard let table = schema.table(name.table), var row = view[name], table.isMarked(row) else { return }
    guard let new else {
      if old != nil { view[name] = nil }
      return
    }
    for place in table.columns.indices where table.travelling.contains(table.columns[place]) {
      if old?[place] != new[place] { row[place] = new[place] }
    }
    view[name] = row
  }

  /// The flags of rows that are shown: no mark on a row that is there, dirty where a request is outstanding.
  func showFlags(in shown: inout MemoryTables, outstanding: [Request]) {
    let dirty = Set(outstanding.flatMap(\.rows))
    for table in schema.synchronized where table.flags != FlagColumns() {
      shown.rewrite(table.name) { row in
        let name = RowName(table: table.name, key: table.key(of: row))
        guard table.isDirty(row) != dirty.contains(name) else { return row }
        return table.flagged(row, table.flags.dirty, dirty.contains(name))
      }
    }
  }

  private func setDirty(_ name: RowName, in runner: inout StatementRunner) {
    guard let table = schema.table(name.table), let row = runner.tables[name], !table.isDirty(row) else { return }
    runner.set(name, table.flagged(row, table.flags.dirty, true))
  }

}

extension ClientContent {
  /// Marked rows of tables that have no deleted column in `after`: what waits of them is a delete like any other, and its row is not there.
  mutating func letMarkedRowsGo(_ after: Schema) {
    for table in schema.synchronized where table.flags.deleted != nil {
      guard let now = after.tables.table(formerly: table.name),
        table.flags.deleted.flatMap({ now.column(formerly: $0) })?.name != now.flags.deleted || now.flags.deleted == nil
      else { continue }
      for (key, row) in view.rows(of: table.name) where table.isMarked(row) {
        let name = RowName(table: table.name, key: key)
        (view[name], marks[name]) = (nil, nil)
      }
    }
  }

  // MARK: Rows from before Salvor

  /// Rows that no capture has seen. One that another program marked is no row to send, but one that the server is to delete,
  /// with all that is below it, as if the mark had been set just now; a child's before its parent's.
  mutating func adopt(_ tables: [Table]) {
    for table in schema.parentsFirst(tables).reversed() where table.flags.deleted != nil {
      for row in view.sortedRows(of: table.name) {
        let name = RowName(table: table.name, key: table.key(of: row))
        if table.isMarked(row), marks[name] == nil { adoptMarked(name, table) }
      }
    }
    for table in schema.parentsFirst(tables) {
      for row in view.sortedRows(of: table.name) where !table.isMarked(row) {
        let columns = table.travelling.map {
          ChangedColumn(name: $0.name, old: .null, new: table.value($0.name, of: row))
        }
        let name = RowName(table: table.name, key: table.key(of: row))
        requests.append(Request(stamp: stamp, changes: [adopted(name, .insert, columns)]))
      }
    }
  }

  private mutating func adoptMarked(_ root: RowName, _ table: Table) {
    let descent = MarkDescent(of: table, in: schema)
    var changes: [Change] = []
    for name in rowsBelow(root, descent, view).reversed() {
      guard let below = schema.table(name.table), let row = view[name] else { continue }
      let change = adopted(name, .delete, [])
      changes.append(change)
      let stays = descent.steps.contains { $0.table.name == name.table && $0.stays }
      view[name] = stays ? below.flagged(row, below.flags.deleted, true) : nil
      marks[name] = Mark(root: root, counter: change.counter, gone: stays ? nil : row)
    }
    for step in descent.steps where !step.stays {
      for row in view.sortedRows(of: step.table.name) where step.table.isMarked(row) {
        let hasParents = step.references.allSatisfy { reference in
          let value = step.table.value(reference.column, of: row)
          return value.isNull || view[RowName(table: reference.table, key: [value])] != nil
        }
        // Marked before: it goes where its parent goes.
        if !hasParents { view[RowName(table: step.table.name, key: step.table.key(of: row))] = nil }
      }
    }
    let change = adopted(root, .delete, [])
    marks[root] = Mark(root: root, counter: change.counter)
    requests.append(Request(stamp: stamp, changes: changes + [change]))
  }

  private mutating func adopted(_ name: RowName, _ operation: SalvorModel.Operation, _ columns: [ChangedColumn])
    -> Change
  {
    counter += 1
    let group = schema.table(name.table)?.group ?? ""
    return Change(
      counter: counter, made: groups[group]?.cursor?.number ?? 0, row: name, operation: operation, columns: columns)
  }
}

extension Table {
  /// The row with a flag set or cleared; as it is where the table has no such column.
  func flagged(_ row: Row, _ flag: String?, _ isSet: Bool) -> Row {
    guard let place = flag.flatMap(columnIndex) else { return row }
    var row = row
    row[place] = .integer(isSet ? 1 : 0)
    return row
  }
}
