import SalvorModel
import Testing

@testable import SalvorServerEngine

/// One writer, and many who wait for it.
@Suite("Turns") struct TurnsTests {
  private final class SetClock: Clock {
    private let time = Mutex<Int64>(1_000_000)
    func now() -> Int64 { time.withLock { $0 } }
    func sleep(milliseconds: Int64) async throws {
      try Task.checkCancellation()
      await Task.yield()
    }
    func pass(_ milliseconds: Int64) { time.withLock { $0 += milliseconds } }
  }

  /// What ran, in its order.
  private final class Notes: Sendable {
    private let list = Mutex<[String]>([])
    func add(_ note: String) { list.withLock { $0.append(note) } }
    var all: [String] { list.withLock { $0 } }
  }

  /// Holds its turn until it is let go.
  private struct Holder {
    let task: Task<Void, any Error>
    private let end: AsyncStream<Void>.Continuation

    init(_ turns: Turns) async {
      let (ends, end) = AsyncStream.makeStream(of: Void.self)
      let (begins, begin) = AsyncStream.makeStream(of: Void.self)
      self.end = end
      task = Task {
        try await turns.run(for: "holder") {
          begin.yield()
          for await _ in ends { return }
        }
      }
      for await _ in begins { return }
    }

    func letGo() { end.yield() }
  }

  private let clock = SetClock()
  private let notes = Notes()

  private func turns() -> Turns { Turns(patienceMilliseconds: 30_000, clock: clock) }

  private func wait(_ turns: Turns, until count: Int) async {
    while turns.count != count { await Task.yield() }
  }

  private func ask(_ turns: Turns, _ principal: String, _ note: String) -> Task<Void, any Error> {
    Task { [notes] in try await turns.run(for: principal) { notes.add(note) } }
  }

  @Test("principals take turns: one that asks a thousand times keeps another one waiting for one turn")
  func fair() async throws {
    let turns = turns()
    let holder = await Holder(turns)
    var tasks: [Task<Void, any Error>] = []
    for number in 1...50 {
      tasks.append(ask(turns, "many", "many \(number)"))
      await wait(turns, until: number)
    }
    tasks.append(ask(turns, "one", "one"))
    await wait(turns, until: 51)
    tasks.append(ask(turns, "other", "other 1"))
    await wait(turns, until: 52)
    tasks.append(ask(turns, "other", "other 2"))
    await wait(turns, until: 53)
    holder.letGo()
    for task in tasks { try await task.value }
    #expect(notes.all.prefix(5) == ["many 1", "one", "other 1", "many 2", "other 2"])
    #expect(notes.all.suffix(48) == (3...50).map { "many \($0)" })
    #expect(turns.count == 0)
  }

  @Test("whose asker has left is dropped before it begins")
  func left() async throws {
    let turns = turns()
    let holder = await Holder(turns)
    let gone = ask(turns, "anna", "gone")
    await wait(turns, until: 1)
    let stays = ask(turns, "anna", "stays")
    await wait(turns, until: 2)
    gone.cancel()
    await wait(turns, until: 1)
    await #expect(throws: CancellationError.self) { try await gone.value }
    holder.letGo()
    try await stays.value
    #expect(notes.all == ["stays"])
    // One that has left before it asks.
    let early = Task { [notes] in
      while !Task.isCancelled { await Task.yield() }
      try await turns.run(for: "anna") { notes.add("early") }
    }
    early.cancel()
    await #expect(throws: CancellationError.self) { try await early.value }
    try await ask(turns, "anna", "last").value
    #expect(notes.all == ["stays", "last"])
  }

  @Test("a stop drops what has not begun, and leaves what has")
  func stop() async throws {
    let turns = turns()
    let holder = await Holder(turns)
    let waiting = ask(turns, "anna", "waiting")
    await wait(turns, until: 1)
    turns.stop()
    let error = await #expect(throws: SalvorError.self) { try await waiting.value }
    #expect(error?.code == .overloaded)
    let late = await #expect(throws: SalvorError.self) { try await ask(turns, "anna", "late").value }
    #expect(late?.code == .overloaded)
    holder.letGo()
    try await holder.task.value
    #expect(notes.all == [])
  }

  @Test("who has waited for too long is told when to come back")
  func patience() async throws {
    let turns = turns()
    let holder = await Holder(turns)
    let early = ask(turns, "anna", "early")
    await wait(turns, until: 1)
    clock.pass(20_000)
    let late = ask(turns, "ben", "late")
    await wait(turns, until: 2)
    clock.pass(10_000)
    let error = await #expect(throws: SalvorError.self) { try await early.value }
    #expect(error?.code == .overloaded)
    #expect(error?.retryAfterMilliseconds == 30_000)
    #expect(turns.count == 1)
    holder.letGo()
    try await late.value
    #expect(notes.all == ["late"])
  }

  /// A turn that lasts.
  private func last(_ turns: Turns, _ principal: String, _ milliseconds: Int64) async throws {
    try await turns.run(for: principal) { clock.pass(milliseconds) }
  }

  @Test("whose turns were long pauses while others come; they do not wait for him, and he gets his turn after it")
  func pause() async throws {
    let turns = turns()
    try await last(turns, "long", 2_000)
    try await last(turns, "one", 1)
    let again = ask(turns, "long", "long")
    await wait(turns, until: 1)
    for number in 1...3 { try await ask(turns, "one", "one \(number)").value }
    #expect(notes.all == ["one 1", "one 2", "one 3"])
    clock.pass(900)
    try await ask(turns, "one", "one 4").value
    #expect(turns.count == 1)
    clock.pass(TurnAccounts.pauseMilliseconds)
    try await again.value
    #expect(notes.all.last == "long" && turns.count == 0)
  }

  @Test("nobody pauses who is alone, or whose turns were short, and one long turn is free")
  func noPause() async throws {
    let turns = turns()
    for _ in 0..<5 { try await last(turns, "long", 2_000) }
    try await ask(turns, "long", "alone").value
    try await last(turns, "one", 1)
    let again = ask(turns, "long", "again")
    await wait(turns, until: 1)
    clock.pass(TurnAccounts.othersMilliseconds)
    try await again.value
    for number in 0..<200 {
      try await last(turns, "short", TurnAccounts.freeMilliseconds)
      try await last(turns, "other \(number)", 1)
    }
    try await last(turns, "short", TurnAccounts.allowanceMilliseconds)
    try await last(turns, "one", 1)
    try await ask(turns, "short", "once").value
    #expect(notes.all == ["alone", "again", "once"])
  }

  @Test("what fails gives its turn on")
  func failing() async throws {
    let turns = turns()
    let error = await #expect(throws: SalvorError.self) {
      try await turns.run(for: "anna") { throw SalvorError(.failed, "It fails.") }
    }
    #expect(error?.code == .failed)
    try await ask(turns, "anna", "next").value
    #expect(notes.all == ["next"])
  }
}
