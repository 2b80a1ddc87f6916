import SQLiteSupport

/// Where the rows of a first download go while its tables stand as they are (`Arrival`).
protocol ArrivingRows: AnyObject {
  /// The twin that takes a table's rows; nil: it has none.
  func twin(of table: CapturedTable) -> TableTwin?
  /// These tables come whole.
  func comeWhole(_ names: [String]) throws
  /// One more row is in its twin.
  func wroteRow() throws
}
