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

  public let name = "upload-then-recreate"
  public let fallBack: String? = nil
  private let then: Then

  public init(then: Then = .recreate) { self.then = then }

  public var guarantees: RecoveryGuarantees {
    RecoveryGuarantees(
      unsyncedChanges: .uploaded, clientOnlyTables: then == .recreate ? .lost : .kept,
      settings: then == .recreate ? .lost : .kept, needsServersConsent: false, survivesSchemaChange: false)
  }

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
