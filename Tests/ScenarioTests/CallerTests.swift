import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorTransport
import Testing

private let tables = ["severity", "site", "visit"]

/// Credentials that a test hands out, and how often they were asked for.
private final class Wallet: Sendable {
  private let state: Mutex<(next: [String], count: Int)>

  /// - Parameter tokens: one for each time; the last one for ever.
  init(_ tokens: String...) { state = Mutex((tokens, 0)) }

  var count: Int { state.withLock { $0.count } }

  func give() -> Credentials {
    state.withLock { state in
      state.count += 1
      return Credentials(token: state.next.count > 1 ? state.next.removeFirst() : state.next[0])
    }
  }
}

private struct Refused: Error {}

/// Long times are over when the test says so; short ones, e.g. before another attempt, pass as they do.
private final class HandClock: Clock {
  private let isOver = Mutex(false)
  func now() -> Int64 { SystemClock().now() }
  func ring() { isOver.withLock { $0 = true } }
  func sleep(milliseconds: Int64) async throws {
    if milliseconds < 20_000 { return try await Task.sleep(for: .milliseconds(milliseconds)) }
    while !isOver.withLock({ $0 }) { try await Task.sleep(for: .milliseconds(2)) }
  }
}

@Suite("The Swift API, from the caller's side")
struct CallerTests {
  private func withTokens() async throws -> Fleet {
    let fleet = try Fleet(
      serverOptions: "authentication: { module: \"tokens\", file: \"tokens.json5\" },", principals: "token: \"none\"")
    try writeText(
      """
      { tokens: [
        { sha256: "c3cdf8b93111159d4a078d5b124d961890ae85d5aa9a955cfbe670c1d85f98ff", principal: "anna" },
        { sha256: "7c17c5de1d7a88d77d39d995c36d4deb23513198ae37c215527697d4ff6ed6dc", principal: "bert" } ] }
      """, to: fleet.directory + "/tokens.json5")
    try await fleet.start()
    return fleet
  }

  private func withoutTokens() async throws -> Fleet {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Toronto', 40), ('s2', 'Corner Bakery', NULL, 12)")
    return fleet
  }

  // MARK: - The outcome

