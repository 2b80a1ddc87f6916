import SalvorClientEngine
import SalvorHost
import SalvorModel
import SalvorStorage
import SalvorTransport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

private let tables = ["severity", "site", "visit"]

@Suite("The Swift API, handled roughly")
struct RoughCallerTests {
  private func withoutTokens() async throws -> Fleet {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Toronto', 40), ('s2', 'Corner Bakery', NULL, 12)")
    return fleet
  }

  @Test("two clients on one file in one process: each waits for the other, and both sides are equal in the end")
  func twoClients() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a"), again = try fleet.device("a")
    let clients = [try await a.open(), try await again.open()]
    for round in 0..<3 {
      try await a.write("INSERT INTO site (id, name) VALUES ('n\(round)', 'New')")
      await withTaskGroup(of: Void.self) { group in
        for client in clients { group.addTask { _ = await client.attemptSync() } }
      }
    }
    try await clients[0].synchronize()
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").count == 5)
  }

  @Test("a client that is dropped in mid-sync ends what it began; the next one goes on")
  func dropped() async throws {
    let fleet = try await withoutTokens()
    let began = AsyncStream.makeStream(of: Void.self)
    fleet.faults.inject(.meanwhile { began.continuation.yield() })
    do {
      let client = try await fleet.device("a").open()
      Task { _ = await client.attemptSync() }
    }
    for await _ in began.stream { break }
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('n', 'New')")
    // While the other one ends, its turn is not over.
    while let error = try await a.sync().error { try #require(error.code == .sessionInUse, "\(error)") }
    try fleet.expectEqual(tables, [a])
  }

  @Test("cancelled at every step that is told: nothing is lost or doubled, and the next synchronization goes through")
  func cancelledEverywhere() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a", limits: "{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024 }")
    let client = try await a.open()
    var steps = 0
    for place in 0..<24 {
      try await a.write(
        "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT 'p\(place)-' || i, 'Up' FROM n"
      )
      try fleet.serverConnection().execute(
        "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT 'q\(place)-' || i, 'Down' FROM n"
      )
      let count = Mutex(0)
      let running = Mutex<Task<SyncReport, Never>?>(nil)
      let go = AsyncStream.makeStream(of: Void.self)
      let task = Task {
        for await _ in go.stream { break }
        return await client.attemptSync(progress: { _ in
          let here = count.withLock { count in
            count += 1
            return count
          }
          if here > place { running.withLock { $0 }?.cancel() }
        })
      }
      running.withLock { $0 = task }
      go.continuation.yield()
      let report = await task.value
      #expect(report.error == nil || report.error?.code == .cancelled, "\(String(describing: report.error))")
      steps = max(steps, count.withLock { $0 })
    }
    #expect(steps > 3)
    try await client.synchronize()
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").count == 2 + 24 * 80)
  }

  @Test("callbacks that call back into the client are answered")
  func callsBack() async throws {
    let fleet = try await withoutTokens()
    let client = try await fleet.device("a").open()
    let inner = Mutex<[Task<SyncReport, Never>]>([])
    try await client.synchronize(progress: { _ in
      inner.withLock { $0.append(Task { await client.attemptSync() }) }
    })
    for task in inner.withLock({ $0 }) { #expect(await task.value.error == nil) }
    #expect(inner.withLock { !$0.isEmpty })
  }

  @Test(
    "a callback that waits for its own synchronization is refused by name, in each of them; a task that it leaves behind gets its turn"
  )
  func callbacksThatWait() async throws {
    let fleet = try await withoutTokens()
    let client = Box<SalvorClient>()
    let (refused, left) = (Box<ErrorCode?>(), Box<Task<SyncReport, Never>>())
    let a = try fleet.device(
      "a",
      adjust: { configuration in
        configuration.credentials = [:]
        configuration.credentialsProvider = {
          if let client = client.values.first { refused.append(await client.attemptSync().error?.code) }
          return Credentials(["principal": "anna"])
        }
        configuration.recovery.errorHandler = { _ in
          guard let client = client.values.first else { return }
          refused.append(await client.recover().error?.code)
          await #expect(throws: SalvorError.self) { _ = try await client.pauseCapture() }
          await #expect(throws: SalvorError.self) { try await client.withCapturePaused {} }
          await #expect(throws: SalvorError.self) { try await client.restoreBackup("none") }
          await #expect(throws: SalvorError.self) { _ = try await client.detach() }
          await #expect(throws: SalvorError.self) { try await client.changeKey(to: "k") }
          await #expect(throws: SalvorError.self) {
            try await client.switch(to: ClientUser(database: "b.db", credentials: { Credentials([:]) }))
          }
          // What only reads is answered.
          _ = try? await client.status()
          left.append(Task { await client.attemptSync() })
        }
      })
    client.append(try await a.open())
    fleet.faults.inject(.problem(status: 403, json: #"{"code": "forbidden", "detail": "not today"}"#))
    let report = try await a.sync()
    #expect(report.error != nil)
    #expect(left.values.count == 1)
    for task in left.values { #expect(await task.value.error == nil) }
    #expect(!refused.values.isEmpty && refused.values.allSatisfy { $0 == .usage }, "\(refused.values)")
    try fleet.expectEqual(tables, [a])
  }

  @Test("hooks of a recovery that ask for another synchronization are refused, and the recovery goes through")
  func hooksThatWait() async throws {
    let fleet = try await withoutTokens()
    let (client, refused) = (Box<SalvorClient>(), Box<ErrorCode?>())
    let again: RecoveryConfiguration.Hook = { _ in
      for each in client.values { refused.append(await each.attemptSync().error?.code) }
    }
    let a = try fleet.device(
      "a", adjust: { $0.clientResetMode = .recoverUnsyncedChanges(beforeReset: again, afterReset: again) })
    try await a.sync()
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's1'")
    try await a.sync()
    try await fleet.backup("night")
    try await a.write("UPDATE site SET seats = 2 WHERE id = 's1'")
    try await a.sync()
    try await fleet.restore("night")
    client.append(try await a.open())
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(refused.values == [.usage, .usage])
  }

  @Test(
    "cancelled at every exchange, of a synchronization and of a recovery: nothing is lost, and the next goes through")
  func cancelledAtEveryExchange() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a", limits: "{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024 }")
    try await a.write("INSERT INTO site (id, name) VALUES ('first', 'Up')")
    try await a.sync()
    try await fleet.backup("night")
    var cancelled = 0
    for place in 0..<10 {
      // Of the even ones the server has lost what the device was told.
      if place % 2 == 0 { try await fleet.restore("night") }
      try await a.write(
        "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT 'p\(place)-' || i, 'Up' FROM n"
      )
      let client = try await a.open()
      let running = Mutex<Task<SyncReport, Never>?>(nil)
      let go = AsyncStream.makeStream(of: Void.self)
      fleet.faults.pass(place / 2)
      fleet.faults.inject(.meanwhile { running.withLock { $0 }?.cancel() })
      let task = Task {
        for await _ in go.stream { break }
        return await client.attemptSync()
      }
      running.withLock { $0 = task }
      go.continuation.yield()
      let report = await task.value
      fleet.faults.clear()
      #expect(report.error == nil || report.error?.code == .cancelled, "\(place): \(String(describing: report.error))")
      if report.error != nil { cancelled += 1 }
      // Nobody holds the database.
      #expect(try await a.sync().error == nil, "\(place)")
    }
    #expect(cancelled > 3)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").count == 3 + 10 * 40)
  }

  @Test("a migration whose task is cancelled is over: capture goes on, and what is written then is sent")
  func cancelledMigration() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a")
    let client = try await a.open()
    try await client.synchronize()
    let began = AsyncStream.makeStream(of: Void.self)
    let migrating = Task {
      try await client.withCapturePaused {
        began.continuation.yield()
        try await Task.sleep(for: .seconds(3600))
      }
    }
    for await _ in began.stream { break }
    migrating.cancel()
    await #expect(throws: CancellationError.self) { try await migrating.value }
    try await a.write("INSERT INTO site (id, name) VALUES ('n', 'New')")
    #expect(try await client.synchronize().uploaded == 1)
    try fleet.expectEqual(tables, [a])
  }

  @Test(
    "a path with spaces, quotes and signs of every kind is one path, for the database and all that stands beside it")
  func strangePaths() async throws {
    let fleet = try await withoutTokens()
    let name = "Ännä's 日本 file: #1 %41?mode=memory&x=[y]"
    let a = try fleet.device(name, recovery: "strategy: \"recreate\"")
    try await a.sync()
    try await a.write("INSERT INTO site (id, name) VALUES ('n', 'New')")
    try await a.sync()
    try await fleet.backup("night before")
    try await a.write("UPDATE site SET name = 'Later' WHERE id = 'n'")
    try await a.sync()
    try await fleet.restore("night before")
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(try await a.open().backups().allSatisfy { $0.path.hasPrefix(fleet.directory) })
    try fleet.expectEqual(["severity", "site", "visit"], [a])
    let client = try await a.open()
    try await client.switch(
      to: ClientUser(
        principal: "bert", database: fleet.directory + "/ü \"b\" '%20'.db",
        credentials: { Credentials(["principal": "bert"]) }))
    try await client.synchronize()
    let found = try #require(fileNames(in: fleet.directory))
    #expect(found.contains(name + ".db") && found.contains("ü \"b\" '%20'.db"), "\(found)")
  }
}
