import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorServer
import SalvorStorage
import SalvorTransport

/// A configuration file and a list of modules become a running system.
///
///     let configuration = try Host.load("salvor.json5", modules: StandardModules.all, environment: environment)
///     let client = try Host.makeClient(configuration)
public enum Host {
  /// Reads and checks the file. Throws `configuration` with every problem in its message.
  public static func load(
    _ path: String, modules: [ModuleFactory], environment: [String: String],
    sections: Set<HostSection> = Set(HostSection.allCases), log: Log = .none
  ) throws -> HostConfiguration {
    try HostConfiguration.load(
      path: path, registry: try ModuleRegistry(modules), environment: environment, sections: sections,
      template: ModuleContext(log: log)
    ).get()
  }

  /// The device's client; its database is opened by its first use.
  ///
  /// - Parameter adjust: the last word over what the file gives, e.g. callbacks of the application.
  public static func makeClient(
    _ configuration: HostConfiguration, log: Log = .none,
    adjust: (inout SalvorClient.Configuration) -> Void = { _ in }
  ) throws -> SalvorClient {
    guard let section = configuration.client else {
      throw SalvorError(
        .configuration,
        "\(configuration.file) has no \"client\" section: it is a server's. Name a device's file with --config.")
    }
    let compression = try section.compression?.make()
    var made = SalvorClient.Configuration(
      schema: configuration.schema, principal: section.credentials["principal"] ?? "",
      store: try section.storage.make(), transport: try section.transport.make(),
      credentials: credentialHeaders(section.credentials), compressions: compression.map { [$0] } ?? [],
      uploadCompression: compression, limits: section.limits,
      recovery: try recovery(section.recovery), individualDeletion: section.individualDeletion,
      optimisesQueue: section.optimisesQueue, log: log)
    adjust(&made)
    return SalvorClient(made)
  }

  private static func recovery(_ settings: RecoverySettings) throws -> RecoveryConfiguration {
    var recovery = RecoveryConfiguration(
      strategies: try settings.strategies.map { try $0.make() }, strategy: settings.strategy,
      reasons: settings.reasons, backupsKept: settings.backupsKept)
    func program(_ path: String?, _ name: String) -> RecoveryConfiguration.Hook? {
      guard let path else { return nil }
      let program = HookProgram(name: name, path: path, timeoutSeconds: settings.hookTimeoutSeconds)
      return { notice in try await program.run(notice) }
    }
    recovery.beforeReset = program(settings.beforeReset, "beforeReset")
    recovery.afterReset = program(settings.afterReset, "afterReset")
    return recovery
  }

  /// The server, its database open, not listening yet.
  ///
  /// Authentication that believes what a device says of itself is refused where others than this machine can listen in.
  ///
  /// - Parameter adjust: the last word over what the file gives, e.g. the clock of a simulation.
  public static func makeServer(
    _ configuration: HostConfiguration, log: Log = .none,
    adjust: (inout ServerConfiguration) -> Void = { _ in }
  ) async throws -> RunningServer {
    let section = try server(of: configuration)
    let problems = configuration.servingProblems()
    guard problems.isEmpty else {
      throw ConfigurationResult(configuration: nil, diagnostics: problems).refusal
    }
    var made = ServerConfiguration(
      schema: configuration.schema, conflictPolicies: try conflictPolicies(configuration),
      withholdsMessages: section.withholdsMessages,
      conflictRetentionMilliseconds: section.conflictRetentionMilliseconds,
      store: try section.storage.make(), authentication: try section.authentication.make(),
      compressions: try section.compressions.map { try $0.make() },
      validators: try section.validators.map { try $0.configured(configuration.schema) },
      limits: section.limits, historyCheck: section.historyCheck,
      clientRecoveryEnabled: section.clientRecoveryEnabled,
      selfServiceRemoteDeletion: section.selfServiceRemoteDeletion,
      administrationToken: section.administrationToken, monitoringNeedsCredential: section.monitoringNeedsCredential,
      accessLog: section.log.access, slowMilliseconds: section.log.slowMilliseconds, log: log,
      reclaimMemory: MemoryReturn().give)
    made.processFacts = { ProcessFacts.ofThisProcess() }
    made.audit = AuditFile(of: made.store)
    if let backups = section.backups, let store = made.store as? any RecoveringServerStore {
      made.backups = BackupDirectory(
        rotation: BackupRotation(directory: backups.directory, keep: backups.keep), store: store, clock: made.clock)
    }
    var exporter: TraceExporter?
    if let traces = section.traces {
      exporter = TraceExporter(
        try traces.make(), version: salvorVersion, instance: hexadecimal(made.random.bytes(8)), log: log)
      made.traces = exporter
    }
    made.bodyReading = OwnThread("bodies")
    made.bodyParsing = OwnThread("messages")
    adjust(&made)
    return try await RunningServer(
      made, traces: exporter, transport: try section.listen.make(),
      retentionMilliseconds: section.tombstoneRetentionMilliseconds,
      stagingMilliseconds: section.stagingRetentionMilliseconds)
  }

  /// The server's database alone, for administration beside a running server.
  public static func openServerStore(_ configuration: HostConfiguration) async throws -> any ServerStore {
    let store = try makeServerStore(configuration)
    _ = try await store.open(
      ServerSetup(schema: configuration.schema, conflictPolicies: try conflictPolicies(configuration)))
    return store
  }

  private static func conflictPolicies(_ configuration: HostConfiguration) throws -> [String: any ConflictPolicy] {
    try configuration.conflictPolicies.mapValues { try $0.make() }
  }

  /// The same, not opened: for copying and restoring.
  public static func makeServerStore(_ configuration: HostConfiguration) throws -> any ServerStore {
    try server(of: configuration).storage.make()
  }

  private static func server(of configuration: HostConfiguration) throws -> ServerSection {
    guard let section = configuration.server else {
      throw SalvorError(
        .configuration,
        "\(configuration.file) has no \"server\" section: it is a device's. Name a server's file with --config.")
    }
    return section
  }
}
