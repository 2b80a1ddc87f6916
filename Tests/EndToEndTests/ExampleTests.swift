import Foundation
import Testing

/// The examples that are programs.
@Suite struct ExampleTests {
  @Test(
    "The field inspection example: a day of nSpect on DineSafe's rows ends with all sides equal",
    .enabled(if: Built.has("python3")))
  func fieldInspection() async throws {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(
      "salvor-e2e-example-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let run = Built.root.appendingPathComponent("Examples/field-inspection/run").path
    let output = try await ChildProcess(
      "python3", ["-B", run, "--salvor", Built.salvor], directory: folder, environment: ["TMPDIR": folder.path]
    ).output()
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(output.out.contains("150 sites, 574 inspections, 1648 answers"))
    #expect(output.out.hasSuffix("All sides are equal.\n"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == [])
  }
}
