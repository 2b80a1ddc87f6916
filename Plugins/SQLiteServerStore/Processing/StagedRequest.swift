import SalvorModel

/// Why a request is not applied: the reason, and what the client reads.
struct RefusalText: Sendable {
  var reason: RefusalReason
  var message: String
  init(_ reason: RefusalReason, _ message: String) {
    self.reason = reason
    self.message = message
  }
}

/// One change of an upload, taken out of the payload.
struct StagedChange {
  /// The table's place in the catalog; nil where it is refused as unknown.
  var table: Int?
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
  /// What its content alone says against it.
  var refusal: RefusalText?
}

/// The unit that is accepted or refused.
struct StagedRequest {
  /// Its place in the upload.
  var ordinal: Int
  var stamp: RequestStamp
  var first: Int64
  var last: Int64
  var changes: [StagedChange]

  var id: RequestID { RequestID(stamp: stamp, counter: first) }
}
