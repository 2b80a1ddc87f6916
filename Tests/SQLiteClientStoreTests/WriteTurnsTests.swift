import SQLiteSupport
import SalvorModel
import Testing

@testable import SQLiteClientStore

/// Whoever applies a first download in turns (`WriteTurns`) leaves an application its writes, and is not long over it. The time is made up; the
/// file, its locks and its commits are real.
@Suite struct WriteTurnsTests {
  /// One connection that takes turns, and an application that writes at intervals on another one, without a busy timeout.
  private final class Scene: SalvorModel.Clock, @unchecked Sendable {
    /// Every fourth commit of the application's is seen twice, 3 ms apart.
    var isSeenTwice = false
    private let start = ContinuousClock.now
    private var passed = Duration.zero
    private let application: SQLiteConnection
    private let connection: SQLiteConnection
    private var turns: WriteTurns?
    /// When the application writes next, and how long it waits then; nil: it does not write.
    private var due: Duration?
    private let interval: Duration
    /// After a write that failed; nil: it is given up.
    private let again: [Duration]
    private var tries = 0
    private var wanted: Duration?
    private(set) var done = 0
    private(set) var failed = 0
    private(set) var longestWait = Duration.zero
    var elapsed: Duration { passed }

    init(every interval: Duration?, from first: Duration = .zero, again: [Duration] = []) throws {
      let path = Scratch.path()
      connection = try SQLiteConnection(path)
      try connection.pragma("journal_mode", "WAL")
      try connection.execute("CREATE TABLE twin (id INTEGER PRIMARY KEY); CREATE TABLE own (id INTEGER PRIMARY KEY)")
      application = try SQLiteConnection(path, busyTimeoutMilliseconds: 0)
      (self.interval, self.again) = (interval ?? .zero, again)
      due = interval.map { _ in first }
      turns = WriteTurns(
        connection, self,
        TurnTime(now: { [unowned self] in start + passed }, pause: { [unowned self] in pass(.microseconds(450)) }))
    }

    func now() -> Int64 { Int64(passed / .milliseconds(1)) }
    func sleep(milliseconds: Int64) async throws {}

    private func pass(_ time: Duration) {
      let end = passed + time
      while let next = due, next <= end {
        passed = max(passed, next)
        write()
      }
      passed = max(passed, end)
    }

    private func write() {
      let began = wanted ?? passed
      wanted = began
      if (try? application.execute("INSERT INTO own DEFAULT VALUES")) != nil {
        done += 1
        longestWait = max(longestWait, passed - began)
      } else if tries < again.count {
        due = passed + again[tries]
        tries += 1
        return
      } else {
        failed += 1
      }
      (tries, wanted) = (0, nil)
      due = passed + (isSeenTwice && done % 4 == 0 ? .milliseconds(3) : max(interval, .microseconds(200)))
    }

    /// Pages of rows that take 10 µs each, and 300 µs a commit.
    func take(pages: Int, rows: Int) throws {
      guard let turns else { return }
      for _ in 0..<pages {
        try turns.begin()
        for _ in 0..<rows {
          if turns.isOver {
            pass(.microseconds(300))
            try turns.commit()
            try turns.begin()
          }
          try connection.execute("INSERT INTO twin DEFAULT VALUES")
          pass(.microseconds(10))
        }
        pass(.microseconds(300))
        try turns.commit()
      }
      turns.rollBack()
    }

    /// How many times longer it took than the work itself.
    func stretch(pages: Int, rows: Int) -> Double {
      elapsed / (.microseconds(10) * (pages * rows))
    }
  }

  @Test(
    "beside nobody a gap follows each turn, and not each page, however small those are", arguments: [100, 400, 5000])
  func alone(rows: Int) throws {
    let pages = 100_000 / rows
    let scene = try Scene(every: nil)
    try scene.take(pages: pages, rows: rows)
    #expect(scene.stretch(pages: pages, rows: rows) < 2)
  }

  @Test(
    "beside an application that writes at intervals and does not wait, 99 of 100 of its writes succeed, and most of the time is used",
    arguments: [(20, 400), (20, 3000), (10, 400), (50, 400)])
  func interval(milliseconds: Int, rows: Int) throws {
    let pages = 400_000 / rows
    let scene = try Scene(every: .milliseconds(milliseconds))
    try scene.take(pages: pages, rows: rows)
    #expect(scene.done > 0 && scene.failed * 100 <= scene.done, "\(scene.failed) of \(scene.failed + scene.done)")
    #expect(scene.stretch(pages: pages, rows: rows) < (milliseconds > 10 ? 1.85 : 2.5))
  }

  @Test("a commit that is seen twice is no shorter interval")
  func twice() throws {
    let scene = try Scene(every: .milliseconds(20))
    scene.isSeenTwice = true
    try scene.take(pages: 1000, rows: 400)
    #expect(scene.done > 100 && scene.stretch(pages: 1000, rows: 400) < 2.2)
  }

  @Test("an application that begins to write in the middle is soon known")
  func late() throws {
    let scene = try Scene(every: .milliseconds(20), from: .milliseconds(1510))
    try scene.take(pages: 1000, rows: 400)
    #expect(scene.done > 100)
    #expect(scene.failed <= 50, "\(scene.failed) of \(scene.failed + scene.done)")
  }

  /// The steps of SQLite's own busy handler.
  private static let steps: [Duration] =
    [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50].map(Duration.milliseconds)
    + Array(repeating: .milliseconds(100), count: 30)

  @Test("with a busy timeout a write waits for 250 ms at most, however often it comes", arguments: [1, 7, 20, 333])
  func waiting(milliseconds: Int) throws {
    let scene = try Scene(every: .milliseconds(milliseconds), from: .milliseconds(303), again: Self.steps)
    try scene.take(pages: 1000, rows: 400)
    #expect(scene.failed == 0 && scene.done > 0)
    #expect(scene.longestWait <= .milliseconds(250), "\(scene.longestWait)")
  }

  @Test("an application that never pauses does not keep a download from its end")
  func withoutPause() throws {
    let scene = try Scene(every: .zero, again: Self.steps)
    try scene.take(pages: 100, rows: 400)
    #expect(scene.stretch(pages: 100, rows: 400) < 8)
  }
}
