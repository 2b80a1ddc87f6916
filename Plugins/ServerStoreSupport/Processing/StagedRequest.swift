import SalvorModel
import SalvorStorage
import SalvorWire

/// Why a request is not applied: the reason, and what the client reads.
struct RefusalText: Sendable {
  var reason: RefusalReason
  var message: String
  /// Nil: the reason's own.
  var status: Int?
  /// Not nil: it is not refused. It waits.
  var wait: WaitingReason?
  init(_ reason: RefusalReason, _ message: String, status: Int? = nil) {
    self.reason = reason
    self.message = message
    self.status = status
  }
}

extension RefusalText {
  static func waits(_ reason: WaitingReason) -> RefusalText {
    var text = RefusalText(.missingParent, "")
    text.wait = reason
    return text
  }

  /// Of a request of several changes that makes a lost row again: the server can hold one change alone. Its device offers the row by itself.
  static func lost(_ table: ServerTable) -> RefusalText {
    RefusalText(
      .rowDeleted,
      "The server has lost the row of \(table.name), and its operator has to consent before it comes back. Reapply the change then."
    )
  }
}

/// One change of an upload, taken out of the payload.
struct StagedChange {
  /// The table's place in the catalog; nil where it is refused as unknown.
  var table: Int?
  var counter: Int64
  var operation: Operation
  /// Places among the table's travelling columns, for `old` and `new`; none where a column is refused as unknown.
  var columns: [Int]
  var key: Key
  /// Of an update.
  var old: [Value]
  /// Of an insert or update.
  var new: [Value]
  var made: Int64
  /// `RowHash` of table and key.
  var hash: UInt64
  /// `ShapePlan.content`.
  var content: UInt64
  /// `ShapePlan.wholeContent`, where it is another.
  var wholeContent: UInt64?
  /// What its content alone says against it.
  var refusal: RefusalText?
  /// Not nil: it brings back what the server has lost.
  var offer: Offer?

  /// The row of an insert or update after it; `row` nil: there was none.
  func applied(to row: Row?, of table: ServerTable) -> Row {
    var row = row ?? table.columns.map { $0.defaultValue ?? .null }
    for (index, column) in columns.enumerated() { row[column] = new[index] }
    return row
  }

  /// It, of some of its columns only; `places`: among them.
  func taking(_ places: [Int]) -> StagedChange {
    var change = self
    change.columns = places.map { columns[$0] }
    change.new = places.map { new[$0] }
    if !old.isEmpty { change.old = places.map { old[$0] } }
    return change
  }

  /// An insert that meets a row with its key: without the columns that it does not set.
  func merging(into table: ServerTable) -> StagedChange {
    var change = self
    let set = columns.indices.filter { table.columns[columns[$0]].isSet(new[$0]) }
    change.columns = set.map { columns[$0] }
    change.new = set.map { new[$0] }
    return change
  }

  /// What it changes, with what the client saw; of a delete nothing.
  func conflictColumns(of table: ServerTable) -> [ConflictColumn] {
    guard operation != .delete else { return [] }
    return columns.enumerated().map { index, place in
      ConflictColumn(
        table.columns[place].name, old: operation == .update ? .some(old[index]) : .none, new: new[index])
    }
  }
}

/// The unit that is accepted or refused.
struct StagedRequest {
  /// Its place in the upload.
  var ordinal: Int
  var stamp: RequestStamp
  var first: Int64
  var last: Int64
  var changes: [StagedChange]
  /// What it was before its device dropped columns or tables.
  var former: [FormerContent] = []

  var id: RequestID { RequestID(stamp: stamp, counter: first) }
  /// All of it brings back what the server has lost: where it cannot, it is kept for a person.
  var isOffer: Bool { changes.allSatisfy { $0.offer?.written.isEmpty == true } }
  var content: RequestContent { RequestContent(changes.lazy.map(\.content)) }
  /// As an earlier version wrote it down.
  var wholeContent: RequestContent { RequestContent(changes.lazy.map { $0.wholeContent ?? $0.content }) }
}

extension RefusalText {
  /// Of a table with a scope the words are the same for a row that is not there and for one that the sender may not see.
  static func missingParent(_ table: ServerTable, _ reference: Reference, _ catalog: Catalog) -> RefusalText {
    let isScoped = catalog.table(reference.table)?.isScoped == true
    return RefusalText(
      .missingParent,
      "The row of \(reference.table) that \(table.name).\(reference.column) references is not on the server"
        + "\(isScoped ? ", or not within your scope" : ""). Insert it first.")
  }

  static func rowDeleted(_ table: ServerTable) -> RefusalText {
    RefusalText(
      .rowDeleted,
      "The row of \(table.name) was deleted on the server\(table.isScoped ? ", or is not within your scope" : ""). "
        + "Withdraw the change or insert the row.")
  }
}

extension StagedRequest {
  /// It is refused for a purged row.
  var purged: RefusalText? { changes.lazy.compactMap(\.refusal).first { $0.reason == .purged } }
}
