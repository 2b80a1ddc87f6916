import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// Uploads everything that waits once the server has forgotten the remote ID, then recreates
/// (sap-rbs-synchronize-recovery, example 3). See README.md.
public struct UploadThenRecreateRecovery: RecoveryStrategy {
  /// What follows the upload.
  public enum Then: String, Sendable, CaseIterable {
    case recreate
    case copyAndResubscribe = "copy-and-resubscribe"
  }

  /// `upload-then-recreate`.
  public let name = "upload-then-recreate"
  /// Nil: `manual` follows where the strategy cannot, or the steps fail twice.
  public let fallBack: String? = nil
  private let then: Then

  /// - Parameter then: what follows the upload: a new database, or new synchronized tables only.
  public init(then: Then = .recreate) { self.then = then }

  /// Unsynced changes are uploaded before. Client-only tables and settings are lost after `recreate`, and stay after
  /// `copy-and-resubscribe`. The schemas must not differ destructively.
  public var guarantees: RecoveryGuarantees {
    RecoveryGuarantees(
      unsyncedChanges: .uploaded, clientOnlyTables: then == .recreate ? .lost : .kept,
      settings: then == .recreate ? .lost : .kept, needsServersConsent: false, survivesSchemaChange: false)
  }

  /// A copy, a wait until the server has forgotten the remote ID, an upload, a fetch of all rows, and what `then`
  /// names. It cannot where the schema has changed destructively, the database was set back (`clientRewound`) or the
  /// database file is damaged.
  public func plan(for incident: Incident) -> RecoveryDecision {
    guard incident.facts.differences.isEmpty else {
      return .cannot(
        "what waits cannot be uploaded to the new schema: \(incident.facts.differences.joined(separator: "; ")).")
    }
    if incident.reason == .clientRewound {
      return .cannot("the remote ID is in use by whoever went on with it; only a remote ID of its own helps.")
    }
    if incident.reason == .localCorruption {
      return .cannot("the file is damaged: what waits in it cannot be uploaded; name recreate for local-corruption.")
    }
    return .steps([
      .copy, .forget, .upload, .fetch(.everything),
      .apply(.discard, then == .recreate ? .everything : .synchronizedTables),
    ])
  }

  /// The module `upload-then-recreate` of the kind recovery strategy, with the option `then`.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .recoveryStrategy, name: "upload-then-recreate",
      summary: "Waits until the server has forgotten the remote ID, uploads all, then recreates.",
      options: [
        ModuleOption(
          "then", type: "recreate | copy-and-resubscribe", default: "\"recreate\"", "What follows the upload.")
      ], guarantees: UploadThenRecreateRecovery().guarantees.phrases), product: (any RecoveryStrategy).self
  ) { reader, _ in
    let then: Then = reader.choice("then", default: .recreate)
    return { UploadThenRecreateRecovery(then: then) }
  }
}
