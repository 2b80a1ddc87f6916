import Foundation
import Testing

/// `Tools/load` and `Tools/fuzz`, short runs of them.
@Suite(.serialized) struct LoadTests {
  private func run(_ arguments: String...) async throws -> Output {
    let salvor = URL(fileURLWithPath: Built.salvor)
    let load = salvor.deletingLastPathComponent().appendingPathComponent("salvor-load").path
    return try await ChildProcess(load, arguments, directory: FileManager.default.temporaryDirectory).output()
  }

  @Test("Forty devices of every kind are served, and the server ends with 0")
  func devices() async throws {
    let output = try await run("load", "--devices", "40", "--minutes", "0.05", "--rate", "20", "--json")
    #expect(output.code == 0, "\(output.out) \(output.err)")
    let json = try output.json
    for kind in ["first", "idle", "small", "away"] {
      #expect(json["kinds"][kind]["answers"].integer ?? 0 > 0, "\(output.out)")
    }
  }

  @Test("Where the file limit is far below connectionsMax, a flood ends nothing, and health and devices are answered")
  func flood() async throws {
    let output = try await run(
      "load", "--devices", "6", "--minutes", "0.05", "--rate", "6", "--files", "1024", "--mix", "small,idle,flood",
      "--json")
    #expect(output.code == 0, "\(output.out) \(output.err)")
  }

  @Test("Mutated exchanges of every route: both ends live, and every answer is well-formed")
  func fuzz() async throws {
    let output = try await run("fuzz", "--runs", "200", "--seed", "5", "--json")
    #expect(output.code == 0, "\(output.out) \(output.err)")
    let json = try output.json
    #expect(json["faults"].items.isEmpty && json["sent"].integer ?? 0 > 100, "\(output.out)")
  }
}
