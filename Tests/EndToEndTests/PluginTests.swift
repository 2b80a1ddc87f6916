import Foundation
import Testing

/// A library with modules of others, built outside and loaded by `salvor` (Examples/plugin), and a host of one's own.
@Suite(.enabled(if: Built.has("swiftc"))) struct PluginTests {
  private static let folder = URL(fileURLWithPath: Built.salvor).deletingLastPathComponent()

  /// Built once, from the example's own script.
  private static let library = Task { () async throws -> URL in
    let place = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-plugin-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
    let built = try await ChildProcess(
      Built.root.appendingPathComponent("Examples/plugin/build").path,
      [folder.appendingPathComponent("Modules").path, "libpatient.so"], directory: place
    ).output()
    guard built.code == 0 else { throw Unexpected("the plug-in was not built: \(built.out) \(built.err)") }
    return place.appendingPathComponent("libpatient.so")
  }

  private func workspace(_ library: URL, more: String = "") throws -> Workspace {
    let place = try Workspace()
    try FileManager.default.copyItem(at: library, to: place.directory.appendingPathComponent("lib patient.so"))
    let file = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: "server: {", with: "plugins: [\"./lib patient.so\"],\n  server: {\n \(more)")
      .write(to: file, atomically: true, encoding: .utf8)
    return place
  }

  @Test(
    "A library's modules are listed with it as their origin, and keep the contracts of their kinds like built-in ones")
  func modules() async throws {
    let place = try workspace(try await Self.library.value)
    let modules = try await salvor(["modules", "--json"], in: place.directory)
    #expect(modules.code == 0, "\(modules.err)")
    let list = try JSON(parsing: modules.out)["modules"].items
    let loaded = list.filter { $0["origin"].string == "./lib patient.so" }.map { $0["name"].string ?? "" }
    #expect(Set(loaded) == ["patient", "plain"])
    #expect(list.contains { $0["origin"].string == "built in" && $0["name"].string == "gzip" })
    let contract = try await salvor(
      ["contract", "compression", "plain", "--config", "salvor.json5"], in: place.directory)
    #expect(contract.code == 0, "\(contract.out) \(contract.err)")
    let planned = try await salvor(
      ["contract", "recovery-strategy", "patient", "--config", "salvor.json5", "--only", "plan"], in: place.directory)
    #expect(planned.code == 0, "\(planned.out) \(planned.err)")
  }

  @Test("A server offers a library's coding, and check takes it; without the library the name is not known")
  func serves() async throws {
    let place = try workspace(try await Self.library.value)
    let file = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: "[\"gzip\"]", with: "[\"plain\", \"gzip\"]")
      .write(to: file, atomically: true, encoding: .utf8)
    #expect(try await salvor(["check"], in: place.directory).code == 0)
    let url = try await place.server.start()
    let device = try place.device("anna", url: url)
    #expect(try await device.salvor("sync").code == 0)
    _ = try await place.server.stop()
    try FileManager.default.removeItem(at: place.directory.appendingPathComponent("lib patient.so"))
    let refused = try await salvor(["check"], in: place.directory)
    #expect(refused.code == 2)
    #expect(
      refused.err.contains("plugins[0]: names the library ./lib patient.so, which cannot be read"), "\(refused.err)")
  }

  @Test("A library of another release, one that is no plug-in, and one with a name that is taken are refused by name")
  func refused() async throws {
    let place = try Workspace()
    func library(_ name: String, _ source: String) async throws -> String {
      try place.write(source, to: name + ".c")
      let built = try await ChildProcess(
        "cc", ["-shared", "-fPIC", "-o", name + ".so", name + ".c"], directory: place.directory
      ).output()
      try #require(built.code == 0, "\(built.err)")
      let file = place.directory.appendingPathComponent("salvor.json5")
      let text = try String(contentsOf: file, encoding: .utf8)
      try text.replacingOccurrences(of: "server: {", with: "plugins: [\"\(name).so\"], server: {")
        .write(to: place.directory.appendingPathComponent("other.json5"), atomically: true, encoding: .utf8)
      let output = try await salvor(["check", "--config", "other.json5"], in: place.directory)
      #expect(output.code == 2)
      return output.err
    }
    #expect(
      try await library("empty", "int x;").contains("is no plug-in of Salvor: it has no function salvor_plugin_abi"))
    let old = try await library(
      "old",
      """
      #include <stdlib.h>
      #include <string.h>
      char *salvor_plugin_abi(void) { return strdup("Salvor 0.0.1, Swift 5.9, layout 1.2.3"); }
      void *salvor_plugin_modules(void) { abort(); }
      """)
    #expect(
      old.contains(
        "was built with another release: it has Salvor 0.0.1, Swift 5.9, layout 1.2.3, this program Salvor 0.1.0"),
      "\(old)")
    let unknown = try await library(
      "unknown", "extern int salvor_gone(void); int salvor_plugin_abi(void) { return salvor_gone(); }")
    #expect(unknown.contains("which cannot be loaded: ") && unknown.contains("salvor_gone"), "\(unknown)")
    let twice = try workspace(try await Self.library.value)
    let file = twice.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: "[\"./lib patient.so\"]", with: "[\"./lib patient.so\", \"./lib patient.so\"]")
      .write(to: file, atomically: true, encoding: .utf8)
    let output = try await salvor(["check"], in: twice.directory)
    #expect(output.code == 2)
    #expect(output.err.contains("plugins[1]: ") && output.err.contains("it is in the list twice"), "\(output.err)")
  }

  @Test("A host of one's own has contract, token and modules, with true origins; its wrong coding does not pass")
  func ownHost() async throws {
    let host = Self.folder.appendingPathComponent("example-own-host").path
    let place = try Workspace()
    let modules = try await ChildProcess(host, ["modules", "--json"], directory: place.directory).output()
    let list = try JSON(parsing: modules.out)["modules"].items
    #expect(list.first { $0["name"].string == "turned" }?["origin"].string == "example_own_host")
    #expect(list.first { $0["name"].string == "http" }?["origin"].string == "built in")
    let token = try await ChildProcess(host, ["token", "anna", "--json"], directory: place.directory).output()
    #expect(token.code == 0 && token.out.contains("sha256"))
    let contract = try await ChildProcess(
      host, ["contract", "compression", "turned"], directory: place.directory
    ).output()
    #expect(contract.code == 1)
    #expect(contract.out.contains("truncated bytes are malformed"), "\(contract.out)")
    #expect((contract.out + contract.err).contains("not proved:"))
  }
}
