import SalvorModel
import SalvorStorage

/// What the conflict book is told: a change that is kept beside the server's row for a person, or one that the table's
/// policy settled.
struct UploadConflict {
  var request: RequestID
  var change: StagedChange
  var table: Int
  /// Nil: there is none.
  var server: Row?
  /// The row that it would make; nil: the server has it, or it makes none.
  var unmade: Row?
  /// The entry of the change log by which somebody else changed the row; nil: none that is known.
  var serverEntry: Int64?
  /// The table's policy settled it, and this is what became of the row; nil: it is kept beside the row.
  var settled: Settled?

  struct Settled {
    /// Nil: it was deleted.
    var row: Row?
  }
}
