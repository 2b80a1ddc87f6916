import SQLiteSupport
import SalvorModel
import SalvorStorage

extension SQLiteClientStore {
  /// Throws where `sequence` is not the upload under way.
  public func takeBackUpload(_ sequence: SequenceID) throws {
    let context = try opened()
    let connection = context.connection
    guard try connection.text(.current) == sequence.text else { throw SalvorError.noSuchUpload }
    uploadPlan = nil
    try connection.transaction {
      var move = Move()
      move.upload = .takenBack
      try context.settle(move)
    }
    try writeIdentity(context)
  }
}