  @Test("a failed synchronization throws; one that went through is synchronized, or refused with the number")
  func outcome() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a")
    let client = try await a.open()
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    await #expect(throws: SalvorError.self) { try await client.synchronize() }
    fleet.faults.clear()
    #expect(try await client.synchronize().outcome == .synchronized)
    // A visit of a site that somebody has deleted meanwhile.
    try await a.write("INSERT INTO visit VALUES ('v1', 's2', 'late', NULL)")
    try fleet.serverConnection().execute("DELETE FROM site WHERE id = 's2'")
    let result = try await client.synchronize()
    #expect(result.outcome == .refused(1))
    #expect(result.refused == 1)
    #expect("\(result)" == "1 request refused")
  }

  // MARK: - State and changes

  @Test("the state is a value and a sequence: idle, synchronizing, offline since, connected; progress is told by both")
  func state() async throws {
    let fleet = try await withoutTokens()
    let client = try await fleet.device("a").open()
    #expect(client.state == .idle)
    let seen = Mutex<[SyncState]>([])
    let states = client.states
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    _ = try? await client.synchronize()
    guard case .offline(let since) = client.state else {
      Issue.record("\(client.state)")
      return
    }
    // A second failure does not move the time.
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    _ = try? await client.synchronize()
    #expect(client.state == .offline(since: since))
    fleet.faults.clear()
    _ = try await client.synchronize(progress: { _ in seen.withLock { $0.append(client.state) } })
    #expect(client.state == .connected)
    #expect(
      seen.withLock { !$0.isEmpty && $0.allSatisfy { if case .synchronizing(.some) = $0 { true } else { false } } })
    // A reader that comes late gets where things stand, and the end.
    await client.close()
    var last: SyncState?
    for await state in states { last = state }
    #expect(last == .connected)
  }

  @Test("reports and events name tables and keys: what came, what went, what a refusal took back")
  func changes() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a")
    let client = try await a.open()
    let first = try await client.synchronize()
    // Groups that come for the first time come whole.
    #expect(Set(first.changes.map(\.table)) == ["severity", "site", "visit"])
    #expect(first.changes.allSatisfy { $0.keys == nil })
    let events = client.events
    try fleet.serverConnection().execute("UPDATE site SET seats = 41 WHERE id = 's1'; DELETE FROM site WHERE id = 's2'")
    let second = try await client.synchronize()
    #expect(second.changes == [TableChange(table: "site", keys: second.changes.first?.keys)])
    #expect(Set(second.changes.first?.keys ?? []) == [["s1"], ["s2"]])
    #expect(try await client.synchronize().changes == [])
    await client.close()
    var told: [[TableChange]] = []
    for await event in events { if case .rowsChanged(let changes) = event { told.append(changes) } }
    #expect(told == [second.changes])
  }

  @Test("more keys than an application wants to look at are the whole table")
  func wholeTable() async throws {
    let fleet = try await withoutTokens()
    let client = try await fleet.device("a").open()
    try await client.synchronize()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) SELECT 'n' || i, 'New' FROM n; INSERT INTO severity VALUES (7, 'odd')"
    )
    let report = try await client.synchronize()
    #expect(report.upserts == 1201)
    #expect(report.changes.first { $0.table == "site" } == TableChange(table: "site", keys: nil))
    #expect(report.changes.first { $0.table == "severity" } == TableChange(table: "severity", keys: [[7]]))
  }

  @Test("progress says rows and share, of uploads and of later downloads, in watch as well")
  func progress() async throws {
    let fleet = try await withoutTokens()
    let a = try fleet.device("a", limits: "{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024 }")
    let client = try await a.open()
    try await client.synchronize()
    try await a.write(
      "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT 'u' || i, 'Up' FROM n"
    )
    let told = Mutex<[SyncProgress]>([])
    let ends = AsyncStream.makeStream(of: SyncReport.self)
    let watching = Task {
      await client.watch(
        onSync: { ends.continuation.yield($0) }, progress: { step in told.withLock { $0.append(step) } })
    }
    for await report in ends.stream {
      #expect(report.error == nil)
      break
    }
    watching.cancel()
    #expect(await watching.value == nil)
    let up = told.withLock { $0.filter { if case .uploading = $0 { true } else { false } } }
    #expect(up.count > 3)
    #expect(up.last?.rows == 300)
    #expect(up.last?.share == 1)
    #expect(zip(up, up.dropFirst()).allSatisfy { ($0.share ?? 2) < ($1.share ?? 0) }, "\(up)")
  }

  @Test(
    "a first download that goes on after a cut, in the same process or another, says all rows and those that it has")
  func progressAfterACut() async throws {
    let fleet = try Fleet(serverOptions: "authentication: { module: \"none\" }, limits: { chunkBytesTarget: 8192 },")
    try await fleet.start()
    try fleet.serverConnection().execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) INSERT INTO site (id, name) SELECT 'n' || i, hex(randomblob(20)) FROM n"
    )
    let told = Mutex<[SyncProgress]>([])
    let a = try fleet.device("a", limits: "{ attemptsMax: 1 }")
    var before: Int64 = 0
    // The server may not have seen yet that the answer before was cut.
    func synchronize(_ client: SalvorClient) async throws {
      while true {
        do {
          try await client.synchronize(progress: { step in told.withLock { $0.append(step) } })
          return
        } catch let error as SalvorError where error.code == .sessionInUse {
          try await Task.sleep(for: .milliseconds(50))
        }
      }
    }
    for turn in 0..<3 {
      let client = try await a.open()
      fleet.faults.inject(.cutAnswer(after: 100_000))
      await #expect(throws: SalvorError.self) { try await synchronize(client) }
      let steps = told.withLock { steps in
        defer { steps = [] }
        return steps.compactMap { step in if case .fetching(let rows, 12_000) = step { rows } else { nil } }
      }
      #expect(steps.count > 2, "of turn \(turn)")
      #expect(turn == 0 ? (steps.first ?? 0) > 0 : steps.first == before, "turn \(turn): \(before), \(steps)")
      #expect(zip(steps, steps.dropFirst()).allSatisfy { $0 < $1 }, "\(steps)")
      before = steps.last ?? 0
      // Also where another process goes on.
      if turn == 1 { await a.close() }
    }
    let client = try await a.open()
    try await synchronize(client)
    let rows = told.withLock {
      $0.compactMap { step in if case .fetching(let rows, 12_000) = step { rows } else { nil } }
    }
    #expect(rows.first == before && (rows.last ?? 0) > 9000 && (rows.last ?? 0) <= 12_000, "\(before), \(rows)")
    #expect(!told.withLock { $0.contains { if case .receiving = $0 { true } else { false } } })
    try fleet.expectEqual(["site"], [a])
  }

  // MARK: - Credentials

  @Test("credentials are asked for at the start of each synchronization, and again when the server refuses them")
  func renewedCredentials() async throws {
    let fleet = try await withTokens()
    let wallet = Wallet("expired", "anna-token")
    let a = try fleet.device("a", adjust: { $0.credentialsProvider = { wallet.give() } })
    try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'Mine')")
    let client = try await a.open()
    #expect(try await client.synchronize().uploaded == 1)
    #expect(wallet.count == 2)
    try await client.synchronize()
    #expect(wallet.count == 3)
    #expect(try fleet.serverRows("site").count == 1)
  }

  @Test(
    "closures that throw, hang, or give the same expired token for ever end with an error and leave the queue as it was"
  )
  func wrongCredentials() async throws {
    let fleet = try await withTokens()
    let expired = Wallet("expired")
    let changing = Mutex(0)
    let clock = HandClock()
    let wrong: [(String, CredentialsProvider, ErrorCode)] = [
      ("throws", { throw Refused() }, .unauthenticated),
      (
        "hangs",
        {
          try await Task.sleep(for: .seconds(3600)); return Credentials(token: "late")
        }, .timeout
      ),
      ("same", { expired.give() }, .unauthenticated),
      ("others", { Credentials(token: "expired-\(changing.withLock { $0 += 1; return $0 })") }, .unauthenticated),
      ("break", { Credentials(token: "a\r\nsalvor-principal: bert") }, .usage),
    ]
    clock.ring()
    for (name, provider, code) in wrong {
      let device = try fleet.device(
        name,
        adjust: {
          $0.credentialsProvider = provider
          $0.limits.attemptsMax = 1
          if name == "hangs" { $0.clock = clock }
        })
      try await device.write("INSERT INTO site (id, name) VALUES ('\(name)', 'Mine')")
      let client = try await device.open()
      let error = await #expect(throws: SalvorError.self) { try await client.synchronize() }
      #expect(error?.code == code, "\(name): \(String(describing: error))")
      #expect(try await client.status().queued == 1, "\(name)")
      if code == .unauthenticated {
        #expect({ if case .waitingForUser = client.state { true } else { false } }(), "\(name): \(client.state)")
      }
      // The same client goes on with credentials that are right.
      await device.close()
    }
    #expect(expired.count == 2)
    #expect(changing.withLock { $0 } == 4)
    #expect(try fleet.serverRows("site") == [])
  }

  @Test("a closure that hangs does not outlive the caller's patience: cancelled is cancelled")
  func cancelledWhileAsking() async throws {
    let fleet = try await withTokens()
    let asked = AsyncStream.makeStream(of: Void.self)
    let a = try fleet.device(
      "a",
      adjust: {
        $0.credentialsProvider = {
          asked.continuation.yield()
          try? await Task.sleep(for: .seconds(3600))
          return Credentials(token: "late")
        }
      })
    let client = try await a.open()
    let syncing = Task { try await client.synchronize() }
    for await _ in asked.stream { break }
    syncing.cancel()
    let error = await #expect(throws: SalvorError.self) { _ = try await syncing.value }
    #expect(error?.code == .cancelled)
  }

  // MARK: - Time and networks

  @Test("a synchronization within a time stops at a safe place: nothing is lost, and no lock is held when it returns")
  func within() async throws {
    let fleet = try await withoutTokens()
    for exchange in 0..<4 {
      let clock = HandClock()
      let a = try fleet.device(
        "a\(exchange)", limits: "{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024 }",
        adjust: { $0.clock = clock })
      try await a.write(
        "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT 'a\(exchange)-' || i, 'Up' FROM n"
      )
      fleet.faults.pass(exchange)
      fleet.faults.inject(.meanwhile { clock.ring() })
      let client = try await a.open()
      _ = try await client.synchronize(within: .seconds(25))
      fleet.faults.clear()
      // Another client of the same file gets its turn at once.
      let other = try await fleet.device("a\(exchange)").open()
      try await other.synchronize()
      #expect(try await other.status().queued == 0)
      await other.close()
      await a.close()
    }
    let none = try fleet.device("none")
    #expect(try await none.open().synchronize(within: .zero) == nil || none.rows("site").count > 0)
    #expect(try fleet.serverRows("site").count == 402)
  }

  @Test("on a metered network the groups that are allowed on it are synchronized, and the others afterwards")
  func metered() async throws {
    let fleet = try await withoutTokens()
    try fleet.serverConnection().execute("INSERT INTO severity VALUES (1, 'minor')")
    let a = try fleet.device("a", adjust: { $0.meteredGroups = ["reference"] })
    let client = try await a.open()
    client.isNetworkMetered = true
    try await client.synchronize()
    #expect(try a.rows("severity").count == 1)
    #expect(try a.rows("site") == [])
    let ends = AsyncStream.makeStream(of: Void.self)
    let watching = Task { await client.watch(onSync: { _ in ends.continuation.yield() }) }
    var syncs = ends.stream.makeAsyncIterator()
    await syncs.next()
    #expect(try a.rows("site") == [])
    client.isNetworkMetered = false
    while try a.rows("site").count < 2 { await syncs.next() }
    watching.cancel()
    _ = await watching.value
    // A call that names its groups is a person's word.
    client.isNetworkMetered = true
    #expect(try await client.synchronize(groups: ["visits"]).outcome == .synchronized)
  }

  // MARK: - Users

  @Test("another user takes over a shared device: what was another's stays his, in his file, and goes when he is back")
  func switchUser() async throws {
    let fleet = try await withTokens()
    let a = try fleet.device("a", adjust: { $0.credentialsProvider = { Credentials(token: "anna-token") } })
    let client = try await a.open()
    try await client.synchronize()
    try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'Anna wrote this')")
    let bert = ClientUser(database: fleet.directory + "/bert ü.db", credentials: { Credentials(token: "bert-token") })
    let events = client.events
    let watching = Task { await client.watch() }
    // It is under way: one that begins after the switch would be bert's, and go on.
    for await _ in events { break }
    try await client.switch(to: bert)
    #expect(await watching.value == nil)
    try await client.synchronize()
    #expect(try await client.status().state.principal == "bert")
    // The file of before is refused to him, and stays.
    await #expect(throws: SalvorError.self) {
      try await client.switch(to: ClientUser(principal: "bert", database: a.path, credentials: bert.credentials))
    }
    #expect(try await client.status().state.principal == "bert")
    let queued = try a.connection().rows("SELECT * FROM salvor_queue").count
    let sent = try fleet.serverRows("site").count
    // A watch may have been about to send it.
    #expect(queued + sent >= 1)
    try await client.switch(
      to: ClientUser(principal: "anna", database: a.path, credentials: { Credentials(token: "anna-token") }))
    try await client.synchronize()
    #expect(try fleet.serverRows("site").count == 1)
    #expect(try await client.status().state.principal == "anna")
  }
}
