import Foundation
import ModuleProgram
import ProgramPolicy
import ProgramRecovery
import SalvorContracts
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage
import SalvorWire
import StandardModules
import Testing

/// Modules that are programs, which may be wrong in every way (Plugins/ModuleProgram).
@Suite("Modules that are programs")
struct ProgramModuleTests {
  private static let examples = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appendingPathComponent("Examples/module-program")

  /// A program of the shell in a folder whose name must be borne.
  private final class Script {
    let path: String
    private let folder: URL

    init(_ text: String) throws {
      folder = FileManager.default.temporaryDirectory.appendingPathComponent("salvor program ü \(UUID().uuidString)")
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
      path = folder.appendingPathComponent("it").path
      try Data("#!/bin/sh\n\(text)\n".utf8).write(to: URL(fileURLWithPath: path))
      try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path)
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    /// Answers every line with this one.
    convenience init(answering line: String) throws {
      try self.init("while read -r line; do printf '%s\\n' '\(line)'; done")
    }
  }

  /// What asking it comes to.
  private func said(_ program: ModuleProgram) -> String {
    do { return "answered \(try program.ask(["a": 1]).text)" } catch { return "\(error)" }
  }

  @Test("A program is started once and asked many times, from many threads")
  func stays() async throws {
    let script = try Script(
      "echo $$ >> \"$0.started\"\nwhile read -r line; do printf '{\"line\": %s}\\n' \"$line\"; done")
    let program = ModuleProgram(path: script.path, timeoutSeconds: 30)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for number in 0..<50 {
        group.addTask {
          let question: JSONValue = ["number": .integer(Int64(number)), "text": "a\nb\u{0}ü"]
          let line = try program.ask(question)["line"]
          #expect(line == question)
        }
      }
      try await group.waitForAll()
    }
    let started = try String(contentsOfFile: script.path + ".started", encoding: .utf8)
    #expect(started.split(separator: "\n").count == 1)
  }

  @Test("One that is not there, ends, is silent, says too much or no JSON, or says why not, is a failure that names it")
  func failures() throws {
    func ask(_ script: Script, seconds: Int64 = 30) -> String {
      said(ModuleProgram(path: script.path, timeoutSeconds: seconds))
    }
    #expect(
      said(ModuleProgram(path: "/not/there", timeoutSeconds: 1)).contains("/not/there cannot be run")
    )
    #expect(ask(try Script("exit 3")).contains("has ended"))
    #expect(ask(try Script("read -r line; sleep 1000 & sleep 1000"), seconds: 1).contains("no answer within 1 s"))
    #expect(ask(try Script(answering: "hello")).contains("not one JSON object"))
    #expect(ask(try Script(answering: "[1]")).contains("not one JSON object"))
    #expect(ask(try Script("read -r line; printf '{}\\n{}\\n'; sleep 60")).contains("more than one line"))
    #expect(ask(try Script("head -c 3000000 /dev/zero | tr '\\0' x; sleep 60")).contains("more than 1 MiB"))
    #expect(ask(try Script(answering: "{\"error\": \"no idea\"}")).contains("says: no idea"))
  }

  @Test("One that fails is started again by the next question; after three failures in a row it is left alone")
  func rests() throws {
    let script = try Script(
      "echo x >> \"$0.started\"; [ -e \"$0.well\" ] || exit 1\nread -r line; echo '{\"well\": true}'")
    let program = ModuleProgram(path: script.path, timeoutSeconds: 30)
    for _ in 0..<2 { #expect(said(program).contains("has ended")) }
    try Data().write(to: URL(fileURLWithPath: script.path + ".well"))
    #expect(try program.ask([:])["well"] == .bool(true))
    try FileManager.default.removeItem(atPath: script.path + ".well")
    // The one that has answered has ended, which the first of these finds.
    for _ in 0..<3 { #expect(said(program).contains("has ended")) }
    #expect(said(program).contains("is not asked for 30 s"))
    #expect(try String(contentsOfFile: script.path + ".started", encoding: .utf8).split(separator: "\n").count == 5)
  }

  // MARK: The strategy

  private func incident(
    _ reason: RecoveryReason = .serverRestored, consent: Bool = true, differences: [String] = []
  ) -> Incident {
    let random = SystemRandom()
    return Incident(
      reason: reason, message: "of the test",
      facts: RecoveryFacts(
        token: "t", server: ServerID(from: random), incarnation: IncarnationID(from: random), principal: "anna",
        reason: reason, shared: nil, trimmed: 0, head: Commit(number: 7, id: CommitID(from: random)), stored: nil,
        scopes: [:], rows: 10, clientRecoveryEnabled: consent, selfServiceRemoteDeletion: false,
        differences: differences),
      status: ClientStatus(
        state: ClientState(remoteID: RemoteID(from: random), principal: "anna"), queued: 2, inError: 0, displaced: 0,
        kept: 0))
  }

  private func why(
    _ answer: String, _ unsynced: RecoveryGuarantees.Requests = .kept, local: RecoveryGuarantees.Local = .kept,
    reason: RecoveryReason = .serverRestored
  ) throws -> String {
    let script = try Script(answering: answer)
    let strategy = ProgramRecovery(
      ModuleProgram(path: script.path, timeoutSeconds: 30),
      guarantees: RecoveryGuarantees(
        unsyncedChanges: unsynced, clientOnlyTables: local, settings: .lost, needsServersConsent: true,
        survivesSchemaChange: false))
    switch strategy.plan(for: incident(reason)) {
    case .steps(let steps): return "steps " + steps.map(\.name).joined(separator: " ")
    case .cannot(let why): return why
    }
  }

  @Test("A plan that breaks what is declared, or that cannot be carried out, is not begun, and the reason is said")
  func promises() throws {
    func apply(_ requests: String, _ rebuild: String, fetch: String = "differences", before: String = "") -> String {
      #"{"steps": [\#(before){"step": "fetch", "what": "\#(fetch)"}, {"step": "apply", "requests": "\#(requests)", "rebuild": "\#(rebuild)"}]}"#
    }
    #expect(try why(apply("keep", "nothing")) == "steps fetch apply")
    #expect(try why(apply("discard", "nothing")).contains("declared kept, and it discards them"))
    #expect(try why(apply("discard", "nothing"), .archived) == "steps fetch apply")
    #expect(try why(apply("keep", "nothing"), .archived).contains("declared archived, and it does something else"))
    #expect(try why(apply("keep", "nothing"), .uploaded).contains("declared uploaded, and it does not upload"))
    #expect(try why(apply("keep", "nothing"), .untouched).contains("declared untouched, and it applies"))
    #expect(
      try why(apply("discard", "everything", fetch: "everything", before: #""copy", "#), .archived)
        .contains("client-only tables are declared kept, and everything is made anew"))
    #expect(
      try why(apply("discard", "everything", fetch: "everything", before: #""copy", "#), .archived, local: .lost)
        == "steps copy fetch apply")
    #expect(try why(apply("discard", "synchronized-tables", fetch: "everything"), .archived).contains("without a copy"))
    #expect(
      try why(apply("keep", "synchronized-tables", fetch: "everything", before: #""copy", "#))
        .contains("made anew, and the queue is kept"))
    #expect(
      try why(apply("discard", "synchronized-tables", before: #""copy", "#), .archived).contains(
        "not everything is fetched"))
    #expect(try why(apply("keep", "nothing"), reason: .localCorruption).contains("damaged file"))
    #expect(try why(#"{"steps": []}"#).contains("does not end with apply or wait"))
    #expect(try why(#"{"steps": ["copy", "upload", "wait"]}"#).contains("uploaded before something is fetched"))
    #expect(try why(#"{"steps": ["copy", "forget", "wait"]}"#).contains("makes a copy at most"))
    #expect(try why(#"{"steps": ["copy", "copy", "wait"]}"#).contains("twice"))
    #expect(try why(#"{"steps": ["copy", "wait"]}"#) == "steps copy wait")
    #expect(try why(#"{"steps": ["reboot"]}"#).contains("a step that there is not: reboot"))
    #expect(try why(#"{"steps": [{"step": "fetch", "what": "some"}]}"#).contains("none of differences, everything"))
    #expect(try why(#"{"cannot": "not today"}"#) == "not today")
    #expect(try why(#"{}"#).contains("steps"))
  }

  @Test(
    "It is not asked without the server's consent, or over a destructive change, where it declares to need or not to bear it"
  )
  func notAsked() throws {
    let strategy = ProgramRecovery(
      ModuleProgram(path: "/not/there", timeoutSeconds: 1),
      guarantees: RecoveryGuarantees(
        unsyncedChanges: .kept, clientOnlyTables: .kept, settings: .kept, needsServersConsent: true,
        survivesSchemaChange: false))
    func said(_ incident: Incident) -> String {
      if case .cannot(let why) = strategy.plan(for: incident) { why } else { "" }
    }
    #expect(said(incident(consent: false)).contains("clientRecoveryEnabled"))
    #expect(said(incident(differences: ["table a: dropped"])).contains("table a: dropped"))
    #expect(said(incident()).contains("cannot be run"))
  }

  @Test("A file that names a program without saying which is refused by name; one that does is taken")
  func configuration() throws {
    func problems(_ recovery: String) throws -> String {
      let text = """
        { schema: { version: 1, groups: { g: {} }, tables: { a: { maintained: "dual", group: "g", primaryKey: "id",
            columns: { id: "text" } } } },
          client: { storage: { module: "sqlite", path: "a.db" }, transport: { module: "http", url: "http://127.0.0.1:1" },
            recovery: \(recovery) } }
        """
      return render(
        HostConfiguration.load(
          text: Array(text.utf8), named: "/tmp/salvor.json5", registry: try ModuleRegistry(StandardModules.all),
          environment: [:], sections: [.client]
        ).diagnostics)
    }
    #expect(try problems(#"{ strategy: "program" }"#).contains("strategy: names program, which needs options"))
    #expect(
      try problems(#"{ reasons: { "server-restored": "program" } }"#).contains(
        "reasons: names program, which needs options"))
    #expect(try problems(#"{ strategy: "program", options: { program: {} } }"#).contains("path: is missing"))
    #expect(try problems(#"{ strategy: "program", options: { program: { path: "/bin/sh" } } }"#) == "")
    #expect(
      try problems(#"{ strategy: "program", options: { program: { path: "/not/there" } } }"#).contains("can be run"))
    #expect(
      try problems(#"{ strategy: "program", options: { program: { path: "/bin/sh", unsyncedChanges: "keep" } } }"#)
        .contains("kept"))
    #expect(try problems("{}") == "")
  }

  // MARK: The policy

  @Test("ConflictPolicyContract on the example in Python", arguments: ConflictPolicyContract.cases)
  func policyContract(_ rule: ConflictPolicyContract.Case) async throws {
    let program = ModuleProgram(path: Self.examples.appendingPathComponent("settle.py").path, timeoutSeconds: 60)
    try await rule.run(ConflictPolicySubject(ProgramPolicy(program, answers: [.merged, .both])))
  }

  private func answer(_ line: String, _ answers: Set<ProgramPolicy.Answer> = Set(ProgramPolicy.Answer.allCases)) throws
    -> ConflictAnswer
  {
    let script = try Script(answering: line)
    let policy = ProgramPolicy(ModuleProgram(path: script.path, timeoutSeconds: 30), answers: answers)
    let table = ConflictPolicyContract.sampleTable
    return policy.answer(in: table) {
      Conflict(
        table: table, key: ["k"], operation: .update, columns: [ConflictColumn("note", old: "a", new: "b")],
        server: [NamedValue("id", "k"), NamedValue("note", "c")],
        request: RequestID(stamp: RequestStamp(from: SystemRandom()), counter: 1),
        remote: RemoteID(from: SystemRandom()), principal: "anna", time: 1, made: 1)
    }
  }

  @Test("An answer that is not declared, that is none, or that the row cannot have, refuses the request")
  func answers() throws {
    #expect(try answer(#"{"settle": "client"}"#) == .settled(.client))
    #expect(try answer(#"{"settle": "server"}"#) == .settled(.server))
    #expect(try answer(#"{"settle": "both"}"#) == .settled(.both))
    #expect(
      try answer(#"{"settle": "merged", "values": {"note": "b c"}}"#) == .settled(.merged([NamedValue("note", "b c")])))
    func failure(_ line: String, _ allowed: Set<ProgramPolicy.Answer> = Set(ProgramPolicy.Answer.allCases)) throws
      -> String
    {
      if case .failed(let message) = try answer(line, allowed) { message } else { "" }
    }
    #expect(try failure(#"{"settle": "server"}"#, [.merged, .both]).contains("answers server, which its option"))
    #expect(try failure(#"{"settle": "me"}"#).contains("none of client, server, both, merged"))
    #expect(try failure(#"{"settle": "merged"}"#).contains("without an object of values"))
    #expect(try failure(#"{"settle": "merged", "values": {"id": "x"}}"#).isEmpty == false)
    #expect(try failure(#"{"settle": "merged", "values": {"note": [1]}}"#).isEmpty == false)
    #expect(try failure("nonsense").contains("not one JSON object"))
  }
}
