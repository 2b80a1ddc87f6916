import SalvorModel

/// A session that ended before the outcome of its upload was known.
public struct UploadFailure: Sendable, Hashable {
  /// The error's name (`ErrorCode`).
  public var error: String
  /// Milliseconds since 1970.
  public var time: Int64
  /// When the next session is going to begin, where somebody has said so; milliseconds since 1970.
  public var nextAttempt: Int64?
  /// By default nobody has said when the next session begins.
  public init(error: String, time: Int64, nextAttempt: Int64? = nil) {
    self.error = error
    self.time = time
    self.nextAttempt = nextAttempt
  }
}

/// The upload under way, from when its sequence ID was drawn until its outcome is known.
public struct UploadStatus: Sendable, Hashable {
  /// Why an upload counts as making no progress.
  public enum Stall: String, Sendable, CaseIterable {
    /// `failuresMax` sessions have failed.
    case failedAttempts = "failed-attempts"
    /// Its outcome is unknown for `ageMaxMilliseconds`.
    case unknownForLong = "unknown-for-long"
  }

  /// Sessions that may fail before an upload counts as stalled.
  public static let failuresMax = 3
  /// How long an upload's outcome may be unknown before it counts as stalled: an hour.
  public static let ageMaxMilliseconds: Int64 = 3_600_000

  /// The upload's sequence ID: C.
  public var sequence: SequenceID
  /// Milliseconds since 1970.
  public var since: Int64
  /// Sessions that ended before the outcome was known.
  public var failures: Int
  /// Of the last such session.
  public var lastFailure: UploadFailure?

  /// By default no session has failed.
  public init(sequence: SequenceID, since: Int64, failures: Int = 0, lastFailure: UploadFailure? = nil) {
    self.sequence = sequence
    self.since = since
    self.failures = failures
    self.lastFailure = lastFailure
  }

  /// Nil: it makes progress, or it is too early to say.
  ///
  /// - Parameter now: milliseconds since 1970.
  public func stall(now: Int64) -> Stall? {
    if failures >= Self.failuresMax { return .failedAttempts }
    return now - since >= Self.ageMaxMilliseconds ? .unknownForLong : nil
  }

  /// With one more session failed.
  public func failed(_ failure: UploadFailure) -> UploadStatus {
    UploadStatus(sequence: sequence, since: since, failures: failures + 1, lastFailure: failure)
  }
}
