import SalvorModel

/// How long something will take that has come so far, from the time that it took.
final class Pace: Sendable {
  private struct Start {
    var time: Int64
    var done: Int64
    var all: Int64
  }

  private let start = Mutex<Start?>(nil)
  private let clock: any Clock

  init(clock: any Clock = SystemClock()) { self.clock = clock }

  /// For people, e.g. `40 s`; nil: it cannot be said yet. Another `all`, or less than before, is another thing that has begun.
  func timeLeft(_ done: Int64, of all: Int64) -> String? {
    let now = clock.now()
    let began = start.withLock { start -> Start in
      if let start, start.all == all, start.done <= done { return start }
      let new = Start(time: now, done: done, all: all)
      start = new
      return new
    }
    let taken = now - began.time
    guard done > began.done, taken >= 500 else { return nil }
    let left = Double(taken) / Double(done - began.done) * Double(max(0, all - done)) / 1000
    return Self.text(seconds: Int64(left.rounded(.up)))
  }

  static func text(seconds: Int64) -> String {
    switch seconds {
    case ..<90: "\(seconds) s"
    case ..<5400: "\((seconds + 30) / 60) min"
    default: "\((seconds + 1800) / 3600) h"
    }
  }
}
