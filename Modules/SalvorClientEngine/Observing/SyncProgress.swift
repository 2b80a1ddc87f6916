import SalvorModel

/// How far a synchronization is.
public enum SyncProgress: Sendable, Hashable {
  /// Changes sent so far, and the share of what waited when it began.
  case uploading(changes: Int64, share: Double?)
  /// Body bytes received so far, of what is not rows.
  case downloading(bytes: Int64)
  /// Rows that changed on the server, and the share of them that has come, where the server says how far it is.
  case receiving(rows: Int64, share: Double?)
  /// Rows of groups that come for the first time, of those that the server counted when it began.
  case fetching(rows: Int64, of: Int64)
  /// Rows of a table that were compared, of those that the server has.
  case comparing(table: String, rows: Int64, of: Int64)
  case applying
  /// It is tried again after this time: another synchronization of the database is under way (`session-in-use`), the server
  /// has too much to do, or the connection broke. The message is the error's.
  case waiting(ErrorCode, message: String, milliseconds: Int64)

  /// How much of this step is done, 0 to 1; nil: it cannot be told.
  public var share: Double? {
    switch self {
    case .uploading(_, let share), .receiving(_, let share): share
    case .fetching(let rows, let all), .comparing(_, let rows, let all):
      all > 0 ? min(1, Double(rows) / Double(all)) : nil
    case .downloading, .applying, .waiting: nil
    }
  }

  /// The rows, or changes of rows, that this step has moved so far; nil: it moves none.
  public var rows: Int64? {
    switch self {
    case .uploading(let rows, _), .receiving(let rows, _), .fetching(let rows, _), .comparing(_, let rows, _): rows
    case .downloading, .applying, .waiting: nil
    }
  }
}
