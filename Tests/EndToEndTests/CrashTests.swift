import Foundation
import Testing

/// `Tools/crash`, a short run of it.
@Suite struct CrashTests {
  @Test(
    "Twenty kills at random moments of syncs and recoveries: nothing is lost; what devices heal is on the server",
    arguments: [[], ["--heal"]])
  func nothingIsLost(options: [String]) async throws { try await crash(options) }

  #if PostgreSQL
    @Test(
      "The same where two servers have one PostgreSQL database, whose processes are killed, too, and copies come in its place",
      .enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: this test did not run"))
    func nothingIsLostOnPostgreSQL() async throws {
      try await crash(["--storage", "postgresql", "--servers", "2", "--heal"])
    }
  #endif

  private func crash(_ options: [String]) async throws {
    let salvor = URL(fileURLWithPath: Built.salvor)
    let crash = salvor.deletingLastPathComponent().appendingPathComponent("salvor-crash").path
    let output = try await ChildProcess(
      crash, options + ["--runs", "20", "--seed", "7", "--json"], directory: FileManager.default.temporaryDirectory
    ).output()
    let json = try output.json
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(json["lost"] == 0, "\(output.out)")
    let kills = ["kills", "serverKills", "databaseKills"].map { json["tried"][$0].integer ?? 0 }
    #expect(kills.reduce(0, +) == 20)
    #expect(json["tried"]["restores"].integer ?? 0 > 0)
    #expect(json["tried"]["recoveries"].integer ?? 0 > 0)
  }
}
