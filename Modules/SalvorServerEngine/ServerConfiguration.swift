import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What a server engine is made of. Everything that touches the world comes in through a protocol.
public struct ServerConfiguration: Sendable {
  /// The schema of both databases. Client-only tables of it are none of the server's.
  public var schema: Schema
  /// How conflicts are settled, by table (`ServerSetup.conflictPolicies`).
  public var conflictPolicies: [String: any ConflictPolicy]
  /// A refusal does not say what the database's own constraints and triggers say (`ServerSetup.withholdsMessages`).
  public var withholdsMessages: Bool
  /// How long conflicts that a policy settled are listed.
  public var conflictRetentionMilliseconds: Int64
  /// Where everything is kept. The engine opens and closes it.
  public var store: any ServerStore
  /// Finds out who sends a request.
  public var authentication: any Authentication
  /// Offered content codings, best first; identity always works.
  public var compressions: [any Compression]
  /// Asked before an upload is processed, in this order.
  public var validators: [ConfiguredValidator]
  /// What the engine refuses to exceed (`server.limits`). Transports were made with limits of their own.
  public var limits: Limits
  /// False: the sequence check and the server ID alone (semantics 6).
  public var historyCheck: Bool
  /// False: devices are told so, and the strategies that need the server's consent fall through (semantics 9).
  public var clientRecoveryEnabled: Bool
  /// A device that recovers may delete its own remote ID.
  public var selfServiceRemoteDeletion: Bool
  /// Every offer of a lost row waits for the operator's consent (`ServerSetup.reviewsOffers`).
  public var reviewsOffers = false
  /// The credential of `/admin/v1`; nil: administration over the transport is off.
  public var administrationToken: String?
  /// `/metrics` and `/readyz` want the credential of `/admin/v1`, too.
  public var monitoringNeedsCredential: Bool
  /// `/metrics` and `/readyz` are answered by `ServerEngine.monitor` alone, and not by `handle`.
  public var monitoringIsApart = false
  /// A line of the log for each request.
  public var accessLog: Bool
  /// What takes longer is counted, and a transaction that does is a warning.
  public var slowMilliseconds: Int64
  /// What the host knows of the server; nil: `/admin/v1/configuration` and its like have nothing to say.
  public var hostFacts: HostFacts?
  /// Which groups are offered as files; nil: none.
  public var snapshots: SnapshotSettings?
  /// Where operators' acts are written down; nil: in the log alone.
  public var audit: (any AuditTrail)?
  /// Of the process, for `/metrics`.
  public var processFacts: (@Sendable () -> ProcessFacts?)?
  /// Where the spans of requests go; nil: nowhere.
  public var traces: (any TraceSink)?
  /// The copies that the host keeps of the database; nil: it keeps none.
  public var backups: (any ServerBackups)?
  /// For times that people read, retention and time limits.
  public var clock: any Clock
  /// Where identifiers are drawn from.
  public var random: any RandomSource
  /// Where large bodies are unpacked, and where they are parsed; nil: where requests are answered (`makeThreads`).
  public var bodyReading: OwnThread?
  /// Where large bodies are parsed; nil: where requests are answered.
  public var bodyParsing: OwnThread?
  /// Where the pages of long downloads are compressed, each download on one of them; empty: where requests are answered.
  public var downloads: [OwnThread] = []
  /// Called after requests with large bodies, to give memory back to the system.
  public var reclaimMemory: @Sendable () -> Void
  /// Lines for the operator; no value of a user in them.
  public var log: Log

  /// Gives what is long threads of its own: those on which requests are answered stay free for what is short.
  public mutating func makeThreads() {
    bodyReading = OwnThread("bodies", isPatient: true)
    bodyParsing = OwnThread("messages", isPatient: true)
    downloads = OwnThread.forEachProcessor("download", isPatient: true)
  }

  /// By default without policies, validators and administration, and with the default limits, the history check and
  /// the recovery of devices on, and 30 days for settled conflicts. What is no parameter (snapshots, backups,
  /// audit, traces, threads) is off until it is set.
  public init(
    schema: Schema, conflictPolicies: [String: any ConflictPolicy] = [:], withholdsMessages: Bool = false,
    conflictRetentionMilliseconds: Int64 = 30 * 86_400_000, store: any ServerStore,
    authentication: any Authentication, compressions: [any Compression], validators: [ConfiguredValidator] = [],
    limits: Limits = Limits(), historyCheck: Bool = true, clientRecoveryEnabled: Bool = true,
    selfServiceRemoteDeletion: Bool = false, administrationToken: String? = nil,
    monitoringNeedsCredential: Bool = false, accessLog: Bool = false, slowMilliseconds: Int64 = 1000,
    clock: any Clock = SystemClock(), random: any RandomSource = SystemRandom(),
    log: Log = .none, reclaimMemory: @escaping @Sendable () -> Void = {}
  ) {
    self.reclaimMemory = reclaimMemory
    self.schema = schema
    self.conflictPolicies = conflictPolicies
    self.withholdsMessages = withholdsMessages
    self.conflictRetentionMilliseconds = conflictRetentionMilliseconds
    self.store = store
    self.authentication = authentication
    self.compressions = compressions
    self.validators = validators
    self.limits = limits
    self.historyCheck = historyCheck
    self.clientRecoveryEnabled = clientRecoveryEnabled
    self.selfServiceRemoteDeletion = selfServiceRemoteDeletion
    self.administrationToken = administrationToken
    self.monitoringNeedsCredential = monitoringNeedsCredential
    self.accessLog = accessLog
    self.slowMilliseconds = slowMilliseconds
    self.clock = clock
    self.random = random
    self.log = log
  }
}
