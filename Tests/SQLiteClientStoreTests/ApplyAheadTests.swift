import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SQLiteClientStore

/// A first download is applied while it arrives (semantics 4), and nobody can tell but by the time it takes.
@Suite struct ApplyAheadTests {
  private static let schema = ApplyTests.family

  private static func chunk(_ place: Int, _ rows: [(String, Row)], full: [String] = []) -> StagedChunk {
    var writer = DownloadChunkWriter()
    if !full.isEmpty { writer.full(full) }
    for (name, row) in rows {
      writer.table(name, columns: schema.table(name)?.travelling.map(\.name) ?? [])
      writer.beginRow(version: nil)
      for value in row { writer.value(value) }
      writer.endRow()
    }
    return StagedChunk(download: "first", bytes: writer.finish(), position: "p\(place)")
  }

  private static let pages = [
    chunk(1, [("parent", ["p", "x"]), ("parent", ["q", "x"])]),
    chunk(2, [("child", ["c", "p"]), ("child", ["d", "q"])]),
    chunk(3, [("parent", ["q", "y"]), ("child", ["e", "q"])]),
  ]

  private static let rows: [String: [[Value]]] = [
    "parent": [["p", "x"], ["q", "y"]], "child": [["c", "p"], ["d", "q"], ["e", "q"]],
  ]

  private static let end = DownloadEnd(
    groups: schema.groups.map {
      GroupState(name: $0.name, cursor: Commit(number: 1, id: CommitID(unchecked: String(repeating: "a", count: 32))))
    })

  private func expectAll(_ bench: StoreBench) async throws {
    for (name, rows) in Self.rows { #expect(try bench.read("SELECT * FROM \(name) ORDER BY id") == rows) }
    #expect(try bench.isWhole())
    #expect(try bench.read("SELECT count(*) FROM salvor_staging") == [[0]])
    let status = try await bench.store.status()
    #expect(status.queued == 0 && status.state.stagedDownload == nil && status.state.stagedPosition == nil)
    #expect(status.state.groups.allSatisfy { $0.isSynchronized })
  }

  @Test func aReaderSeesNothingOfADownloadBeforeItsEnd() async throws {
    let bench = try await StoreBench(Self.schema)
    for page in Self.pages {
      try await bench.store.stage(page)
      #expect(try bench.read("SELECT (SELECT count(*) FROM parent) + (SELECT count(*) FROM child)") == [[0]])
    }
    #expect(try await bench.store.apply(Self.end).upserts == 6)
    try await expectAll(bench)
  }

  @Test(arguments: 0..<4)
  func whoeverAsksMeanwhileSeesAStagedDownload(before place: Int) async throws {
    let bench = try await StoreBench(Self.schema)
    for (index, page) in Self.pages.enumerated() {
      if index == place {
        #expect(try await bench.store.status().state.stagedPosition == (index > 0 ? "p\(index)" : nil))
      }
      try await bench.store.stage(page)
    }
    if place == 3 { #expect(try await bench.store.rows(of: "parent").isEmpty) }
    #expect(try await bench.store.apply(Self.end).upserts == 6)
    try await expectAll(bench)
  }

  @Test(arguments: [false, true])
  func aSessionThatEndsEarlyLeavesWhatCameInStaging(closing: Bool) async throws {
    let bench = try await StoreBench(Self.schema)
    _ = try await bench.store.beginSession(groups: nil)
    try await bench.store.stage(Self.pages[0])
    try await bench.store.stage(Self.pages[1])
    if closing { await bench.store.close() } else { await bench.store.endSession() }
    let store = closing ? SQLiteClientStore(path: bench.path) : bench.store
    if closing { _ = try await store.open(ClientSetup(schema: Self.schema, principal: "anna")) }
    let state = try await store.beginSession(groups: nil).state
    #expect(state.stagedDownload == "first" && state.stagedPosition == "p2")
    try await store.stage(Self.pages[2])
    #expect(try await store.apply(Self.end).upserts == 6)
    await store.endSession()
    for (name, rows) in Self.rows { #expect(try bench.read("SELECT * FROM \(name) ORDER BY id") == rows) }
    await store.close()
  }

  @Test func anApplicationThatWritesMeanwhileKeepsItsChange() async throws {
    let bench = try await StoreBench(Self.schema)
    try await bench.store.stage(Self.pages[0])
    // It waits until the lock is given back, since no page comes.
    try bench.write("INSERT INTO parent VALUES ('q', 'mine')")
    try await bench.store.stage(Self.pages[1])
    try await bench.store.stage(Self.pages[2])
    _ = try await bench.store.apply(Self.end)
    #expect(try bench.read("SELECT * FROM parent ORDER BY id") == [["p", "x"], ["q", "mine"]])
    #expect(try await bench.store.status().queued == 1)
    #expect(try bench.isWhole())
  }

  @Test func aPageForATableWithRowsIsStagedWithThoseBeforeIt() async throws {
    let bench = try await StoreBench(Self.schema)
    try await bench.store.write([.insert(table: "parent", values: [NamedValue("id", "z"), NamedValue("name", "old")])])
    let (_, session) = try await bench.uploadText()
    try await bench.accept(session)
    try await bench.store.stage(Self.chunk(1, [("child", ["c", "z"])], full: ["child"]))
    try await bench.store.stage(Self.chunk(2, [("parent", ["z", "new"])], full: ["parent"]))
    #expect(try bench.read("SELECT count(*) FROM salvor_staging") == [[2]])
    #expect(try await bench.store.apply(Self.end).upserts == 2)
    #expect(try bench.read("SELECT * FROM parent") == [["z", "new"]])
    #expect(try bench.read("SELECT * FROM child") == [["c", "z"]])
  }

  @Test func aRowThatReferencesNothingIsLeftOutAndTheRestIsApplied() async throws {
    let bench = try await StoreBench(Self.schema)
    try await bench.store.stage(Self.pages[0])
    try await bench.store.stage(Self.chunk(2, [("child", ["c", "nobody"])]))
    let report = try await bench.store.apply(Self.end)
    #expect(report.leftOut == 1)
    #expect(report.notices.contains { $0.contains("[nobody] of parent") })
    #expect(try bench.read("SELECT count(*) FROM child WHERE p = 'nobody'") == [[0]])
    #expect(try bench.read("SELECT count(*) > 0 FROM parent") == [[1]])
    #expect(try bench.isWhole())
    #expect(try await bench.store.status().state.stagedPosition == nil)
  }
}
