import SalvorModel

/// What became of the history's transactions, its clashes and its resolutions, counted.
struct Reckoning {
  /// What became of a change that clashed.
  enum ClashFate: Hashable {
    /// It was written, and by the rules of semantics 7 nothing was in its way: other columns of the row, or a row that
    /// others had made or removed and brought back as it was.
    case merged
    /// It was in conflict, and the policy let it stand.
    case stands
    /// Its request is listed as conflict versions.
    case listed
    /// Its request is in the writer's archive.
    case archived
    /// On the writer's device it changed nothing: the row was not there, or had the values.
    case notMade
  }

  /// What a change that a person made by hand, when work was merged, had to do with what `keep-versions` flags.
  enum Resolution: Hashable {
    /// The row was in conflict in one of the merged requests.
    case flagged
    /// The row was in none, but its request was listed or archived as a whole.
    case companion
    /// Merged transactions changed the row, and nothing was in their way.
    case unopposed
    /// No merged transaction changed the row.
    case untouched
  }

  /// Why a row is not as the source has it.
  enum Parting: Hashable {
    /// The source's change is in the archive, among the conflict versions, or was not made on the device (`ClashFate`).
    case archived, listed, notMade
    /// The source replaced the row, or wrote another value: here it was merged by column.
    case merged
  }

  private(set) var transactions: [ExpectedServer.Fate?: Int] = [:]
  private(set) var clashes: [ClashFate: Int] = [:]
  private(set) var clashingTransactions = 0
  private(set) var resolutions: [Resolution: Int] = [:]
  /// Rows in conflict in the landings that a person put right by hand.
  private(set) var flaggedAtResolutions = 0
  private(set) var parted: [RowNumber: Parting] = [:]
  /// Of requests that are listed or archived, by transaction.
  private(set) var kept: [Int: ExpectedServer.Verdict] = [:]

  var partings: [Parting: Int] { parted.values.reduce(into: [:]) { $0[$1, default: 0] += 1 } }

  /// - Parameter verdicts: of the landing's transactions; those that changed nothing on their device have none.
  mutating func landed(
    _ transactions: [EditHistory.Transaction], _ verdicts: [Int: ExpectedServer.Verdict],
    clashes: [Int: Set<RowNumber>], expected: ExpectedRows, source: ExpectedRows
  ) {
    for transaction in transactions {
      let verdict = verdicts[transaction.number]
      self.transactions[verdict?.fate, default: 0] += 1
      if verdict?.fate == .kept { kept[transaction.number] = verdict }
      for row in clashes[transaction.number] ?? [] { self.clashes[Self.fate(of: row, verdict), default: 0] += 1 }
      if clashes[transaction.number] != nil { clashingTransactions += 1 }
      if transaction.isResolve { resolve(transaction, merged: transactions, verdicts) }
      for change in transaction.changes {
        let row = change.row
        if expected[row] == source[row] {
          parted[row] = nil
        } else if parted[row] == nil {
          parted[row] = Self.parting(of: row, transactions, verdicts)
        }
      }
    }
  }

  private static func fate(of row: RowNumber, _ verdict: ExpectedServer.Verdict?) -> ClashFate {
    guard let verdict, verdict.request.changes.contains(where: { $0.row == row }) else { return .notMade }
    return switch verdict.fate {
    case .accepted: verdict.inConflict.contains(row) ? .stands : .merged
    case .kept: .listed
    case .refused: .archived
    }
  }

  private mutating func resolve(
    _ resolve: EditHistory.Transaction, merged: [EditHistory.Transaction], _ verdicts: [Int: ExpectedServer.Verdict]
  ) {
    let merged = merged.filter { !$0.isResolve }
    let verdicts = merged.compactMap { verdicts[$0.number] }
    let flagged = verdicts.reduce(into: Set()) { $0.formUnion($1.inConflict) }
    flaggedAtResolutions += flagged.count
    let companions = Set(verdicts.filter { $0.fate != .accepted }.flatMap(\.request.changes).map(\.row))
    let touched = Set(merged.flatMap(\.changes).map(\.row))
    for row in resolve.changes.map(\.row) {
      let resolution: Resolution =
        flagged.contains(row)
        ? .flagged : companions.contains(row) ? .companion : touched.contains(row) ? .unopposed : .untouched
      resolutions[resolution, default: 0] += 1
    }
  }

  private static func parting(
    of row: RowNumber, _ transactions: [EditHistory.Transaction], _ verdicts: [Int: ExpectedServer.Verdict]
  ) -> Parting {
    let fates = transactions.filter { $0.changes.contains { $0.row == row } }.map { fate(of: row, verdicts[$0.number]) }
    if fates.contains(.archived) { return .archived }
    if fates.contains(.listed) { return .listed }
    return fates.contains(.notMade) ? .notMade : .merged
  }
}
