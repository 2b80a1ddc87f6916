import SalvorModel

/// The source's own state, landing by landing, and which changes the source calls a clash.
struct SourceHistory {
  let history: EditHistory
  let rows = ExpectedRows()
  /// The landing that last changed a column; `wholeRow` where it put or removed the row.
  private var changed: [RowNumber: [Int: Int]] = [:]
  private static let wholeRow = -1

  init(_ history: EditHistory) { self.history = history }

  /// Takes the transactions of one landing, in order.
  ///
  /// - Returns: the rows that each transaction clashes over: another landing had changed them since its base, and the change
  ///   did not have the same values. The definition is that of the data set's heads.
  mutating func land(_ transactions: [EditHistory.Transaction]) -> [Int: Set<RowNumber>] {
    var clashes: [Int: Set<RowNumber>] = [:]
    for transaction in transactions where !transaction.isResolve {
      let rows = transaction.changes.filter { isClash($0, of: transaction) }.map(\.row)
      if !rows.isEmpty { clashes[transaction.number] = Set(rows) }
    }
    for transaction in transactions {
      for change in transaction.changes { rows[change.row] = change.applied(to: rows[change.row], history) }
    }
    for transaction in transactions {
      for change in transaction.changes {
        let columns = change.operation == .update ? change.columns : [Self.wholeRow]
        for column in columns { changed[change.row, default: [:]][column] = transaction.landing }
      }
    }
    return clashes
  }

  private func isClash(_ change: EditHistory.Change, of transaction: EditHistory.Transaction) -> Bool {
    let since = changed[change.row]?.values.contains { $0 > transaction.base } ?? false
    guard since else { return false }
    guard let present = rows[change.row], change.operation != .delete else { return true }
    return change.applied(to: present, history) != present
  }
}
