import SalvorModel

/// Says of requests, before they are processed, which the application does not want (semantics 7, *validator*). Contract:
/// `ValidatorContract`.
///
/// The server's engine asks it when an upload is there whole and every check of the begin has passed, and before the
/// transaction that processes it: however long an answer takes, nothing is locked. What it refuses is refused with reason
/// `validator`; what depends on that is blocked by it; everything else goes on. Acceptance is not the last word: the
/// request may still break a constraint, or be in conflict.
public protocol RequestValidator: Sendable {
  /// Those of the batch's requests that are refused; the others are accepted.
  ///
  /// An upload comes as batches in the device's order, one at a time for each upload, of several uploads at once. It may
  /// come again, whole: where its outcome is unknown, and where an earlier batch of it could not be judged. Judge by
  /// what is in the request; write nothing. Throws where it cannot judge; the server's configuration says what becomes
  /// of the upload then (`onFailure`). A cancelled task ends it soon.
  func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal]

  /// Gives everything back. Safe twice; nothing is asked after it.
  func close() async
}

extension RequestValidator {
  /// Does nothing: for validators that hold nothing.
  public func close() async {}
}

/// Requests of one upload. A request is always whole, with all of its changes, of other tables, too.
public struct ValidationBatch: Sendable, Hashable {
  /// The device whose upload it is.
  public var remote: RemoteID
  /// Whoever uploads, with the values that each parameter may take.
  public var principal: Principal
  /// Names the upload: the same content where it comes again.
  public var sequence: SequenceID
  /// Counts the upload's batches for this validator, from 0.
  public var number: Int
  /// At least one.
  public var requests: [UploadedRequest]

  /// A batch of whole requests, in the device's order.
  public init(
    remote: RemoteID, principal: Principal, sequence: SequenceID, number: Int, requests: [UploadedRequest]
  ) {
    self.remote = remote
    self.principal = principal
    self.sequence = sequence
    self.number = number
    self.requests = requests
  }
}

/// A validator's no to one request of a batch.
public struct ValidationRefusal: Sendable, Hashable {
  /// One of the batch.
  public var id: RequestID
  /// What is wrong and what to do, for whoever made the change; it is stored on the device. Cut at 1,000 characters.
  public var message: String
  /// In HTTP's terms, 400 to 599; nil: 422.
  public var status: Int?

  /// By default with the status 422.
  public init(id: RequestID, message: String, status: Int? = nil) {
    self.id = id
    self.message = message
    self.status = status
  }
}
