import SalvorModel
import SalvorStorage

/// One row that a settlement works on.
struct WorkingRow {
  var table: CapturedTable
  var key: Key
  /// The row as the table has it now.
  var shown: SlotRow?
  var timeline: RowTimeline
  /// The steps as they were captured, for the archive.
  var captured: [Int64: RowTimeline.Step]
  /// The log entries must be written again.
  var isChanged = false
  /// The row was removed to be written again.
  var remains: RowWriter.Remains?
}
