extension RunningServer {
  /// The server of a configuration file: its database is open, and it does not listen yet.
  ///
  ///     let server = try await RunningServer.open(configurationFile: "salvor.json5")
  ///     print(try await server.start())
  ///
  /// A `client` section in the file is passed over: one file serves a device and a server.
  ///
  /// - Parameters:
  ///   - path: of `salvor.json5`; relative paths in it are relative to its directory.
  ///   - modules: the modules that the file may name; `ServerModules.all + [my]` for one of your own.
  ///   - environment: for `${NAME}`; nil: the environment of this process.
  ///   - log: where its lines go; nil: to standard error, as the file's `server.log` says.
  /// - Throws: `configuration` with every problem of the file in its message.
  public static func open(
    configurationFile path: String, modules: [ModuleFactory] = ServerModules.all,
    environment: [String: String]? = nil, log: Log? = nil
  ) async throws -> RunningServer {
    let environment = environment ?? processEnvironment()
    let configuration = try Host.load(path, modules: modules, environment: environment, sections: [.server])
    let writer = configuration.server?.log.writer(environment: environment)
    return try await Host.makeServer(configuration, log: log ?? writer?.log ?? .none)
  }
}
