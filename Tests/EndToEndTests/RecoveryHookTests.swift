import Foundation
import SQLiteSupport
import SalvorModel
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// Hooks as programs, and the plan (semantics 9).
@Suite(.serialized) struct RecoveryHookTests {
  /// A device that recovers with its next sync, and both hooks named.
  private struct Scene {
    static let hooks = #"hooks: { beforeReset: "before.sh", afterReset: "after.sh" }"#
    let scene: Inspections
    let device: Device
    /// Of all tables, as the unsynced work left them.
    let before: [String: [[Value]]]

    init(recovery: String = Scene.hooks) async throws {
      scene = try Inspections(files: try await Days.filesAtTime2())
      try await scene.start()
      device = try scene.device(recovery: recovery)
      before = try contents(device.database, Inspections.tables + ["draft"])
      for name in ["before", "after"] { try device.write(hook: "\(name).sh", "env | grep ^SALVOR_ >> \(name).log") }
    }

    func expectUntouched(at location: SourceLocation = #_sourceLocation) async throws {
      #expect(try contents(device.database, Inspections.tables + ["draft"]) == before, sourceLocation: location)
      #expect(try await device.status()["recovery"]["state"] == "required", sourceLocation: location)
      #expect(try await device.status()["queued"] == 4, sourceLocation: location)
      #expect(try await device.salvor("backups", "--json").json["backups"].items.isEmpty, sourceLocation: location)
      #expect(device.lines(of: "after.log").isEmpty, sourceLocation: location)
    }
  }

  @Test("Both hooks are told in their environment which reset it is, and afterReset has the database from before")
  func hooksAreTold() async throws {
    let scene = try await Scene()
    try scene.device.write(
      hook: "after.sh", "env | grep ^SALVOR_ >> after.log; cp \"$SALVOR_BEFORE\" was.db; echo noise")
    let report = try await scene.device.sync()
    #expect(report["outcome"] == "recovered")
    let id = report["recovery"]["id"].string ?? "none"
    for (name, file) in [("beforeReset", "before.log"), ("afterReset", "after.log")] {
      let lines = scene.device.lines(of: file)
      #expect(lines.filter { $0 == "SALVOR_HOOK=\(name)" }.count == 1)
      #expect(lines.contains("SALVOR_REASON=server-restored"))
      #expect(lines.contains("SALVOR_STRATEGY=recover-unsynced-changes"))
      #expect(lines.contains("SALVOR_RECOVERY=\(id)"))
      #expect(lines.contains { $0.hasPrefix("SALVOR_DATABASE=") && $0.hasSuffix("field.db") })
      #expect(lines.contains { $0.hasPrefix("SALVOR_BEFORE=") } == (name == "afterReset"))
    }
    let was = scene.device.directory.appendingPathComponent("was.db").path
    #expect(try contents(was, Inspections.tables + ["draft"]) == scene.before)
    try await scene.scene.expectSettled(scene.device, unsynced: 4, drafts: 1)
  }

  @Test(
    "A beforeReset that fails stops the recovery with nothing touched, its own words are in the error; the next sync tries again"
  )
  func failingBeforeReset() async throws {
    let scene = try await Scene()
    try scene.device.write(hook: "before.sh", "echo 'the backup disk'; echo 'is not mounted' >&2; exit 3")
    let report = try await scene.device.sync(expecting: 5)
    #expect(report["outcome"] == "recovery-required")
    #expect(report["error"]["message"].string?.contains("ended with code 3") == true)
    #expect(report["error"]["message"].string?.contains("the backup disk / is not mounted") == true)
    try await scene.expectUntouched()
    try scene.device.write(hook: "before.sh", "exit 0")
    #expect(try await scene.device.sync()["outcome"] == "recovered")
    try await scene.scene.expectSettled(scene.device, unsynced: 4, drafts: 1)
  }

  @Test("A hook whose file somebody is still writing is run as soon as it is written", .timeLimit(.minutes(10)))
  func busyHook() async throws {
    let scene = try await Scene()
    let writer = open(scene.device.directory.appendingPathComponent("before.sh").path, O_WRONLY | O_APPEND | O_CLOEXEC)
    try #require(writer >= 0)
    async let report = scene.device.sync()
    while try await scene.device.status()["recovery"]["step"] != "before-reset" {
      try await Task.sleep(for: .milliseconds(20))
    }
    close(writer)
    #expect(try await report["outcome"] == "recovered")
    #expect(scene.device.lines(of: "before.log").contains("SALVOR_HOOK=beforeReset"))
  }

