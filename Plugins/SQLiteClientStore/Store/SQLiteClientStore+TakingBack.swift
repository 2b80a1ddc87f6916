import SQLiteSupport
import SalvorModel
import SalvorStorage

extension SQLiteClientStore {
  public func takeBackUpload(_ sequence: SequenceID) throws {
    let context = try opened()
    let connection = context.connection
    guard try connection.text(.current) == sequence.text else { throw SalvorError.noSuchUpload }
    uploadPlan = nil
    try connection.transaction {
      try connection.run("UPDATE salvor_archive SET state_before = NULL WHERE state_before = 'sent'")
      try UploadChoice(context: context).takeBack()
    }
    try writeIdentity(context)
  }
}
