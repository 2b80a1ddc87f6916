import SalvorModel
import SalvorStorage

/// What becomes of requests in error, where the server has lost the rows that they change.
extension RecoveryMerge {
  /// A request in error is not sent by itself, and a lost row that it changes would not come back either. It goes to the archive with its reason;
  /// so the row is offered as it was acknowledged (decision 223).
  func keepFailed(_ stream: DownloadStream, _ rows: WorkingRows, _ watch: BaseWatch) throws {
    guard try context.hasErrors() else { return }
    for (ref, base) in Self.inOrder(stream) where base.row == nil && isWritable(base.table) {
      guard try watch.fate(of: base.table, ref.key) == .lost else { continue }
      while let failed = try failedStep(base.table, ref.key, rows) {
        try rows.displaceForGood(failed.seq)
      }
    }
  }

  private func failedStep(_ table: CapturedTable, _ key: Key, _ rows: WorkingRows) throws -> RowTimeline.Step? {
    let timeline = try rows.load(table, key).timeline
    return try timeline.base == nil
      ? nil : timeline.steps.first { try context.row(of: context.range(of: $0.seq)).isInError }
  }
}
