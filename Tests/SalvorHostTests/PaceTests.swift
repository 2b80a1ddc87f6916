import SalvorModel
import Testing

@testable import SalvorHost

@Suite struct PaceTests {
  private final class Hand: Clock {
    private let time = Atomic<Int64>(1_000_000)
    func now() -> Int64 { time.load(ordering: .relaxed) }
    func sleep(milliseconds: Int64) async throws { advance(milliseconds) }
    func advance(_ milliseconds: Int64) { time.add(milliseconds, ordering: .relaxed) }
  }

  @Test("The time left follows the pace since the beginning, and begins anew with another thing")
  func timeLeft() {
    let clock = Hand()
    let pace = Pace(clock: clock)
    #expect(pace.timeLeft(0, of: 1000) == nil, "nothing has come yet")
    clock.advance(100)
    #expect(pace.timeLeft(100, of: 1000) == nil, "too early to say")
    clock.advance(900)
    #expect(pace.timeLeft(100, of: 1000) == "9 s")
    clock.advance(9000)
    #expect(pace.timeLeft(200, of: 1000) == "40 s")
    #expect(pace.timeLeft(0, of: 500) == nil, "another one")
    clock.advance(1000)
    #expect(pace.timeLeft(1, of: 500) == "8 min")
    #expect(pace.timeLeft(500, of: 500) == "0 s")
    #expect(Pace.text(seconds: 89) == "89 s" && Pace.text(seconds: 7200) == "2 h")
  }
}