  @Test("A beforeReset that takes longer than its time is ended with what it has started, and counts as failed")
  func hookTimeLimit() async throws {
    let scene = try await Scene(
      recovery: #"hooks: { beforeReset: "before.sh", afterReset: "after.sh", timeoutSeconds: 5 }"#)
    try scene.device.write(hook: "before.sh", "sleep 300 & echo $! > child.log; wait")
    let report = try await scene.device.sync(expecting: 5)
    #expect(report["error"]["message"].string?.contains("longer than 5 s") == true)
    try await scene.expectUntouched()
    let child = try #require(pid_t(scene.device.lines(of: "child.log").first ?? ""))
    // Ended, or a zombie until whoever inherited it asks.
    let state = try? String(contentsOfFile: "/proc/\(child)/stat", encoding: .utf8)
    #expect(state == nil || state?.contains(") Z ") == true)
  }

  @Test("An afterReset that fails is told, and undoes nothing")
  func failingAfterReset() async throws {
    let scene = try await Scene()
    try scene.device.write(hook: "after.sh", "exit 4")
    let report = try await scene.device.sync()
    #expect(report["outcome"] == "recovered")
    #expect(report["notices"].items.contains { $0.string?.contains("ended with code 4") == true })
    try await scene.scene.expectSettled(scene.device, unsynced: 4, drafts: 1)
  }

  @Test(
    "Hooks run exactly once over a kill -9 in the middle of them, and the report says so",
    arguments: ["before", "after"])
  func hooksRunOnce(name: String) async throws {
    let scene = try await Scene()
    try scene.device.write(hook: "\(name).sh", "echo SALVOR_HOOK=\(name)Reset >> \(name).log; kill -9 $PPID")
    #expect(try await scene.device.salvor("sync").code == 128 + SIGKILL)
    #expect(try await scene.device.status()["recovery"]["state"] == "unfinished")
    #expect(try await scene.device.status()["recovery"]["step"].string == "\(name)-reset")
    let report = try await scene.device.syncWhenFree()
    #expect(report.code == 0, "\(report.out)")
    #expect(try report.json["outcome"] == "recovered")
    #expect(try report.json["notices"].items.contains { $0.string?.contains("not run again") == true })
    for other in ["before", "after"] {
      let lines = scene.device.lines(of: "\(other).log")
      #expect(lines.filter { $0 == "SALVOR_HOOK=\(other)Reset" }.count == 1)
    }
    #expect(try await scene.device.salvor("recover", "--list", "--json").json["recoveries"].items.count == 1)
    try await scene.scene.expectSettled(scene.device, unsynced: 4, drafts: 1)
  }

  // MARK: Plan

  @Test(
    "recover --plan writes nothing, and says what sync then does",
    arguments: RecoveryTests.strategies.dropLast())
  func plan(recovery: String) async throws {
    let scene = try Inspections(
      server: "recovery: { selfServiceRemoteDeletion: true },", files: try await Days.filesAtTime2())
    try await scene.start()
    let device = try scene.device(recovery: recovery)
    let files = try device.files()
    let server = try contents(scene.place.server.database, Inspections.tables)
    let output = try await device.salvor("recover", "--plan", "--json")
    #expect(output.code == 0, "\(output.err)")
    #expect(try device.files() == files)
    #expect(try contents(scene.place.server.database, Inspections.tables) == server)
    let plan = try output.json
    let report = try await device.sync()
    let done = report["recovery"]
    #expect(plan["reason"] == done["reason"])
    #expect(plan["strategy"] == done["strategy"])
    #expect(plan["fellBackFrom"] == done["fellBackFrom"])
    #expect(plan["requests"]["kept"] == done["kept"])
    #expect(plan["requests"]["conflicting"] == done["merged"])
    #expect(plan["requests"]["discarded"] == done["discarded"])
    // What is offered comes besides.
    let sent = (report["uploaded"].integer ?? 0) - (report["healed"].integer ?? 0)
    #expect(plan["requests"]["sent"] == .integer(recovery.contains("\"upload-") ? sent : 0))
    #expect(plan["rows"]["offer"] == done["offered"])
    #expect(plan["rows"]["deletes"] == done["deletes"])
    // How many rows the server has after an upload is its answer.
    if !recovery.contains("\"upload-") { #expect(plan["rows"]["upserts"] == done["upserts"]) }
    #expect(done["lost"] == 3)
  }

  @Test("recover --plan where only others' commits are gone: the rewind that sync then does")
  func planOfARewind() async throws {
    let scene = try Inspections(files: try await Days.files())
    try await scene.restoreStopped("time1")
    try await scene.start()
    let device = try scene.device()
    let plan = try await device.salvor("recover", "--plan", "--json").json
    let done = try await device.sync()["recovery"]
    #expect(plan["strategy"] == "rewind")
    #expect(done["strategy"] == "rewind")
    #expect(plan["requests"]["kept"] == done["kept"])
    #expect(plan["rows"]["offer"] == done["lost"])
    #expect(plan["rows"]["deletes"] == done["deletes"])
    #expect(plan["rows"]["upserts"] == done["upserts"])
  }

  @Test("recover --plan of a device that is in step says that there is nothing to do")
  func planInStep() async throws {
    let scene = try Inspections(files: try await Days.files())
    try await scene.start()
    let device = try scene.device()
    _ = try await device.status()
    let files = try device.files()
    let plan = try await device.salvor("recover", "--plan", "--json").json
    #expect(plan["reason"] == nil)
    #expect(plan["strategy"] == nil)
    #expect(try device.files() == files)
  }
}
