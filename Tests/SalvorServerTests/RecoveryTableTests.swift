import SalvorModel
import Testing

@testable import SalvorServerEngine

/// A restored server is not brought down by its devices (semantics 9): they recover a few at a time.
@Suite("Many devices recover at once")
struct RecoveryTableTests {
  final class TestClock: Clock {
    nonisolated(unsafe) var time: Int64 = 1_000_000
    func now() -> Int64 { time }
    func sleep(milliseconds: Int64) async throws { try await Task.sleep(for: .milliseconds(1)) }
  }

  private let clock = TestClock()

  private func table(max: Int = 2) -> RecoveryTable {
    RecoveryTable(
      ConversationMemory(), Schema(tables: []), recoveriesMax: max, idleMilliseconds: 30_000, clock: clock,
      random: SystemRandom())
  }

  private func remote(_ number: Int) -> RemoteID {
    let digits = String(number, radix: 16)
    return RemoteID(unchecked: String(repeating: "0", count: 32 - digits.count) + digits)
  }

  private func isOpen(_ opening: RecoveryTable.Opening) -> Bool {
    if case .open = opening { true } else { false }
  }

  @Test("a thousand devices at one moment: never more than the limit, none left out, and no second in which they crowd")
  func stampede() async throws {
    let table = table(max: 32)
    let needed: Int64 = 1_500
    // When each device asks, or ends.
    var asks = (0..<1000).map { (at: clock.time, device: $0) }
    var ends: [(at: Int64, token: String)] = []
    var attempts: [Int: Int] = [:]
    var arrivals: [Int64: Int] = [:]
    let start = clock.time
    var done = 0
    while done < 1000 {
      let next = try #require((asks.map(\.at) + ends.map(\.at)).min())
      try #require(next - start < 600_000)
      clock.time = next
      for end in ends where end.at == next { await table.close(end.token) }
      done += ends.count { $0.at == next }
      ends.removeAll { $0.at == next }
      let now = asks.filter { $0.at == next }
      asks.removeAll { $0.at == next }
      for ask in now {
        attempts[ask.device, default: 0] += 1
        if next > start { arrivals[(next - start) / 1000, default: 0] += 1 }
        switch try await table.open(remote(ask.device), principal: "anna") {
        case .open(let recovery, let underWay):
          #expect(underWay <= 32)
          ends.append((next + needed, recovery.token))
        case .comeBack(let delay, _):
          #expect((1_000...61_000).contains(delay))
          asks.append((next + delay, ask.device))
        }
      }
      #expect(try await table.counts.underWay <= 32)
    }
    #expect(attempts.count == 1000)
    #expect((arrivals.values.max() ?? 0) < 150)
    #expect(try await table.counts.waiting == 0)
  }

  @Test("the window grows with those who wait")
  func window() async throws {
    let table = table(max: 1)
    #expect(isOpen(try await table.open(remote(0), principal: "anna")))
    func delays(_ devices: Range<Int>) async throws -> [Int64] {
      var found: [Int64] = []
      for device in devices {
        if case .comeBack(let delay, _) = try await table.open(remote(device), principal: "anna") {
          found.append(delay)
        }
      }
      return found
    }
    #expect(try #require(try await delays(1..<2).max()) <= 5_000)
    let many = try await delays(2..<500)
    #expect(many.count == 498)
    #expect(try #require(many.max()) > 30_000)
    #expect(try #require(many.min()) < 30_000)
  }

  @Test("a device that begins again is not kept out by itself, and leaves no tokens behind")
  func again() async throws {
    let table = table(max: 1)
    var tokens: [String] = []
    for _ in 0..<6 {
      if case .open(let recovery, _) = try await table.open(remote(1), principal: "anna") {
        tokens.append(recovery.token)
      }
    }
    #expect(tokens.count == 6)
    #expect(!isOpen(try await table.open(remote(2), principal: "anna")))
    let anna = Principal(name: "anna")
    var known: [Bool] = []
    for token in tokens { known.append((try? await table.find(token, principal: anna)) != nil) }
    #expect(known == [false, false, true, true, true, true])
    await #expect(throws: SalvorError.self) { try await table.find(tokens[5], principal: Principal(name: "mallory")) }
  }

  @Test("a device that works for long keeps its token and gives its place to another")
  func idle() async throws {
    let table = table(max: 1)
    guard case .open(let first, _) = try await table.open(remote(1), principal: "anna") else {
      Issue.record("not open")
      return
    }
    clock.time += 31_000
    #expect(isOpen(try await table.open(remote(2), principal: "anna")))
    #expect(try await table.find(first.token, principal: Principal(name: "anna")).remote == remote(1))
    clock.time += 30_000 * 20
    #expect(isOpen(try await table.open(remote(3), principal: "anna")))
    await #expect(throws: SalvorError.self) { try await table.find(first.token, principal: Principal(name: "anna")) }
  }
}

extension RecoveryTable {
  /// Of a device that subscribes to nothing.
  fileprivate func open(_ remote: RemoteID, principal: String) async throws -> Opening {
    try await open(remote, principal: principal, scopes: GroupScopes([:], in: Schema(tables: [])))
  }
}
