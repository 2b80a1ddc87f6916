import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A foreign key of the database, of Salvor's tables and the application's own.
struct ReferenceRule {
  var child: String
  var childColumns: [String]
  var parent: String
  var parentColumns: [String]
  var onDelete: String
  var onUpdate: String
  var capturedChild: CapturedTable?
  var capturedParent: CapturedTable?
  var parentColumnsAreKey: Bool

  func parentExists(_ alias: String) -> String {
    let terms = zip(parentColumns, childColumns).map { "p.\(quoted($0)) = \(alias).\(quoted($1))" }
    return "EXISTS (SELECT 1 FROM \(quoted(parent)) p WHERE \(terms.joined(separator: " AND ")))"
  }

  func isDangling(_ alias: String) -> String {
    childColumns.map { "\(alias).\(quoted($0)) IS NOT NULL" }.joined(separator: " AND ")
      + " AND NOT \(parentExists(alias))"
  }
}
