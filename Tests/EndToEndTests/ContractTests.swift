import Foundation
import Testing

/// `salvor contract`: what a person who writes a module runs (docs/reference/cli.md).
@Suite struct ContractTests {
  private let directory = FileManager.default.temporaryDirectory

  @Test("A module that keeps its contract ends with 0, every case named with its rule")
  func passes() async throws {
    let output = try await salvor(
      ["contract", "recovery-strategy", "manual", "--only", "server-restored", "--json"], in: directory)
    #expect(output.code == 0, "\(output.err)")
    let json = try output.json
    #expect(json["passed"] == 1 && json["failed"] == 0)
    #expect(json["cases"][0]["name"] == "server-restored: recovers as declared, or says why it cannot")
    #expect(json["cases"][0]["rule"] == "semantics 9")
    let table = try await salvor(["contract", "compression", "gzip"], in: directory)
    #expect(table.code == 0, "\(table.err)")
    #expect(table.out.contains("compression gzip: "))
  }

  @Test("A module that breaks a rule ends with 1, and the rule is named")
  func fails() async throws {
    // A database in memory does not outlive its process.
    let output = try await salvor(
      [
        "contract", "client-storage", "sqlite", "--options", "{ path: \":memory:\" }", "--only", "outlive a restart",
        "--json",
      ], in: directory)
    #expect(output.code == 1)
    #expect(try output.json["failed"] == 1)
    #expect(try output.json["cases"][0]["passed"] == false)
  }

  @Test(
    "What cannot be run is a usage error",
    arguments: [
      ["colour", "red"], ["recovery-strategy", "recreat"], ["authentication", "none"], ["validator", "webhook"],
      ["compression", "gzip", "--options", "{"], ["compression", "gzip", "--options", "{ nope: 1 }"],
    ])
  func refuses(_ words: [String]) async throws {
    #expect(try await salvor(["contract"] + words, in: directory).code == 2)
  }
}
