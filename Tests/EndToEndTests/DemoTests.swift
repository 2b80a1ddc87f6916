import Foundation
import Testing

/// `salvor demo`, on the cut of the data.
@Suite struct DemoTests {
  @Test(
    "The demo ends with all sides equal, whatever plain SQLite client there is",
    arguments: [nil, "/nowhere"] as [String?])
  func theDemoEndsEqual(path: String?) async throws {
    let output = try await salvor(
      ["demo", "--small", "--json", "--data", Built.root.appendingPathComponent("Examples/dinesafe").path],
      in: FileManager.default.temporaryDirectory, environment: path.map { ["PATH": $0] } ?? [:])
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(try output.json["equal"] == true)
    let tables = try output.json["tables"].items
    #expect(tables.count == 10)
    for table in tables {
      #expect(table["differing"] == 0)
      #expect(Set(table["rows"].items).count == 1)
    }
    let rows = tables.compactMap { $0["rows"][0].integer }.reduce(0, +)
    // With what the server had lost, and was given back.
    #expect(rows == 2741 + 8)
    let badDay = try output.json["badDay"]
    let sums = badDay["sums"].items
    #expect(sums.count == 10)
    for sum in sums { #expect(sum["before"] == sum["after"] && sum["before"].string?.isEmpty == false) }
    #expect(badDay["erased"].items.map(\.integer) == [0, 0, 0, 0])
    #expect((badDay["restore"]["healed"].integer ?? 0) > 0)
    let strategies = try output.json["badDay"]["strategies"].items
    #expect(strategies.compactMap { $0["strategy"].string }.first == "recover-unsynced-changes")
    #expect(strategies.count == 7)
    for strategy in strategies {
      #expect(strategy["reason"] == "server-restored")
      let isManual = strategy["strategy"] == "manual"
      #expect(strategy["outcome"] == (isManual ? "recovery-required" : "recovered"))
      #expect((strategy["differing"] == 0) == !isManual)
    }
    // Nothing that Anna did offline is nowhere: uploaded first, in the queue or in the archive.
    let fates = strategies.map { ($0["strategy"].string ?? "", $0["kept"].integer ?? 0, $0["archived"].integer ?? 0) }
    for (strategy, kept, archived) in fates {
      #expect(kept == 3 || archived >= 3 || strategy == "upload-then-recreate", "\(strategy)")
    }
    #expect(try output.json["syncs"].items.contains { $0["report"]["refused"] == 1 })
    // The first device has its rows one by one, the third by the file.
    let first = try output.json["syncs"].items.prefix(3).map { $0["report"]["snapshots"].integer }
    #expect(first.first == 0 && first.last == 1)
    for way in ["byRows", "byFile"] { #expect((try output.json["firstSyncs"][way].integer ?? 0) > 0) }
  }

  #if PostgreSQL
    @Test(
      "The demo on PostgreSQL loses a server, then its primary, and ends with all sides equal",
      .enabled(
        if: PrivateCluster.isThere && HAProxy.isThere,
        "PostgreSQL or HAProxy is not installed here: this test did not run"))
    func thePostgreSQLDemoEndsEqual() async throws {
      let output = try await salvor(
        [
          "demo", "--storage", "postgresql", "--servers", "3", "--small", "--json", "--data",
          Built.root.appendingPathComponent("Examples/dinesafe").path,
        ], in: FileManager.default.temporaryDirectory)
      #expect(output.code == 0, "\(output.out) \(output.err)")
      let report = try output.json
      #expect(report["equal"] == true)
      #expect(report["written"] == 10_150)
      #expect((report["restore"]["lost"]["commits"].integer ?? 0) > 0)
      #expect((report["office"]["writes"].integer ?? 0) > 0)
      for table in report["tables"].items { #expect(Set(table["rows"].items).count == 1 && table["differing"] == 0) }
    }

    @Test("Words that do not fit together are refused")
    func unknownStorage() async throws {
      for words in [["--servers", "3"], ["--storage", "oracle"], ["--storage", "postgresql", "--servers", "many"]] {
        let output = try await salvor(
          ["demo", "--data", Built.root.appendingPathComponent("Examples/dinesafe").path] + words,
          in: FileManager.default.temporaryDirectory)
        #expect(output.code == 2, "\(output.err)")
      }
    }
  #endif

  @Test("The demo tells a story, and leaves nothing behind")
  func theDemoTellsAStory() async throws {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-demo-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let output = try await salvor(
      ["demo", "--small", "--data", Built.root.appendingPathComponent("Examples/dinesafe").path], in: folder,
      environment: ["TMPDIR": folder.path])
    #expect(output.code == 0, "\(output.out) \(output.err)")
    for text in [
      "salvor serve", "anna", "refused", "server-maintained", "salvor server restore", "by the file",
      "salvor server purge", "salvor server restores show 1", "are equal.",
      "All sides are equal",
    ] {
      #expect(output.out.contains(text))
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == [])
  }

  @Test("A folder without the data is named, and ends with 2")
  func missingData() async throws {
    let output = try await salvor(
      ["demo", "--data", "/nowhere"], in: FileManager.default.temporaryDirectory)
    #expect(output.code == 2)
    #expect(output.err.contains("/nowhere") && output.err.contains("--data"))
  }
}
