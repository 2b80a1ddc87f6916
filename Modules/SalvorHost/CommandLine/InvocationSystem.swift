import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// From a command line's `--config` to what the command works on.
extension Invocation {
  public func readConfiguration(
    _ sections: Set<HostSection> = Set(HostSection.allCases), log: @escaping @Sendable (String) -> Void = { _ in }
  ) -> ConfigurationResult {
    HostConfiguration.load(
      path: configurationPath, registry: registry, environment: environment, sections: sections,
      template: ModuleContext(log: log))
  }

  public func makeClient() async throws -> SalvorClient {
    try Host.makeClient(try readConfiguration([.client]).get())
  }

  public func makeServer(log: @escaping @Sendable (String) -> Void) async throws -> RunningServer {
    let configuration = try readConfiguration([.server], log: log).get()
    for warning in configuration.diagnostics { log("warning: \(warning.path) \(warning.message)") }
    var token = configuration.server?.administrationToken
    if token == nil, configuration.servingProblems().isEmpty,
      let database = (try configuration.server?.storage.make() as? any FileDatabase)?.databaseFile
    {
      token = try AdministrationToken.ofFile(beside: database)
    }
    let administrationToken = token
    return try await Host.makeServer(configuration, adjust: { $0.administrationToken = administrationToken }, log: log)
  }

  public func openServerStore() async throws -> any ServerStore {
    try await Host.openServerStore(try readConfiguration([.server]).get())
  }

  /// Not opened.
  public func makeServerStore() throws -> any ServerStore {
    try Host.makeServerStore(try readConfiguration([.server]).get())
  }
}
