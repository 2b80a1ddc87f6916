import SalvorClientEngine
import SalvorConfiguration
import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorTransport

extension Host {
  /// The device's client; its database is opened by its first use.
  ///
  /// - Parameter adjust: the last word over what the file gives, e.g. callbacks of the application.
  public static func makeClient(
    _ configuration: HostConfiguration, log: Log = .none,
    adjust: (inout SalvorClient.Configuration) -> Void = { _ in }
  ) throws -> SalvorClient {
    SalvorClient(try clientConfiguration(configuration, log: log, adjust: adjust))
  }

  /// What `makeClient` makes the client of.
  public static func clientConfiguration(
    _ configuration: HostConfiguration, log: Log = .none,
    adjust: (inout SalvorClient.Configuration) -> Void = { _ in }
  ) throws -> SalvorClient.Configuration {
    guard let section = configuration.client else {
      throw SalvorError(
        .configuration,
        "\(configuration.file) has no \"client\" section: it is a server's. Name a device's file with --config.")
    }
    let compression = try section.compression?.make()
    let codings = try section.snapshotCompressions.map { try $0.make() }
    var made = SalvorClient.Configuration(
      schema: configuration.schema, principal: section.credentials["principal"] ?? "",
      store: try section.storage.make(), transport: try section.transport.make(),
      credentials: credentialHeaders(section.credentials),
      compressions: section.isCompressionWritten
        ? compression.map { [$0] } ?? [] : codings.filter { $0.token != "identity" },
      uploadCompression: compression, limits: section.limits,
      recovery: try recovery(section.recovery), individualDeletion: section.individualDeletion,
      optimisesQueue: section.optimisesQueue, log: log)
    made.makeStore = section.storageAt
    made.seed = section.seed
    made.snapshotCompressions = codings
    adjust(&made)
    return made
  }

  private static func recovery(_ settings: RecoverySettings) throws -> RecoveryConfiguration {
    var recovery = RecoveryConfiguration(
      strategies: try settings.strategies.map { try $0.make() }, strategy: settings.strategy,
      reasons: settings.reasons, backupsKept: settings.backupsKept, heal: settings.heal)
    recovery.lossRetentionMilliseconds = settings.retentionMilliseconds
    func program(_ path: String?, _ name: String) -> RecoveryConfiguration.Hook? {
      guard let path else { return nil }
      let program = HookProgram(name: name, path: path, timeoutSeconds: settings.hookTimeoutSeconds)
      return { notice in try await program.run(notice) }
    }
    recovery.beforeReset = program(settings.beforeReset, "beforeReset")
    recovery.afterReset = program(settings.afterReset, "afterReset")
    return recovery
  }
}
