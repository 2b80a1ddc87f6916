import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Takes the write lock for short turns beside an application that writes in the same file, maybe without a busy timeout.
///
/// The connection sees that another one has committed (`PRAGMA data_version`), and the write-ahead log's file says when. Where somebody
/// writes at intervals, a turn begins after one of his writes and ends before the next one is due. Who was not seen writing is left a
/// short gap after each turn, and a longer one now and then, in which he would be seen.
final class WriteTurns {
  private let connection: SQLiteConnection
  private let clock: any SalvorModel.Clock
  private var version: Int64?
  /// The last commit of another connection, and the times between the last ones.
  private var seen: ContinuousClock.Instant?
  private var intervals: [Duration] = []
  /// By `clock`, and how many milliseconds the turn may last.
  private var began: Int64 = 0
  private var budget: Int64 = 0
  private var ended = ContinuousClock.now
  private var lookedLong: ContinuousClock.Instant?
  /// Long gaps that are left for who has begun to write.
  private var looks = 0

  /// How long a turn lasts at most, and the gap after it.
  static let turn = Duration.milliseconds(15)
  static let gap = Duration.milliseconds(5)
  private static let longGap = Duration.milliseconds(30)
  /// Before the first turn: whoever writes at intervals of half of it is known then.
  private static let firstGap = Duration.milliseconds(60)
  /// Who has begun to write is waited for so often: his next write says at which intervals.
  private static let looksMax = 2
  private static let shortest = Duration.milliseconds(2)
  /// Nobody is waited for longer than this.
  private static let patience = Duration.milliseconds(80)
  /// Who has not written for so long is not waited for.
  private static let memory = Duration.seconds(1)
  private static let intervalsMax = 6

  init(_ connection: SQLiteConnection, _ clock: any SalvorModel.Clock) {
    self.connection = connection
    self.clock = clock
  }

  /// Until others have had their turn.
  func wait() throws {
    // A clock that is set by hand stands still meanwhile.
    guard clock is SystemClock else { return }
    try look()
    let start = ContinuousClock.now
    while true {
      let now = ContinuousClock.now
      if let seen, let period, now - start < Self.patience {
        if seen > ended, now + Self.shortest < due(seen, period) { return }
      } else {
        let pause = pause(now)
        if now >= ended + pause {
          if pause > Self.gap { lookedLong = now }
          looks = max(0, looks - 1)
          return
        }
      }
      usleep(400)
      try look()
    }
  }

  /// What is left free after the turn before, where nobody is known to write at intervals.
  private func pause(_ now: ContinuousClock.Instant) -> Duration {
    guard let lookedLong else { return Self.firstGap }
    return looks > 0 || period == nil && now - lookedLong > Self.memory ? Self.longGap : Self.gap
  }

  /// Waits, and begins a transaction.
  func begin() throws {
    try wait()
    try connection.execute("BEGIN IMMEDIATE")
    var end = Self.turn
    if let seen, seen > ended, let period {
      end = min(max(due(seen, period) - ContinuousClock.now, Self.shortest), Self.turn)
    }
    budget = Int64(end / .milliseconds(1))
    began = clock.now()
  }

  func commit() throws {
    try connection.execute("COMMIT")
    ended = .now
  }

  func rollBack() {
    if connection.isInTransaction { try? connection.execute("ROLLBACK") }
    ended = .now
  }

  /// It is time to let others write.
  var isOver: Bool { clock.now() - began >= budget }

  /// When another write must be expected.
  private func due(_ seen: ContinuousClock.Instant, _ period: Duration) -> ContinuousClock.Instant {
    seen + period * 0.75
  }

  /// The shortest time between two writes of others; nil: nobody writes now, or seldom.
  private var period: Duration? {
    guard let seen, let shortest = intervals.min(), ContinuousClock.now - seen < Self.memory,
      shortest < Self.memory / 4
    else { return nil }
    return shortest
  }

  private func look() throws {
    let now = ContinuousClock.now
    let found = try connection.scalar("PRAGMA data_version")?.integer ?? 0
    defer { version = found }
    guard let version, found != version else { return }
    let time = now - sinceLastWrite()
    if let seen, now - seen < Self.memory {
      intervals.append(max(time - seen, .milliseconds(1)))
      if intervals.count > Self.intervalsMax { intervals.removeFirst() }
    } else {
      intervals = []
      looks = Self.looksMax
    }
    seen = max(time, seen ?? time)
  }

  /// How long ago the write-ahead log was written, as its file says, which is exact to some milliseconds; zero where nothing says it.
  private func sinceLastWrite() -> Duration {
    var status = stat()
    var now = timespec()
    guard stat(connection.path + "-wal", &status) == 0, clock_gettime(CLOCK_REALTIME, &now) == 0 else { return .zero }
    #if canImport(Darwin)
      let then = status.st_mtimespec
    #else
      let then = status.st_mtim
    #endif
    let nanoseconds = Int64(now.tv_sec - then.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec - then.tv_nsec)
    return .nanoseconds(min(max(nanoseconds, 0), 50_000_000))
  }
}
