import SalvorModel
import SalvorStorage

/// What triggers do on a device (semantics 3).
extension ClientContent {
  /// Captures what one statement did to synchronized tables. Its changes are one request where there are several: a
  /// cascade, a key change, a deleted mark.
  mutating func capture(_ statement: [RowChange], _ runner: inout StatementRunner) {
    let captured = changes(of: statement, &runner)
    guard !captured.isEmpty else { return }
    if openGroup != nil {
      openGroup?.statements.append(captured)
    } else {
      requests.append(Request(stamp: stamp, changes: captured))
    }
  }

  mutating func change(for change: RowChange) -> Change? {
    guard let table = schema.table(change.name.table), table.maintained != .client else { return nil }
    let operation: SalvorModel.Operation
    var columns: [ChangedColumn]
    let names = table.travelling.map(\.name)
    switch (change.before, change.after) {
    case (nil, let after?):
      operation = .insert
      columns = names.map { ChangedColumn(name: $0, old: .null, new: table.value($0, of: after)) }
    case (let before?, nil):
      operation = .delete
      columns = names.map { ChangedColumn(name: $0, old: table.value($0, of: before), new: .null) }
    case (let before?, let after?):
      operation = .update
      columns = table.changedColumns(before, after).map {
        ChangedColumn(name: $0, old: table.value($0, of: before), new: table.value($0, of: after))
      }
      // Updates that change nothing capture nothing.
      if columns.isEmpty { return nil }
    case (nil, nil): return nil
    }
    counter += 1
    return Change(
      counter: counter, made: groups[table.group]?.cursor?.number ?? 0, row: change.name, operation: operation,
      columns: columns)
  }

  /// What has been captured since the last time was captured at this one.
  mutating func noteTime(_ now: Int64) {
    for index in requests.indices where requests[index].since == nil { requests[index].since = now }
  }

  mutating func beginGroup(tag: String?) {
    endGroup()
    openGroup = OpenGroup(tag: tag)
  }

  mutating func endGroup() {
    guard let group = openGroup else { return }
    openGroup = nil
    let changes = group.statements.flatMap { $0 }
    if !changes.isEmpty { requests.append(Request(stamp: stamp, changes: changes, tag: group.tag)) }
  }

  /// A group that was left open becomes single requests, a statement each. False: none was open.
  mutating func splitOpenGroup() -> Bool {
    guard let group = openGroup else { return false }
    openGroup = nil
    requests += group.statements.map { Request(stamp: stamp, changes: $0) }
    return true
  }
}
