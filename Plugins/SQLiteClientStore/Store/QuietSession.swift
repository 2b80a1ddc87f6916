import SQLiteSupport
import SalvorStorage

/// A session that found nothing to send, as long as nobody has written to the file since.
struct QuietSession {
  let session: ClientSession
  private let dataVersion: Int64?
  private let totalChanges: Int

  init(_ session: ClientSession, _ connection: SQLiteConnection) throws {
    self.session = session
    dataVersion = try connection.integer("PRAGMA data_version")
    totalChanges = connection.totalChanges
  }

  func stillHolds(_ connection: SQLiteConnection) throws -> Bool {
    try totalChanges == connection.totalChanges && dataVersion == connection.integer("PRAGMA data_version")
  }
}
