import SQLiteClientStore
import SalvorConfiguration
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

extension SalvorClient {
  /// The client of a configuration file. Its database is opened, or made, by its first use.
  ///
  ///     let client = try SalvorClient(configurationFile: "salvor.json5")
  ///     try await client.synchronize()
  ///
  /// A `server` section in the file is passed over: one file serves a device and a server.
  ///
  /// - Parameters:
  ///   - path: of `salvor.json5`; relative paths in it are relative to its directory.
  ///   - modules: the modules that the file may name; `ClientModules.all + [my]` for one of your own.
  ///   - environment: for `${NAME}`; nil: the environment of this process.
  ///   - adjust: the last word over what the file gives, e.g. callbacks of the application.
  /// - Throws: `configuration` with every problem of the file in its message. Nothing was opened or made then.
  public init(
    configurationFile path: String, modules: [ModuleFactory] = ClientModules.all, environment: [String: String]? = nil,
    adjust: (inout Configuration) -> Void = { _ in }
  ) throws {
    let environment = environment ?? processEnvironment()
    try self.init(
      HostConfiguration.load(
        path: path, registry: try ModuleRegistry(modules), environment: environment, sections: [.client]),
      environment, adjust)
  }

  /// The client of a SQLite database and of a server that is reached by HTTP, without a file of configuration.
  ///
  ///     let client = try SalvorClient(
  ///       database: "notes.db", schema: "schema.json5", server: "https://sync.example.org",
  ///       credentials: { Credentials(token: try await session.token()) })
  ///
  /// - Parameters:
  ///   - database: the path of the application's database; it is made where there is none.
  ///   - schema: the path of `schema.json5`, or its text where it begins with a brace.
  ///   - server: the server's URL.
  ///   - credentials: who sends; asked when a synchronization begins, and again when the server does not take it.
  ///   - key: of an encrypted database, asked for by the database's path each time that it is opened; needs an SQLite that can encrypt.
  ///   - modules: the modules of this client.
  ///   - adjust: the last word, e.g. callbacks of the application.
  /// - Throws: `configuration` with everything that is wrong in its message. Nothing was opened or made then.
  public init(
    database: String, schema: String, server: String,
    credentials: @escaping CredentialsProvider, key: (@Sendable (_ database: String) throws -> String)? = nil,
    modules: [ModuleFactory] = ClientModules.all,
    adjust: (inout Configuration) -> Void = { _ in }
  ) throws {
    let isText = schema.drop { $0.isWhitespace }.first == "{"
    let registry = try ModuleRegistry(modules)
    // The schema is checked as one in a file is; nothing else of the file needs to be written.
    let client: JSONValue = [
      "storage": ["module": "sqlite", "path": .string(database)],
      "transport": ["module": "http", "url": .string(server)],
    ]
    let inline = isText ? schema : JSONValue.string(schema).text
    let text = "{ \"schema\": \(inline), \"client\": \(client.text) }"
    try self.init(
      HostConfiguration.load(
        text: Array(text.utf8), named: "SalvorClient", registry: registry, environment: [:], sections: [.client]),
      [:],
      { configuration in
        configuration.credentialsProvider = credentials
        if let key {
          let limits = configuration.limits
          let makeStore: @Sendable (String) -> any ClientStore = { path in
            SQLiteClientStore(path: path, limits: limits) { try key(path) }
          }
          configuration.store = makeStore(database)
          configuration.makeStore = makeStore
        }
        adjust(&configuration)
      })
  }

  /// The client of a configuration that is in no file: JSON5, as it would stand in one.
  ///
  ///     let client = try SalvorClient(configuration: "{ schema: …, client: … }", directory: "data")
  ///
  /// - Parameters:
  ///   - text: the configuration; `schema` in it may be the schema itself.
  ///   - directory: relative paths are relative to it.
  ///   - modules: the modules that the text may name.
  ///   - environment: for `${NAME}`; nil: the environment of this process.
  ///   - adjust: the last word, e.g. callbacks of the application.
  /// - Throws: `configuration` with everything that is wrong in its message. Nothing was opened or made then.
  public init(
    configuration text: String, directory: String, modules: [ModuleFactory] = ClientModules.all,
    environment: [String: String]? = nil, adjust: (inout Configuration) -> Void = { _ in }
  ) throws {
    let environment = environment ?? processEnvironment()
    try self.init(
      HostConfiguration.load(
        text: Array(text.utf8), named: directory + "/configuration", registry: try ModuleRegistry(modules),
        environment: environment, sections: [.client]),
      environment, adjust)
  }

  private init(
    _ read: ConfigurationResult, _ environment: [String: String], _ adjust: (inout Configuration) -> Void
  ) throws {
    let configuration = try read.get()
    let writer = configuration.client?.log?.writer(environment: environment)
    self.init(try Host.clientConfiguration(configuration, log: writer?.log ?? .none, adjust: adjust))
  }
}
