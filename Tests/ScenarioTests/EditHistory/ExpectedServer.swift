import SalvorModel

/// What an application's transaction changes in a device's rows, as a request: the expectation, not the store's capture.
struct ExpectedRequest {
  struct Change {
    var row: RowNumber
    var operation: SalvorModel.Operation
    /// The changed columns, with what they were and what they come to be; of an insert every column, of a delete none.
    var columns: [Int] = []
    var old: [Value] = []
    var new: [Value] = []
  }

  let transaction: Int
  let writer: String
  var changes: [Change]

  /// - Parameter view: the device's rows, which the transaction changes.
  init(_ transaction: EditHistory.Transaction, on view: inout RowOverlay, _ history: EditHistory) {
    self.transaction = transaction.number
    writer = transaction.writer
    changes = []
    for change in transaction.changes {
      let before = view[change.row]
      let after = change.applied(to: before, history)
      if let change = Change(change.row, from: before, to: after) { changes.append(change) }
      view[change.row] = after
    }
  }
}

extension ExpectedRequest.Change {
  /// Nil: nothing changes.
  fileprivate init?(_ row: RowNumber, from before: Row?, to after: Row?) {
    switch (before, after) {
    case (nil, nil): return nil
    case (nil, let after?):
      self.init(row: row, operation: .insert, columns: Array(after.indices), new: after)
    case (_?, nil): self.init(row: row, operation: .delete)
    case (let before?, let after?):
      let columns = before.indices.filter { before[$0] != after[$0] }
      if columns.isEmpty { return nil }
      self.init(
        row: row, operation: .update, columns: columns, old: columns.map { before[$0] }, new: columns.map { after[$0] })
    }
  }

  fileprivate func applied(to row: Row?) -> Row? {
    guard operation != .delete else { return nil }
    guard var row else { return new }
    // What an insert leaves NULL it has not set: in a merge it takes nothing from the row that is there.
    for (column, value) in zip(columns, new) where operation != .insert || value != .null { row[column] = value }
    return row
  }
}

extension EditHistory.Change {
  /// The row afterwards, by the data's own rules.
  func applied(to row: Row?, _ history: EditHistory) -> Row? {
    var after: Row
    switch operation {
    case .delete: return nil
    case .insert: after = history.tables[history.rows.tables[self.row]].columns.map { _ in .null }
    case .update:
      guard let row else { return nil }
      after = row
    }
    for (column, value) in zip(columns, values) { after[column] = value }
    return after
  }
}

/// Rows of all tables.
final class ExpectedRows {
  private(set) var rows: [RowNumber: Row] = [:]

  subscript(row: RowNumber) -> Row? {
    get { rows[row] }
    set { rows[row] = newValue }
  }
}

/// Rows with changes on top, which can be read back and thrown away.
struct RowOverlay {
  private let base: ExpectedRows
  private(set) var changed: [RowNumber: Row?] = [:]

  init(_ base: ExpectedRows) { self.base = base }

  subscript(row: RowNumber) -> Row? {
    get { changed[row] ?? base[row] }
    set { changed[row] = .some(newValue) }
  }
}

/// The rules of semantics 7, in the plainest way that they can be written: what the server's rows come to be, and what
/// becomes of every request. It shares nothing with the engines and the stores.
struct ExpectedServer {
  enum Fate: Hashable {
    case accepted
    /// Under keep-versions: none of its rows was written, each is listed as a conflict version.
    case kept
    /// `row-deleted`, `conflict`, or `blocked` by an earlier request that was refused.
    case refused(String)
  }

  struct Verdict {
    var request: ExpectedRequest
    var fate: Fate
    /// Rows that are in conflict by the definition, whatever came of the request. Where it was refused: up to the change
    /// that it was refused for.
    var inConflict: Set<RowNumber> = []
  }

  let policy: String
  let rows = ExpectedRows()
  /// The number of the newest commit.
  private(set) var head = 0
  /// Who changed a row: the newest commit of each of the last two devices, newest first.
  private var writers: [RowNumber: [(commit: Int, device: String)]] = [:]

  init(policy: String) { self.policy = policy }

  /// An upload of a device whose requests were made on commit `made`.
  mutating func process(_ requests: [ExpectedRequest], of device: String, made: Int) -> [Verdict] {
    var overlay = RowOverlay(rows)
    var refusedRows: Set<RowNumber> = []
    let verdicts = requests.map { request in
      var verdict = Verdict(request: request, fate: .refused("blocked"))
      if refusedRows.isDisjoint(with: request.changes.map(\.row)) {
        verdict = decide(request, of: device, made: made, &overlay)
      }
      if case .refused = verdict.fate { refusedRows.formUnion(request.changes.map(\.row)) }
      return verdict
    }
    commit(overlay.changed, of: device)
    return verdicts
  }

  private func decide(
    _ request: ExpectedRequest, of device: String, made: Int, _ overlay: inout RowOverlay
  ) -> Verdict {
    var verdict = Verdict(request: request, fate: .accepted)
    var after = overlay
    for change in request.changes {
      let present = after[change.row]
      // Gone before the upload: this very upload has made it.
      let isMadeHere = rows[change.row] == nil && present != nil
      let newest = writers[change.row]?.first { $0.device != device }?.commit ?? 0
      switch finding(change, present, isNewer: newest > made && !isMadeHere) {
      case .standsAlready: continue
      case .applies: after[change.row] = change.applied(to: present)
      case .rowIsGone:
        verdict.fate = .refused("row-deleted")
        return verdict
      case .conflicts:
        verdict.inConflict.insert(change.row)
        switch policy {
        case "server-wins":
          verdict.fate = .refused("conflict")
          return verdict
        case "keep-versions": verdict.fate = .kept
        default: after[change.row] = change.applied(to: present)
        }
      }
    }
    // A group stands or falls as a whole.
    if verdict.fate == .accepted { overlay = after }
    return verdict
  }

  private enum Finding { case standsAlready, applies, conflicts, rowIsGone }

  private func finding(_ change: ExpectedRequest.Change, _ present: Row?, isNewer: Bool) -> Finding {
    switch (change.operation, present) {
    case (.insert, nil): .applies
    // The keys are text: the same key is the same thing, and merged.
    case (.insert, let present?):
      change.applied(to: present) == present
        ? .standsAlready
        : zip(present, change.new).contains { $0 != $1 && $0 != .null && $1 != .null } ? .conflicts : .applies
    case (.update, nil): .rowIsGone
    case (.update, let present?):
      isNewer
        && change.columns.indices.contains { place in
          let value = present[change.columns[place]]
          return value != change.old[place] && value != change.new[place]
        } ? .conflicts : .applies
    case (.delete, nil): .standsAlready
    case (.delete, _?): isNewer ? .conflicts : .applies
    }
  }

  private mutating func commit(_ changed: [RowNumber: Row?], of device: String) {
    let changed = changed.filter { rows[$0.key] != $0.value }
    guard !changed.isEmpty else { return }
    head += 1
    for (row, value) in changed {
      rows[row] = value
      writers[row] = [(head, device)] + (writers[row] ?? []).filter { $0.device != device }.prefix(1)
    }
  }
}
