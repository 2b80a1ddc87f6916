import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The time that passes for `WriteTurns`.
struct TurnTime {
  var now: () -> ContinuousClock.Instant = { .now }
  /// A short sleep between two looks.
  var pause: () -> Void = { usleep(400) }
}

/// Takes the write lock for short turns beside an application that writes in the same file, maybe without a busy timeout.
///
/// The connection sees that another one has committed (`PRAGMA data_version`), and the write-ahead log's file says when. Where somebody
/// writes at intervals, a turn begins after one of his writes and ends before the next one is due. Who was not seen writing is left a
/// short gap after each turn, and a longer one now and then, in which he would be seen. A turn is as many transactions as fit: what
/// comes in small pieces does not pay for a gap after each of them.
final class WriteTurns {
  private let connection: SQLiteConnection
  private let clock: any SalvorModel.Clock
  /// Nil: a clock that is set by hand stands still while somebody waits.
  private let time: TurnTime?
  private var version: Int64?
  /// When the version was last looked at.
  private var looked: ContinuousClock.Instant?
  /// The last commit of another connection, and the times between the last ones.
  private var seen: ContinuousClock.Instant?
  private var intervals: [Duration] = []
  /// When the turn is over.
  private var end: ContinuousClock.Instant?
  /// Of a transaction, by `clock`, and how many milliseconds it may last.
  private var began: Int64 = 0
  private var budget: Int64 = 0
  private var ended: ContinuousClock.Instant
  /// How long the last commits took. One of them may have emptied the write-ahead log, for which nobody waits.
  private var commits: (last: Duration, before: Duration) = (.zero, .zero)
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
  /// Who is late by so much, or has not written for so long, is not waited for.
  private static let overdue = Duration.milliseconds(250)
  private static let memory = Duration.seconds(1)
  private static let intervalsMax = 8

  init(_ connection: SQLiteConnection, _ clock: any SalvorModel.Clock, _ time: TurnTime? = nil) {
    self.connection = connection
    self.clock = clock
    self.time = time ?? (clock is SystemClock ? TurnTime() : nil)
    ended = self.time?.now() ?? .now
  }

  private var now: ContinuousClock.Instant { time?.now() ?? .now }

  /// Until others have had their turn.
  func wait() throws {
    guard let time else { return }
    try look()
    let start = now
    while true {
      let now = now
      if let due, now - start < Self.patience {
        if now + Self.shortest < due, (seen ?? ended) > ended || now >= ended + Self.gap { return }
      } else {
        let pause = pause(now)
        if now >= ended + pause {
          if pause > Self.gap { lookedLong = now }
          looks = max(0, looks - 1)
          return
        }
      }
      time.pause()
      try look()
    }
  }

  /// What is left free after the turn before, where nobody is known to write at intervals.
  private func pause(_ now: ContinuousClock.Instant) -> Duration {
    guard let lookedLong else { return Self.firstGap }
    return looks > 0 || period == nil && now - lookedLong > Self.memory ? Self.longGap : Self.gap
  }

  /// Begins a transaction: in the turn that is not over, or in a new one, for which it waits.
  func begin() throws {
    let goesOn = time != nil && end.map { now + Self.shortest < $0 } ?? false
    if !goesOn { try wait() }
    try connection.execute("BEGIN IMMEDIATE")
    // From here on nobody comes in between.
    do { try look() } catch {
      rollBack()
      throw error
    }
    if !goesOn {
      let now = now
      end = now + Self.turn
      if let due, now + Self.shortest < due { end = min(due, now + Self.turn) }
    }
    budget = end.map { Int64(($0 - now) / .milliseconds(1)) } ?? 0
    began = clock.now()
  }

  func commit() throws {
    let start = now
    try connection.execute("COMMIT")
    ended = now
    commits = (ended - start, commits.last)
  }

  func rollBack() {
    if connection.isInTransaction { try? connection.execute("ROLLBACK") }
    ended = now
  }

  /// It is time to let others write.
  var isOver: Bool { clock.now() - began >= budget }

  /// When the lock must be free for another write; nil: nobody writes at intervals.
  private var due: ContinuousClock.Instant? {
    guard let seen, let period else { return nil }
    return seen + period * 0.9 - min(commits.last, commits.before, period * 0.15) - .milliseconds(1)
  }

  /// The shortest time between two writes of others; nil: nobody writes now, or seldom, or who did is long overdue.
  ///
  /// A commit that begins the write-ahead log anew is seen twice, and makes two short times of one: much shorter ones than most do not count.
  private var period: Duration? {
    let sorted = intervals.sorted()
    guard let seen, !sorted.isEmpty,
      let shortest = sorted.first(where: { $0 >= sorted[sorted.count / 2] * 0.6 }),
      now - seen < min(shortest + Self.overdue, Self.memory)
    else { return nil }
    return shortest
  }

  private func look() throws {
    let now = now
    let found = try connection.scalar("PRAGMA data_version")?.integer ?? 0
    defer { (version, looked) = (found, now) }
    guard let version, let looked, found != version else { return }
    let time = max(now - sinceLastWrite(), looked)
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
