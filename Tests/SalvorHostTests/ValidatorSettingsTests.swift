import SalvorHost
import SalvorStorage
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import StandardModules
import Testing

@Suite("server.validators")
struct ValidatorSettingsTests {
  private let directory: Directory

  init() throws { directory = try Directory() }

  private func load(_ validators: String) throws -> ConfigurationResult {
    try directory.write(
      "salvor.json5",
      """
      {
        schema: { tables: {
          site: { primaryKey: "id", columns: { id: "text" } }, visit: { primaryKey: "id", columns: { id: "text" } },
          severity: { maintained: "server", primaryKey: "id", columns: { id: "text" } },
          draft: { maintained: "client", primaryKey: "id", columns: { id: "text" } },
        } },
        server: {
          storage: { module: "sqlite", path: "c.db" }, listen: { module: "http" }, authentication: { module: "none" },
          validators: \(validators),
        },
      }
      """)
    return HostConfiguration.load(
      path: directory.path + "/salvor.json5", registry: try ModuleRegistry(StandardModules.all),
      environment: ["SECRET": "a secret from outside"])
  }

  @Test("each is read with its own options and those of every validator, in order")
  func reads() throws {
    let result = try load(
      """
      [{ module: "webhook", url: "https://a.example/", secret: "${SECRET}", tables: ["visit"], onFailure: "accept", batchRequestsMax: 7 },
       { module: "webhook", url: "http://127.0.0.1:1/x" }]
      """)
    #expect(directory.report(result.diagnostics) == "")
    let validators = try #require(try result.get().server).validators
    #expect(validators.map(\.tables) == [["visit"], nil])
    #expect(validators.map(\.onFailure) == [.accept, .retryLater])
    #expect(validators.map(\.batchRequestsMax) == [7, ConfiguredValidator.batchRequestsDefault])
  }

  @Test(
    "mistakes are named at their places",
    arguments: [
      ("7", "server.validators: must be a list"),
      ("[7]", "server.validators[0]: must be an object"),
      ("[{ url: 'https://x' }]", "server.validators[0].module: is missing; known: webhook"),
      ("[{ module: 'webhook', url: 'https://x', table: ['visit'] }]", "server.validators[0].table: is not a key here"),
      ("[{ module: 'webhook', url: 'https://x', tables: [] }]", "server.validators[0].tables: is empty"),
      (
        "[{ module: 'webhook', url: 'https://x', tables: ['site', 'visits'] }]",
        "server.validators[0].tables[1]: names the table \"visits\", which is not in the schema; did you mean \"visit\"?"
      ),
      (
        "[{ module: 'webhook', url: 'https://x', tables: ['severity'] }]",
        "server.validators[0].tables[0]: names severity, which no device writes on the server"
      ),
      (
        "[{ module: 'webhook', url: 'https://x', onFailure: 'accepts' }]",
        "server.validators[0].onFailure: is \"accepts\"; allowed: retry-later, accept; did you mean \"accept\"?"
      ),
      (
        "[{ module: 'webhook', url: 'https://x', batchRequestsMax: 0 }]",
        "server.validators[0].batchRequestsMax: must be a whole number from 1 to 10000"
      ),
    ])
  func mistakes(validators: String, message: String) throws {
    let result = try load(validators)
    #expect(result.configuration == nil)
    #expect(directory.report(result.diagnostics).contains(message), "\(directory.report(result.diagnostics))")
  }
}
