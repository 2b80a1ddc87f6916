import SalvorClientEngine
import SalvorModel
import Testing

@Suite("A device that Salvor is taken out of (interfaces: detach)")
struct DetachmentTests {
  @Test("a watch that runs ends with that name, and puts nothing back", .timeLimit(.minutes(5)))
  func watching() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a"), other = try fleet.device("a")
    let client = try await a.open()
    let first = AsyncStream<Void>.makeStream()
    let watching = Task { await client.watch { _ in first.continuation.yield() } }
    for await _ in first.stream { break }
    while true {
      do {
        _ = try await other.open().detach(discarding: true)
        break
      } catch let error as SalvorError where error.code == .sessionInUse || error.code == .storageBusy {}
    }
    let ended = await watching.value
    #expect(ended?.error?.code == .detached)
    #expect(ended?.exitCode == 2)
    await a.close()
    await other.close()
    let found = try a.connection().rows("SELECT name FROM sqlite_schema WHERE name LIKE 'salvor%'")
    #expect(found == [])
  }

  @Test("reading, and detaching again, take nothing in; a synchronization does, and finds the same rows on the server")
  func synchronizedAgain() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site VALUES ('s1', 'x', NULL, 1)")
    #expect(try await a.sync().uploaded == 1)
    _ = try await a.open().detach()
    await a.close()
    for _ in 0..<2 {
      let error = await #expect(throws: SalvorError.self) { try await a.open().status() }
      #expect(error?.code == .detached)
      let again = await #expect(throws: SalvorError.self) { try await a.open().planDetachment() }
      #expect(again?.code == .detached)
      await a.close()
    }
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 1 && report.refused == 0)
    #expect(try await a.open().status().queued == 0)
    try fleet.expectEqual(["site", "visit"], [a])
  }
}
