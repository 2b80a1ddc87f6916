import Testing

@testable import SQLiteServerStore

@Suite("The write lock is left to others now and then") struct WritePauseTests {
  @Test("after 80 ms of transactions without a gap there is a pause; a gap or a pause begins anew")
  func pauses() {
    let start = ContinuousClock.now
    func at(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }
    var pause = WritePause()
    func isDue(_ milliseconds: Int) -> Bool { pause.isDue(at(milliseconds)) }
    #expect(!isDue(0))
    for turn in 0..<8 {
      #expect(!isDue(turn * 11))
      pause.add(from: at(turn * 11), to: at(turn * 11 + 10))
    }
    #expect(isDue(88))
    #expect(!isDue(108))
    pause.add(from: at(108), to: at(180))
    // Nobody held the lock for a while.
    #expect(!isDue(201))
    pause.add(from: at(201), to: at(280))
    #expect(!isDue(281))
    // One long transaction alone.
    pause.add(from: at(281), to: at(2000))
    #expect(isDue(2001))
  }
}
