import SQLiteSupport
import SalvorModel
import SalvorStorage

extension SQLiteConnection {
  /// Nil: none is under way.
  func uploadStatus(now: Int64) throws -> UploadStatus? {
    guard let sequence: SequenceID = try identifier(.current) else { return nil }
    var status = UploadStatus(sequence: sequence, since: try state(.uploadSince)?.integer ?? now)
    status.failures = Int(try state(.uploadFailures)?.integer ?? 0)
    if let error = try text(.uploadError) {
      status.lastFailure = UploadFailure(
        error: error, time: try state(.uploadFailedAt)?.integer ?? status.since,
        nextAttempt: try state(.uploadNext)?.integer)
    }
    return status
  }

  func setUploadStatus(_ status: UploadStatus) throws {
    let failure = status.lastFailure
    try setState(.uploadSince, .integer(status.since))
    try setState(.uploadFailures, status.failures == 0 ? nil : .integer(Int64(status.failures)))
    try setState(.uploadError, failure?.error)
    try setState(.uploadFailedAt, failure.map { .integer($0.time) })
    try setState(.uploadNext, failure?.nextAttempt.map { .integer($0) })
  }

  /// Its outcome is known, or it was taken back.
  func forgetUpload() throws {
    for name in [
      StateName.uploadLast, .uploadState, .uploadSince, .uploadFailures, .uploadError, .uploadFailedAt, .uploadNext,
    ] { try setState(name, Value?.none) }
  }
}
