import Foundation
import SQLiteSupport
import Testing

/// What the products bring, looked for in the executables of Examples/ that link one product each.
@Suite struct ProductTests {
  private static func built(_ name: String) -> String {
    URL(fileURLWithPath: Built.salvor).deletingLastPathComponent().appendingPathComponent(name).path
  }

  /// The modules that have symbols in an executable: a mangled name begins with the module's length and name.
  private func modules(_ names: [String], in executable: String) async throws -> Set<String> {
    let output = try await ChildProcess(
      "nm", ["--defined-only", executable], directory: FileManager.default.temporaryDirectory
    ).output()
    try #require(output.code == 0, "\(output.err)")
    return Set(names.filter { output.out.contains("$s\($0.utf8.count)\($0)") })
  }

  private func libraries(of executable: String) async throws -> String {
    try await ChildProcess(
      "readelf", ["-d", executable], directory: FileManager.default.temporaryDirectory
    ).output().out
  }

  private let client = [
    "SalvorClientEngine", "SalvorClientHost", "SQLiteClientStore", "RecreateRecovery", "ClientModules",
  ]
  private let server = [
    "SalvorServerEngine", "SalvorServerHost", "SQLiteServerStore", "HTTPServerTransport", "TokenAuthentication",
    "WebhookValidator", "ClientWinsPolicy", "ServerModules",
  ]

  @Test("import SalvorClient is the whole client, and no server is in the executable", .enabled(if: Built.has("nm")))
  func client() async throws {
    let found = try await modules(
      client + server + ["SalvorHost", "MemoryStore"], in: Self.built("example-quickstart"))
    #expect(found == Set(client))
    #expect(try await !libraries(of: Self.built("example-quickstart")).contains("microhttpd"))
  }

  @Test("import SalvorServer is the whole server, and no client is in the executable", .enabled(if: Built.has("nm")))
  func server() async throws {
    let found = try await modules(
      client + server + ["SalvorHost", "MemoryStore"], in: Self.built("example-own-server"))
    #expect(found == Set(server))
  }

  @Test("One file with both sections, as salvor init writes it, serves a build with a client and one with a server")
  func oneFile() async throws {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(
      "salvor-e2e-products-\(UUID().uuidString) ü")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    #expect(try await salvor(["init"], in: folder).code == 0)
    let file = folder.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: "port: 8484", with: "port: 0").write(to: file, atomically: true, encoding: .utf8)
    let serving = try ChildProcess(Self.built("example-own-server"), ["salvor.json5"], directory: folder)
    let url = try await serving.line(after: "listening on ")
    defer { serving.signal(SIGTERM) }
    try text.replacingOccurrences(of: "http://127.0.0.1:8484", with: url)
      .write(to: folder.appendingPathComponent("device.json5"), atomically: true, encoding: .utf8)

    let rows = try SQLiteConnection(folder.appendingPathComponent("consolidated.db").path)
    try rows.execute("INSERT INTO site (id, name) VALUES ('s1', 'Harbour Kitchen')")
    rows.close()
    let first = try await ChildProcess(Self.built("example-quickstart"), ["device.json5"], directory: folder).output()
    #expect(first.code == 0, "\(first.err)")
    #expect(first.out == "synchronized: 1 rows came, 0 changes went\n")
    let device = try SQLiteConnection(folder.appendingPathComponent("field.db").path)
    #expect(try device.rows("SELECT name FROM site") == [["Harbour Kitchen"]])
    device.close()
  }

  @Test("From a new package to the first synchronized row the page has at most 12 lines of Swift")
  func firstRow() throws {
    let page = try String(
      contentsOf: Built.root.appendingPathComponent("docs/guides/application.md"), encoding: .utf8)
    let blocks = page.components(separatedBy: "```swift\n").dropFirst().map { $0.components(separatedBy: "```")[0] }
    let ofThePackage = try #require(blocks.first), program = try #require(blocks.dropFirst().first)
    #expect(ofThePackage.contains(".product(name: \"SalvorClient\"") && program.contains("import SalvorClient"))
    let lines = (ofThePackage + program).split(separator: "\n").filter { !$0.allSatisfy(\.isWhitespace) }
    #expect(lines.count <= 12, "\(lines)")
  }

  @Test("A file with the other section alone is refused by name, and nothing is made")
  func otherSection() async throws {
    let workspace = try Workspace()
    let refused = try await ChildProcess(
      Self.built("example-quickstart"), ["salvor.json5"], directory: workspace.directory
    ).output()
    #expect(refused.code != 0)
    #expect(refused.err.contains("server: is the only section, and this program has no server in it"), "\(refused.err)")
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: workspace.directory.path).sorted() == [
        "salvor.json5", "schema.json5",
      ])
  }
}
