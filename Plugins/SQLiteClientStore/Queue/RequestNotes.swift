import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What is noted of a request beside its changes: since when it waits, how often it was tried, which IDs it had before.
struct RequestNote {
  var since: Int64?
  var attempts = 0
  var lastAttempt: Int64?
  /// Oldest first.
  var history: [RequestID] = []
}

extension StoreContext {
  func note(_ first: Int64) throws -> RequestNote {
    var note = RequestNote()
    try connection.query(
      "SELECT since, attempts, last_attempt FROM salvor_request_note WHERE first = ?1", [.integer(first)]
    ) { row in
      note.since = row.value(0).integer
      note.attempts = Int(row.int64(1))
      note.lastAttempt = row.value(2).integer
      return false
    }
    note.history = try connection.rows(
      "SELECT id FROM salvor_request_history WHERE first = ?1 ORDER BY place", .integer(first)
    ).compactMap { $0[0].string.flatMap { RequestID($0) } }
    if note.since == nil {
      note.since = try connection.integer(
        "SELECT at FROM salvor_met WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1", .integer(first))
    }
    return note
  }

  func setNote(_ note: RequestNote, of first: Int64) throws {
    try connection.run(
      "INSERT OR REPLACE INTO salvor_request_note (first, since, attempts, last_attempt) VALUES (?1, ?2, ?3, ?4)",
      .integer(first), note.since.map { .integer($0) } ?? .null, .integer(Int64(note.attempts)),
      note.lastAttempt.map { .integer($0) } ?? .null)
    for (place, id) in note.history.enumerated() {
      try connection.run(
        "INSERT INTO salvor_request_history (first, place, id) VALUES (?1, ?2, ?3)", .integer(first),
        .integer(Int64(place)), .text(id.description))
    }
  }

  /// The request was tried and refused.
  func noteAttempts(_ count: Int, of first: Int64) throws {
    try connection.run(
      "INSERT INTO salvor_request_note (first, attempts, last_attempt) VALUES (?1, ?2, ?3) "
        + "ON CONFLICT (first) DO UPDATE SET attempts = attempts + excluded.attempts, last_attempt = excluded.last_attempt",
      .integer(first), .integer(Int64(count)), .integer(clock.now()))
  }

  /// Of requests that were accepted, by their first counters.
  func forgetNotes(from first: Int64, to last: Int64) throws {
    for name in ["salvor_range", "salvor_restamped", "salvor_request_note", "salvor_request_history"] {
      try connection.run(
        "DELETE FROM \(name) WHERE first BETWEEN ?1 AND ?2 AND NOT EXISTS (SELECT 1 FROM salvor_archive a WHERE a.first = \(name).first)",
        .integer(first), .integer(last))
    }
  }

  /// The request has lost its first change, and is named by the next. It waits.
  func rename(_ range: RequestRange, first: Int64) throws {
    for name in [
      "salvor_range", "salvor_upload_excluded", "salvor_restamped", "salvor_request_note", "salvor_request_history",
    ] {
      try connection.run("UPDATE \(name) SET first = ?2 WHERE first = ?1", .integer(range.first), .integer(first))
    }
  }

  /// The request has left, and is not in the archive.
  func forget(_ range: RequestRange) throws {
    for name in [
      "salvor_range", "salvor_request_state", "salvor_upload_excluded", "salvor_restamped", "salvor_request_note",
      "salvor_request_history",
    ] { try connection.run("DELETE FROM \(name) WHERE first = ?1", .integer(range.first)) }
  }
}

// MARK: The upload under way

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
