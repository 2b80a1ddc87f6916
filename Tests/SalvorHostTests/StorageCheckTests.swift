import Foundation
import SalvorHost
import SalvorModel
import SalvorModuleKit
import StandardModules
import Testing

/// What would end `serve` or `sync` is said when the file is read, before anything is opened.
@Suite("The stores are asked about the schema and their files before they are opened")
struct StorageCheckTests {
  private let directory: Directory

  init() throws {
    directory = try Directory()
    try directory.write("tokens.json5", "{ tokens: [] }")
  }

  private static let schema = """
    {
      tables: {
        visit: {
          primaryKey: "id", columns: { id: "text", line: "integer" },
          check: [
            "line > 0",
            "CONDITION",
          ],
        },
      },
    }
    """

  private func load(
    _ condition: String = "line < 100", server: String = "sqlite\", path: \"c.db", client: String = "f.db",
    address: String = "127.0.0.1", tls: String = "", authentication: String = "none\"",
    sections: Set<HostSection> = [.server, .client],
    more: String = ""
  ) throws -> ConfigurationResult {
    try directory.write("schema.json5", Self.schema.replacingOccurrences(of: "CONDITION", with: condition))
    try directory.write(
      "salvor.json5",
      """
      {
        schema: "schema.json5",
        server: {
          storage: { module: "\(server)" },
          listen: { module: "http", address: "\(address)"\(tls) },
          authentication: { module: "\(authentication) },
        },
        client: {
          storage: { module: "sqlite", path: "\(client)" },
          transport: { module: "http", url: "http://127.0.0.1:8484" },
        },
        \(more)
      }
      """)
    return HostConfiguration.load(
      path: directory.path + "/salvor.json5", registry: try ModuleRegistry(StandardModules.all), environment: [:],
      sections: sections)
  }

  /// What is said of the file, with the directory's path as DIR.
  private func report(_ result: ConfigurationResult) -> String {
    directory.report(result.diagnostics).replacingOccurrences(of: directory.path, with: "DIR")
  }

  @Test("a sound file has no diagnostic, and nothing is made for it")
  func sound() throws {
    #expect(report(try load()) == "")
    #expect(try directory.contents() == ["salvor.json5", "schema.json5", "tokens.json5"])
  }

