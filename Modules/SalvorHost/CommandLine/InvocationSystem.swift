import SalvorClientEngine
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorWire

/// From a command line's `--config` to what the command works on.
extension Invocation {
  /// Reads the configuration file; what is wrong with it is in the result. No database is opened.
  ///
  /// - Parameter sections: those that the command uses.
  public func readConfiguration(
    _ sections: Set<HostSection> = Set(HostSection.allCases), log: Log = .none
  ) -> ConfigurationResult {
    HostConfiguration.load(
      path: configurationPath, registry: registry, environment: environment, sections: sections,
      template: ModuleContext(log: log))
  }

  /// The host's modules, and those of the libraries that the configuration file names, where there is one.
  public func registryWithPlugins() throws -> ModuleRegistry {
    guard options["config"] != nil || fileExists(configurationPath) else { return registry }
    return try HostConfiguration.modules(ofFile: configurationPath, registry: registry, environment: environment)
  }

  /// With the modules of the file's libraries.
  public func withPlugins() throws -> Invocation {
    var invocation = self
    invocation.registry = try registryWithPlugins()
    return invocation
  }

  /// The device's client; its database is opened by its first use. Throws `configuration` where the file has
  /// mistakes, or no client.
  public func makeClient() async throws -> SalvorClient {
    let configuration = try readConfiguration([.client]).get()
    let writer = configuration.client?.log?.writer(environment: environment)
    return try Host.makeClient(configuration, log: writer?.log ?? .none)
  }

  /// The server and the configuration that it is made from; the log's settings are those of the file from here on.
  public func makeServer(_ writer: LogWriter) async throws -> (HostConfiguration, RunningServer) {
    let configuration = try readConfiguration([.server], log: writer.log).get()
    if let settings = configuration.server?.log { writer.take(settings, environment: environment) }
    for warning in configuration.diagnostics {
      writer.log.warning("configuration", ["path": warning.path, "problem": warning.message])
    }
    let modules: JSONValue = ["modules": .array(registry.descriptors.map(\.json))]
    var token = configuration.server?.administrationToken
    if token == nil, configuration.servingProblems().isEmpty,
      let database = (try configuration.server?.storage.make() as? any FileDatabase)?.databaseFile
    {
      token = try AdministrationToken.ofFile(beside: database, log: writer.log)
    }
    let administrationToken = token
    let server = try await Host.makeServer(configuration, log: writer.log) { made in
      made.administrationToken = administrationToken
      made.hostFacts = HostFacts(
        configuration: configuration.description, modules: modules, level: { writer.level },
        setLevel: { writer.level = $0 })
    }
    return (configuration, server)
  }

  /// The server's database alone, open, beside a server that may be running. Throws `configuration` where the file
  /// has mistakes, or no server, and what the store's `open` throws.
  public func openServerStore() async throws -> any ServerStore {
    try await Host.openServerStore(try readConfiguration([.server]).get())
  }

  /// Not opened.
  public func makeServerStore() throws -> any ServerStore {
    try Host.makeServerStore(try readConfiguration([.server]).get())
  }
}
