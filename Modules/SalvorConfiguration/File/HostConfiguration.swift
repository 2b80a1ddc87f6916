import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

/// `salvor.json5`, read and checked whole (interfaces.md): nothing has been opened, made or written yet.
public struct HostConfiguration: Sendable {
  /// As given to `load`.
  public var file: String
  /// Relative paths of the file are relative to this directory.
  public var directory: String
  /// The schema of the file, which it names or holds itself.
  public var schema: Schema
  /// How conflicts are settled, by table; of a file with a server.
  public var conflictPolicies: [String: PreparedModule<any ConflictPolicy>]
  /// Where the schema's parts stand, for warnings that come after loading.
  package let schemaPlaces: SourcePlaces
  /// Nil in a file for devices only.
  public var server: ServerSection?
  /// Nil in a file for a server only.
  public var client: ClientSection?
  /// The file as it was read, with `***` in the place of secrets.
  public var description: JSONValue
  /// Warnings: what works and is likely not meant.
  public var diagnostics: [Diagnostic]
}

/// `server.recovery.heal`: what becomes of offers of lost rows.
enum OfferConsent: String, CaseIterable {
  /// They are settled as they come.
  case accept
  /// They wait for the operator.
  case review
}

/// The parts of a file that a command needs.
public enum HostSection: String, Sendable, CaseIterable {
  case server, client
}

/// What came of reading a configuration.
public struct ConfigurationResult: Sendable {
  /// Nil where a diagnostic is an error: a bad file is refused as a whole.
  public var configuration: HostConfiguration?
  /// Everything found, in the order of the file.
  public var diagnostics: [Diagnostic]

  package init(configuration: HostConfiguration?, diagnostics: [Diagnostic]) {
    self.configuration = configuration
    self.diagnostics = diagnostics
  }

  /// The configuration, or one `configuration` error with every diagnostic in its message.
  public func get() throws(SalvorError) -> HostConfiguration {
    if let configuration { return configuration }
    throw refusal
  }

  package var refusal: SalvorError {
    let errors = diagnostics.errors
    let count = errors.count == 1 ? "1 mistake" : "\(errors.count) mistakes"
    return SalvorError(
      .configuration, "The configuration has \(count); nothing was started.\n\(render(diagnostics))",
      context: ["mistakes": "\(errors.count)"])
  }
}

/// `server:`.
public struct ServerSection: Sendable {
  /// The store of the consolidated database.
  public var storage: PreparedModule<any ServerStore>
  /// The line of the file that names it.
  package let storageLine: Int
  /// Where devices are answered, and how.
  public var listen: PreparedModule<any ServerTransport>
  package let listenLine: Int
  /// Offered, best first; `identity` always works and need not be named.
  public var compressions: [PreparedModule<any Compression>]
  /// Says who a request comes from.
  public var authentication: PreparedModule<any Authentication>
  package let authenticationLine: Int
  /// In the order in which they are asked.
  public var validators: [ValidatorSettings]
  /// False: strategies that recover unsynced changes fall through.
  public var clientRecoveryEnabled: Bool
  /// A device that recovers may delete its own remote ID.
  public var selfServiceRemoteDeletion: Bool
  /// `recovery.heal: "review"`: offers of lost rows wait for the operator's consent.
  public var reviewsOffers: Bool
  /// False: a begin is checked by its sequence IDs and the server ID alone.
  public var historyCheck: Bool
  /// How long deleted rows are remembered; the groups of older cursors are compared by digest.
  public var tombstoneRetentionMilliseconds: Int64
  /// How long conflicts that a policy settled are listed.
  public var conflictRetentionMilliseconds: Int64
  /// `messages: "withhold"`: devices are not told what the database's own constraints and triggers say.
  public var withholdsMessages: Bool
  /// How long an upload stays in staging that nobody continues.
  public var stagingRetentionMilliseconds: Int64
  /// The credential of `/admin/v1`. Nil: `salvor serve` makes a token file beside the database.
  public var administrationToken: String?
  /// `/metrics` and `/readyz` want the credential of `/admin/v1`, too.
  public var monitoringNeedsCredential: Bool
  /// An address of their own for `/metrics` and `/readyz`; nil: they are answered where devices are.
  public var monitoring: PreparedModule<any ServerTransport>?
  let monitoringLine: Int
  /// What the server writes to its log.
  public var log: LogSettings
  /// The way to the collector of traces; nil: none are exported.
  public var traces: PreparedModule<any ClientTransport>?
  /// Where copies are kept; nil: the server makes none.
  public var backups: BackupSettings?
  /// Which groups are offered as files; nil: none.
  public var snapshots: SnapshotOptions?
  /// The defaults, with what `limits` of the section says.
  public var limits: Limits
}

/// `client:`.
public struct ClientSection: Sendable {
  /// The store of the device's database.
  public var storage: PreparedModule<any ClientStore>
  /// Makes the same storage with another `path`: the database of another user.
  public var storageAt: @Sendable (_ path: String) throws -> any ClientStore
  /// The line of the file that names it.
  package let storageLine: Int
  /// The way to the server.
  public var transport: PreparedModule<any ClientTransport>
  /// The compression module that `transport.compression` names; nil: none is named.
  public var compression: PreparedModule<any Compression>?
  /// The file names it, and no other coding is asked for. False: it is the default, for a server of which nothing is known.
  public var isCompressionWritten: Bool
  /// A snapshot that the application brings along, resolved against the configuration's folder; nil: none.
  public var seed: String?
  /// The codings that snapshots may come in, and answers where no compression is written: those of this host, the best first.
  public var snapshotCompressions: [PreparedModule<any Compression>]
  /// What the device shows the server: `token`, `principal`, or the keys of another authentication module.
  public var credentials: [String: String]
  /// What the device does when its history and the server's part.
  public var recovery: RecoverySettings
  /// Error archive: one entry and what depends on it, instead of all (semantics 8).
  public var individualDeletion: Bool
  /// Queue: several requests on one row become one before they are sent.
  public var optimisesQueue: Bool
  /// Nil: the library says nothing.
  public var log: LogSettings?
  /// The defaults, with what `limits` of the section says.
  public var limits: Limits
}

extension HostConfiguration {
  /// The tombstones' life without a setting: 90 days.
  public static let tombstoneRetentionDefault = RecoverySettings.retentionDefault

  /// The settled conflicts' life without a setting: 30 days.
  public static let conflictRetentionDefault: Int64 = 30 * 86_400_000
  /// The life of an upload in staging without a setting: one day.
  public static let stagingRetentionDefault: Int64 = 86_400_000
}
