/// A validator with what the configuration says of its use.
public struct ConfiguredValidator: Sendable {
  /// What becomes of an upload that the validator cannot judge.
  public enum OnFailure: String, Sendable, CaseIterable {
    /// The upload is answered with `validator-unavailable`, which can be tried again; the device's queue stays as it is.
    case retryLater = "retry-later"
    /// The requests count as accepted by this validator.
    case accept
  }

  /// For messages: the module's name.
  public var name: String
  /// The server's engine asks it before an upload is processed.
  public var validator: any RequestValidator
  /// It is asked about requests that change one of these.
  public var tables: Set<String>
  /// What becomes of an upload where `validator` throws, or answers what it was not asked.
  public var onFailure: OnFailure
  /// Requests that it is given at one time.
  public var batchRequestsMax: Int

  /// Where a batch is cut by the bytes of its values; a longer single request makes a longer batch.
  public static let batchBytesTarget = 1 << 20
  /// `batchRequestsMax` where the configuration file does not say it.
  public static let batchRequestsDefault = 500

  /// By default an upload that it cannot judge is to be tried again.
  public init(
    name: String, validator: any RequestValidator, tables: Set<String>, onFailure: OnFailure = .retryLater,
    batchRequestsMax: Int = Self.batchRequestsDefault
  ) {
    self.name = name
    self.validator = validator
    self.tables = tables
    self.onFailure = onFailure
    self.batchRequestsMax = batchRequestsMax
  }
}
