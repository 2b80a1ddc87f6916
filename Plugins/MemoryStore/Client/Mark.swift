import SalvorModel
import SalvorStorage

/// A row that a deleted mark deleted: it is still in its table, or went at once where its table has no such column.
struct Mark: Sendable, Hashable {
  /// The row whose mark took it along; itself, of that row.
  var root: RowName
  /// Of the change that deletes it; nil: the mark deleted nothing, as of a row that was inserted with it.
  var counter: Int64?
  /// As it went from its table, where no base has it: of a database from before.
  var gone: Row?
}
