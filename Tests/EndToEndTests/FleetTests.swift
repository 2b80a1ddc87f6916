import Foundation
import Testing

/// `Tools/fleet`, a short run of it: with `SALVOR_LONG_TESTS=1`.
@Suite struct FleetTests {
  private static let isWanted =
    ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1" && Built.has("python3")

  @Test(
    "Thirty random fleets of real processes whose schemas change in every way end with what must hold",
    .enabled(if: isWanted, "SALVOR_LONG_TESTS is not 1, or python3 is not installed: this test did not run"))
  func nothingIsFound() async throws {
    let output = try await ChildProcess(
      Built.root.appendingPathComponent("Tools/fleet").path, ["--salvor", Built.salvor, "--seeds", "1-30"],
      directory: FileManager.default.temporaryDirectory
    ).output()
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(output.out.contains("30 histories, 0 with findings"), "\(output.out)")
  }
}
