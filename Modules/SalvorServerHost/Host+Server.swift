import SalvorConfiguration
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorTransport

extension Host {
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
    for problem in configuration.listProblems() { log("\(problem.path) \(problem.message).") }
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
    made.reviewsOffers = section.reviewsOffers
    made.processFacts = { ProcessFacts.ofThisProcess() }
    made.monitoringIsApart = section.monitoring != nil
    made.audit = AuditFile(of: made.store)
    if let backups = section.backups, let store = made.store as? any RecoveringServerStore {
      made.backups = BackupDirectory(
        rotation: BackupRotation(directory: backups.directory, keep: backups.keep), store: store, clock: made.clock)
    }
    if let options = section.snapshots {
      made.snapshots = SnapshotSettings(options.rules, compression: try options.compression.make())
    }
    var exporter: TraceExporter?
    if let traces = section.traces {
      exporter = TraceExporter(
        try traces.make(), version: salvorVersion, instance: hexadecimal(made.random.bytes(8)), log: log)
      made.traces = exporter
    }
    made.makeThreads()
    adjust(&made)
    return try await RunningServer(
      made, traces: exporter, transport: try section.listen.make(), monitoring: try section.monitoring?.make(),
      retentionMilliseconds: section.tombstoneRetentionMilliseconds,
      stagingMilliseconds: section.stagingRetentionMilliseconds)
  }

  /// The server's database alone, for administration beside a running server.
  public static func openServerStore(_ configuration: HostConfiguration) async throws -> any ServerStore {
    let store = try makeServerStore(configuration)
    _ = try await open(store, configuration)
    return store
  }

  /// Opens the server's database as the configuration says.
  public static func open(_ store: any ServerStore, _ configuration: HostConfiguration) async throws -> ServerOpening {
    let section = try server(of: configuration)
    return try await store.open(
      ServerSetup(
        schema: configuration.schema, conflictPolicies: try conflictPolicies(configuration),
        withholdsMessages: section.withholdsMessages, reviewsOffers: section.reviewsOffers))
  }

  /// What keeps the server's database from being served. Nothing is opened or changed; nil: the module cannot say.
  public static func examineServerStore(_ configuration: HostConfiguration) async throws -> StorageExamination? {
    guard let store = try makeServerStore(configuration) as? any ExaminableServerStore else { return nil }
    return try await store.examine(ServerSetup(schema: configuration.schema))
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
