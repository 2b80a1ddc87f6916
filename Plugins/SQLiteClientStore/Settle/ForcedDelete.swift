import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A row that the server has deleted and that a trigger of the application's would not let go: it went without triggers (decision 220).
struct ForcedDelete {
  var row: RowPlace
  /// SQLite's.
  var words: String
  /// Those of the table, one of which refused it.
  var triggers: [String]

  private static let namedMax = 3

  /// One for each table.
  static func notices(of deletes: [ForcedDelete]) -> [String] {
    Dictionary(grouping: deletes, by: \.row.table).sorted { $0.key < $1.key }.map { table, deletes in
      let rows = deletes.map { $0.row.key.map { literal($0) }.joined(separator: ", ") }.sorted()
      let names = rows.prefix(namedMax).joined(separator: ", ") + (rows.count > namedMax ? ", …" : "")
      let isOne = rows.count == 1
      let which = isOne ? "The row \(names) of \(table) was" : "\(rows.count) rows of \(table) (\(names)) were"
      return
        "\(which) deleted here as at the server, although a trigger of the application's refuses it (\(deletes[0].triggers.joined(separator: ", ")): \(deletes[0].words)). The triggers did not fire for \(isOne ? "it" : "them"): what they keep elsewhere may name \(isOne ? "it" : "them") still. Drop the trigger or make it anew, or say applicationTriggers: \"off\" for the table in the schema."
    }
  }
}
