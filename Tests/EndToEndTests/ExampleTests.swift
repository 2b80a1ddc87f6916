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

  @Test(
    "The notes: two devices in step, a refused note and its ways out, a restored server that a person recovers from")
  func notes() async throws {
    // One port for both starts: the restored server is met under the address that the devices have.
    let place = try Workspace(
      schema: String(
        contentsOf: Built.root.appendingPathComponent("Examples/notes/schema.json5"), encoding: .utf8),
      port: Socket.vacantPort())
    let url = try await place.server.start()
    let program = URL(fileURLWithPath: Built.salvor).deletingLastPathComponent()
      .appendingPathComponent("example-notes").path
    func folder(_ name: String) throws -> URL {
      let folder = place.directory.appendingPathComponent(name)
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
      let text = try String(
        contentsOf: Built.root.appendingPathComponent("Examples/notes/salvor.json5"), encoding: .utf8)
      try text.replacingOccurrences(of: "http://127.0.0.1:8484", with: url)
        .replacingOccurrences(of: "anna", with: name)
        .replacingOccurrences(of: "schema.json5", with: "../schema.json5")
        .write(to: folder.appendingPathComponent("salvor.json5"), atomically: true, encoding: .utf8)
      return folder
    }
    let (anna, bert) = (try folder("anna"), try folder("bert"))
    func notes(_ folder: URL, _ words: String..., expecting code: Int32 = 0) async throws -> String {
      let output = try await ChildProcess(program, ["."] + words, directory: folder).output()
      #expect(output.code == code, "\(words) \(output.out) \(output.err)")
      return output.out
    }
    _ = try await notes(anna, "add", "n1", "Buy rope")
    #expect(try await notes(anna, "status").contains("waiting: 1, refused: 0"))
    #expect(try await notes(anna, "sync").contains("synchronized: 1 sent"))
    _ = try await notes(bert, "sync")
    #expect(try await notes(bert, "list") == "n1: Buy rope\n")
    _ = try await notes(bert, "edit", "n1", "Buy more rope")
    _ = try await notes(bert, "sync")
    #expect(try await notes(anna, "sync").contains("changed note: n1"))
    #expect(try await notes(anna, "list") == "n1: Buy more rope\n")

    // What the server refuses.
    try place.server.sqlite().execute(
      "CREATE TRIGGER full BEFORE INSERT ON note BEGIN SELECT RAISE(ABORT, 'no more notes'); END")
    _ = try await notes(anna, "add", "n2", "One more")
    let refused = try await notes(anna, "sync")
    #expect(refused.contains("1 request refused") && refused.contains("insert of note n2"), "\(refused)")
    let id = try #require(
      refused.split(separator: "\n").first { $0.contains("insert of note n2") }?.split(separator: " ").first)
    try place.server.sqlite().execute("DROP TRIGGER full")
    #expect(try await notes(anna, "retry", String(id)).contains("queued"))
    #expect(try await notes(anna, "sync").contains("1 sent"))
    #expect(try await notes(anna, "errors") == "")

    // A server that is put back to between two uploads.
    #expect(try await place.server.salvor("server", "backup", "night.db").code == 0)
    _ = try await notes(anna, "add", "n3", "After the backup")
    _ = try await notes(anna, "sync")
    _ = try await notes(anna, "add", "n4", "Not sent yet")
    _ = try await place.server.stop()
    #expect(try await notes(anna, "sync", expecting: 1).contains("Nothing is lost."))
    #expect(try await place.server.salvor("server", "restore", "night.db").code == 0)
    try await place.server.start()
    #expect(try await notes(anna, "plan").contains("server-restored"))
    _ = try await notes(anna, "sync", expecting: 1)
    #expect(try await notes(anna, "status").contains("recovery required: server-restored"))
    #expect(
      try await notes(anna, "recover", "recover-unsynced-changes")
        .contains("recovered from server-restored by recover-unsynced-changes"))
    let rows = try place.server.sqlite().rows("SELECT id FROM note ORDER BY id")
    #expect(rows.contains(["n4"]) && rows.contains(["n1"]), "\(rows)")
  }

  @Test("The notes are an application of under 300 lines")
  func notesAreShort() throws {
    let lines = try ["main.swift", "Database.swift"].map { name in
      try String(contentsOf: Built.root.appendingPathComponent("Examples/notes/\(name)"), encoding: .utf8)
        .split(separator: "\n", omittingEmptySubsequences: false).count - 1
    }
    #expect(lines.reduce(0, +) < 300)
  }
}