  @Test("a condition that SQLite refuses is named by file, line and key path, once for both sides")
  func condition() throws {
    let result = try load("nosuch < 100")
    #expect(result.configuration == nil)
    #expect(
      report(result)
        == "schema.json5:7: tables.visit.check[1]: is not a condition for the table's rows: no such column: nosuch")
  }

  @Test("a condition that the memory store does not understand is said, too")
  func memory() throws {
    #expect(
      report(try load("abs(line) < 100", server: "memory"))
        == "schema.json5:7: tables.visit.check[1]: is not a condition that the memory store understands: it knows comparisons of columns and constants"
    )
    #expect(report(try load(server: "memory")) == "")
  }

  @Test("a device's database cannot be a directory, in one that is not there, or have no name")
  func paths() throws {
    #expect(report(try load(client: "")) == "salvor.json5:9: client.storage.path: is empty; name a file")
    #expect(
      report(try load(client: ".")) == "salvor.json5:9: client.storage: names a directory, .; name a file in it")
    #expect(
      report(try load(client: "none/f.db"))
        == "salvor.json5:9: client.storage: names none/f.db, but none is not there: make that directory first, or name a file somewhere else"
    )
    #expect(
      report(try load(client: "schema.json5/f.db"))
        == "salvor.json5:9: client.storage: names schema.json5/f.db, but schema.json5 is no directory: make that directory first, or name a file somewhere else"
    )
    #expect(
      report(try load(server: "sqlite\", path: \"none/c.db"))
        == "salvor.json5:4: server.storage: names none/c.db, but none is not there: make that directory first, or name a file somewhere else"
    )
    #expect(
      report(try load(client: "a\\u0000b"))
        == "salvor.json5:9: client.storage.path: has the character U+0000 in it, which no path can have")
  }

  @Test("a section that is not used is not looked for on this machine")
  func otherSection() throws {
    #expect(report(try load(client: "none/f.db", sections: [.server])) == "")
    #expect(report(try load(server: "sqlite\", path: \"none/c.db", sections: [.client])) == "")
  }

  @Test("the device's database is not the server's, by whatever name", arguments: ["c.db", "./c.db", "link/c.db"])
  func sameFile(path: String) throws {
    try FileManager.default.createSymbolicLink(atPath: directory.path + "/link", withDestinationPath: directory.path)
    let expected =
      "salvor.json5:9: client.storage: names the server's database, \(path); a device has a database of its own: name another file"
    #expect(report(try load(client: path)) == expected)
    #expect(report(try load(client: path, sections: [.client])) == expected)
    try directory.write("c.db", "")
    #expect(report(try load(client: path)) == expected)
  }

  @Test("libraries under plugins that cannot be loaded are refused by name, each with why")
  func plugins() throws {
    #expect(report(try load(more: "plugins: [],")) == "")
    let path = directory.path
    func refused(_ name: String) throws -> String {
      report(try load(more: "plugins: [\"\(name)\"],"))
    }
    #expect(
      try refused("nofile.so")
        == "salvor.json5:12: plugins[0]: names the library nofile.so, which cannot be read: No such file or directory"
    )
    try FileManager.default.createDirectory(atPath: path + "/folder.so", withIntermediateDirectories: false)
    #expect(
      try refused("folder.so") == "salvor.json5:12: plugins[0]: names the library folder.so, which is no file")
    try directory.write("text.so", "no library")
    #expect(
      try refused("text.so").hasPrefix(
        "salvor.json5:12: plugins[0]: names the library text.so, which cannot be loaded: "))
    try directory.write("open.so", "no library")
    try FileManager.default.setAttributes([.posixPermissions: 0o666], ofItemAtPath: path + "/open.so")
    #expect(try refused("open.so").contains("open.so, which everybody may write"))
  }

  @Test("a schema that is a directory, empty or too large is refused with the reason")
  func schemaFile() throws {
    let result = try load()
    #expect(result.configuration != nil)
    func read() throws -> String {
      report(
        HostConfiguration.load(
          path: directory.path + "/salvor.json5", registry: try ModuleRegistry(StandardModules.all), environment: [:]))
    }
    try directory.write("schema.json5", "")
    #expect(try read() == "schema.json5:1:1: expected an object { … }, found the end of the file")
    try directory.write("schema.json5", "{ a: '" + String(repeating: "x", count: JSON5Reader.fileBytesMax) + "' }")
    #expect(try read().hasPrefix("schema.json5: is larger than 8388608 bytes"))
    try FileManager.default.removeItem(atPath: directory.path + "/schema.json5")
    try FileManager.default.createDirectory(
      atPath: directory.path + "/schema.json5", withIntermediateDirectories: false)
    #expect(try read() == "salvor.json5:2: schema: names a file that cannot be read: Is a directory")
  }

  @Test("files of TLS that cannot be read are warned of")
  func filesOfTLS() throws {
    let result = try load(tls: ", tls: { certificate: \"no.pem\", key: \"tokens.json5\" }")
    #expect(
      report(result)
        == "salvor.json5:5: warning: server.listen.tls.certificate: names no file that can be read; a server would not start with it"
    )
    #expect(result.configuration != nil)
  }

  // MARK: What stops a server

  private func serving(address: String = "127.0.0.1", authentication: String) throws -> String {
    directory.report(try load(address: address, authentication: authentication).get().servingProblems())
  }

  @Test("an authentication that believes its callers is for loopback only, and check says what serve says")
  func loopbackOnly() async throws {
    let expected =
      "salvor.json5:6: server.authentication: is \"none\", which is for callers on this machine only, but others can reach server.listen: use \"tokens\" (salvor token makes one), or listen on 127.0.0.1"
    #expect(try serving(authentication: "none\"") == "")
    #expect(try serving(address: "localhost", authentication: "none\"") == "")
    #expect(try serving(address: "0.0.0.0", authentication: "none\"").hasSuffix(expected))
    let configuration = try load(address: "0.0.0.0").get()
    let error = await #expect(throws: SalvorError.self) { _ = try await Host.makeServer(configuration) }
    #expect(error?.code == .configuration)
    #expect(error?.message.contains(expected.drop { $0 != ":" }) == true, "\(error?.message ?? "")")
    #expect(try !directory.contents().contains("c.db"))
  }

  @Test("a server that others reach without TLS is refused by name, unless that is said (issue: clear text)")
  func clearText() async throws {
    let found = try serving(address: "0.0.0.0", authentication: "tokens\", file: \"tokens.json5\"")
    #expect(
      found.contains("server.listen: listens on 0.0.0.0 without TLS") && found.contains("insecure: true"), "\(found)")
    let configuration = try load(address: "0.0.0.0", authentication: "tokens\", file: \"tokens.json5\"").get()
    let error = await #expect(throws: SalvorError.self) { _ = try await Host.makeServer(configuration) }
    #expect(error?.code == .configuration && error?.message.contains("without TLS") == true)
  }

  @Test("a token file that is not there or wrong stops a server, and no value of it is shown")
  func tokenFile() throws {
    let tokens = "tokens\", file: \"none.json5\""
    #expect(
      try serving(authentication: tokens).hasPrefix(
        "salvor.json5:6: server.authentication: cannot be used: The token file none.json5 cannot be read"))
    try directory.write("none.json5", "{ tokens: [{ sha256: \"hunter2\", principal: \"anna\" }] }")
    let found = try serving(authentication: tokens)
    #expect(found.contains("tokens[0].sha256") && !found.contains("hunter2"))
  }
}
