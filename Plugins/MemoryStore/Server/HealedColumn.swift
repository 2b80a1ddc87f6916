import SalvorModel
import SalvorStorage

/// By which lost version a column of a row came back.
struct HealedColumn: Sendable, Hashable {
  /// Stands for the row itself, made or deleted.
  static let existence = ""
  static func all(of table: Table) -> [String] { table.travelling.map(\.name) + [existence] }

  var version: LostVersion
  /// Twice the number of the commit that wrote it, or one more than twice that of the head, where nothing was written; of the
  /// upload that is being processed `.max`.
  var at: Int64
}

/// A delete of a row that is not there, and that its sender may never have seen: it counts where he may write what somebody
/// offers of the row.
struct ClaimedDelete: Sendable, Hashable {
  /// Nil: it was not lost, but is an ordinary delete, and stands against every version.
  var version: LostVersion?
  /// As of `HealedColumn`.
  var at: Int64
  var principal: Principal
}
