import SalvorModel
import SalvorStorage

/// What becomes of requests in error, where the server has lost what they change.
extension RecoveryMerge {
  /// A request in error is not sent by itself, and what it changes of a lost row, or of a lost value, would not come back either. It goes to the
  /// archive with its reason; so the row is offered as it was acknowledged (decisions 223, 231).
  func keepFailed(_ stream: DownloadStream, _ rows: WorkingRows, _ watch: BaseWatch) throws {
    guard try context.hasErrors() else { return }
    for (ref, base) in Self.inOrder(stream) where isWritable(base.table) {
      guard try base.row != nil || watch.fate(of: base.table, ref.key) == .lost else { continue }
      while let failed = try failedStep(base.table, ref.key, over: base.row, rows) {
        try rows.displaceForGood(failed.seq, withFailed: true)
      }
    }
  }

  /// - Parameter row: the server's.
  private func failedStep(
    _ table: CapturedTable, _ key: Key, over row: SlotRow?, _ rows: WorkingRows
  ) throws -> RowTimeline.Step? {
    let timeline = try rows.load(table, key).timeline
    guard let was = timeline.base, was != row, try row == nil || offers.version(table, key) != nil else { return nil }
    return try timeline.steps.first { step in
      let changesLoss =
        switch step.change {
        case .update(let news): row.map { row in news.keys.contains { was[$0] != row[$0] } } ?? true
        case .insert, .delete: true
        }
      return try changesLoss && context.row(of: context.range(of: step.seq)).isInError
    }
  }
}
