import SalvorModel
import SalvorStorage
import Testing

private func incarnation(_ digit: Character, _ first: Int64) -> Incarnation {
  Incarnation(id: IncarnationID(unchecked: String(repeating: digit, count: 32)), firstCommit: first)
}

/// Where two histories part (semantics 6).
@Suite("Timelines of incarnations (semantics 6)")
struct TimelineTests {
  private let a = incarnation("a", 1), b = incarnation("b", 10), c = incarnation("c", 20), x = incarnation("d", 15)

  @Test("one history: up to the newest commit")
  func same() {
    #expect(Timeline([a, b]).lastShared(with: [a, b], head: 30) == 30)
  }

  @Test("the server lost an incarnation, or the end of one that both know")
  func lost() {
    #expect(Timeline([a]).lastShared(with: [a, b], head: 9) == 9)
    #expect(Timeline([a, b]).lastShared(with: [a, b, c], head: 17) == 17)
  }

  @Test("the restored server has gone on: histories part where its new incarnation begins")
  func wentOn() {
    #expect(Timeline([a, b, x]).lastShared(with: [a, b, c], head: 40) == 14)
    #expect(Timeline([a, b, x]).lastShared(with: [a, b], head: 40) == 14)
    #expect(Timeline([a, incarnation("e", 5)]).lastShared(with: [a, b, c], head: 40) == 4)
  }

  @Test("what a device was never told of before the newest that both know makes no difference")
  func gaps() {
    #expect(Timeline([a, b, c]).lastShared(with: [c], head: 40) == 40)
    #expect(Timeline([a, b, c]).lastShared(with: [incarnation("f", 3), c], head: 40) == 40)
  }

  @Test("nothing is shared, or an unknown incarnation has no first commit: the incarnations do not tell")
  func unknown() {
    #expect(Timeline([a, b]).lastShared(with: [c, x], head: 40) == nil)
    #expect(Timeline([a, b]).lastShared(with: [], head: 40) == nil)
    #expect(Timeline([a, b]).lastShared(with: [incarnation("a", 2)], head: 40) == nil)
    #expect(Timeline([a, b]).lastShared(with: [a, incarnation("f", 0)], head: 40) == nil)
  }

  @Test("a device is told what it does not know, the newest that it knows again")
  func untold() {
    let timeline = Timeline([a, b, c])
    #expect(timeline.untold(after: nil) == [a, b, c])
    #expect(timeline.untold(after: c.id) == [])
    #expect(timeline.untold(after: b.id) == [b, c])
    #expect(timeline.untold(after: x.id) == [a, b, c])
    let long = Timeline((1...2000).map { incarnation("a", $0) })
    #expect(long.untold(after: nil).count == Timeline.toldMax)
    #expect(long.untold(after: nil).last?.firstCommit == 2000)
  }
}
