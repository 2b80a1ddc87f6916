import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorTransport
import StandardModules
import Testing

@Suite("a parameter without a list is a filter, not a protection, and check says so (semantics 7)")
struct ParameterProtectionTests {
  private static let schema = """
    {
      parameters: { region: "text", team: "integer" },
      tables: {
        depot: { primaryKey: "id", columns: { id: "text", region: "text" }, scope: { region: "parameter:region" } },
        site: { primaryKey: "id", columns: { id: "text", r: "text", t: "integer" },
                scope: { r: "parameter:region", t: "parameter:team" } },
        visit: { primaryKey: "id", columns: { id: "text", site_id: "text" },
                 references: { site_id: { table: "site", scope: "inherit" } } },
      },
    }
    """

  private let directory: Directory

  init() throws { directory = try Directory() }

  /// What `check` finds beside the file's own diagnostics, of which there is none.
  private func report(
    schema: String = schema, authentication: String, modules: [ModuleFactory] = []
  ) throws -> String {
    try directory.write("schema.json5", schema)
    try directory.write(
      "salvor.json5",
      """
      {
        schema: "schema.json5",
        server: { storage: { module: "sqlite", path: "c.db" }, listen: { module: "http" },
                  authentication: \(authentication) },
      }
      """)
    let result = HostConfiguration.load(
      path: directory.path + "/salvor.json5", registry: try ModuleRegistry(StandardModules.all + modules),
      environment: [:])
    #expect(directory.report(result.diagnostics) == "")
    let found = try result.get().protectionWarnings()
    #expect(found.allSatisfy { $0.severity == .warning })
    #expect(try directory.contents().allSatisfy { $0.hasSuffix(".json5") }, "something was made")
    return directory.report(found)
  }

  /// A token file with one entry for each principal and what stands under its `parameters`.
  private func writeTokens(_ entries: [(principal: String, parameters: String?)]) throws -> [String] {
    let digits = "0123456789abcdef"
    let hashes = entries.indices.map { index in String(repeating: "\(Array(digits)[index])c", count: 32) }
    let lines = zip(hashes, entries).map { hash, entry in
      "{ sha256: \"\(hash)\", principal: \"\(entry.principal)\"\(entry.parameters.map { ", parameters: \($0)" } ?? "") },"
    }
    try directory.write("tokens.json5", "{ tokens: [\n\(lines.joined(separator: "\n"))\n] }")
    return hashes
  }

  private let tokens = "{ module: \"tokens\", file: \"tokens.json5\" }"

  private static let end =
    "without a list it is a filter, not a protection, and any value may be asked for and written"

  @Test(
    "each parameter is warned of once, with its place, its tables and the principals without a list; no hash is shown")
  func tokensWithoutAList() throws {
    let hashes = try writeTokens([
      ("anna", "{ region: [\"EU\"], team: [7] }"), ("ben", "{ region: [\"US\"] }"), ("carl", nil),
      ("carl", "{ regoin: [\"EU\"], team: [] }"),
    ])
    let found = try report(authentication: tokens)
    #expect(
      found == """
        schema.json5:2: warning: parameters.region: is the scope of "depot", "site", but authentication "tokens" lists no values of it for "carl": \(Self.end)
        schema.json5:2: warning: parameters.team: is the scope of "site", but authentication "tokens" lists no values of it for "ben", "carl": \(Self.end)
        """)
    #expect(hashes.allSatisfy { !found.contains($0) })
  }

  @Test("where everybody has a list, an empty one too, there is no warning; nor where no table has the parameter")
  func everybodyIsLimited() throws {
    _ = try writeTokens([("anna", "{ region: [\"EU\"], team: [7] }"), ("ben", "{ region: [], team: [1, 2] }")])
    #expect(try report(authentication: tokens) == "")
    let open = "{ tables: { a: { primaryKey: \"x\", columns: { x: \"text\" }, scope: { x: \"principal\" } } } }"
    #expect(try report(schema: open, authentication: "{ module: \"none\" }") == "")
  }

  @Test("with authentication none nobody has a list")
  func none() throws {
    #expect(
      try report(authentication: "{ module: \"none\" }") == """
        schema.json5:2: warning: parameters.region: is the scope of "depot", "site", but authentication "none" lists no values of it for anybody: \(Self.end)
        schema.json5:2: warning: parameters.team: is the scope of "site", but authentication "none" lists no values of it for anybody: \(Self.end)
        """)
  }

  @Test("many principals are counted, not listed")
  func many() throws {
    _ = try writeTokens((0..<11).map { ("p\($0)", "{ team: [1] }") })
    #expect(
      try report(authentication: tokens).contains(
        "for \"p0\", \"p1\", \"p2\", \"p3\", \"p4\", \"p5\", \"p6\", \"p7\" and 3 more:"))
  }

  @Test("nobody is asked where the token file cannot be used: that is a mistake of its own")
  func tokenFileIsWrong() throws {
    #expect(try report(authentication: tokens) == "")
  }

  @Test("a listed parameter that the schema does not have is a mistake, and so is a value of another type")
  func wrongLists() throws {
    _ = try writeTokens([
      ("anna", "{ region: [\"EU\"], regoin: [\"EU\"] }"), ("bob", "{ region: [5], team: [1] }"), ("eve", nil),
    ])
    _ = try report(authentication: tokens)
    let result = HostConfiguration.load(
      path: directory.path + "/salvor.json5", registry: try ModuleRegistry(StandardModules.all), environment: [:])
    let found = try result.get().listProblems()
    #expect(found.allSatisfy { $0.severity == .error && $0.path == "server.authentication" })
    #expect(found.count == 2)
    #expect(found.first?.message.contains("\"region\" for \"bob\" that are no text") == true)
    #expect(found.last?.message.contains("\"regoin\" for \"anna\"") == true)
    #expect(found.last?.message.hasSuffix("did you mean \"region\"?") == true)
  }

  @Test("an authentication that says nothing of lists counts as without")
  func another() throws {
    struct Card: Authentication {
      func authenticate(_ request: TransportRequest) async throws -> Principal { Principal(name: "anna") }
      func headers(credentials: [String: String]) throws -> [String: String] { [:] }
    }
    let factory = ModuleFactory(
      ModuleDescriptor(kind: .authentication, name: "card", summary: "A test's"), product: (any Authentication).self
    ) { _, _ in { Card() } }
    let found = try report(authentication: "{ module: \"card\" }", modules: [factory])
    #expect(found.contains("authentication \"card\" lists no values of it for anybody"))
  }

  @Test("a device's file is not asked")
  func device() throws {
    try directory.write("schema.json5", Self.schema)
    try directory.write(
      "salvor.json5",
      """
      { schema: "schema.json5",
        client: { storage: { module: "sqlite", path: "f.db" }, transport: { module: "http", url: "http://127.0.0.1:1" } } }
      """)
    let result = HostConfiguration.load(
      path: directory.path + "/salvor.json5", registry: try ModuleRegistry(StandardModules.all), environment: [:])
    #expect(try result.get().protectionWarnings().isEmpty)
  }
}
