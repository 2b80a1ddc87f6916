import SalvorModel
import SalvorStorage

/// One row that a settlement works on.
struct WorkingRow {
  var table: CapturedTable
  var key: Key
  /// The row as the table has it now.
  var shown: SlotRow?
  var timeline: RowTimeline
  /// What the log does not say of it must be stored again.
  var isChanged = false
  /// The row was removed to be written again.
  var remains: RowWriter.Remains?
}
