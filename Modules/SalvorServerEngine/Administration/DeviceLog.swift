import SalvorModel

/// Lines of the operator's log that a device can cause: so many of each principal, and so many of all together. What is left
/// out is counted, and said with the next line.
final class DeviceLog: Sendable {
  /// So many lines at once, and one more each so many milliseconds.
  private struct Bucket {
    let linesMax: Double
    let millisecondsPerLine: Double
    var lines: Double
    var time: Int64
    var leftOut = 0

    init(linesMax: Double, millisecondsPerLine: Double, now: Int64) {
      self.linesMax = linesMax
      self.millisecondsPerLine = millisecondsPerLine
      lines = linesMax
      time = now
    }

    mutating func fill(_ now: Int64) {
      lines = min(linesMax, lines + Double(max(0, now - time)) / millisecondsPerLine)
      time = now
    }
  }

  private struct State {
    var all: Bucket
    var each: [String: Bucket] = [:]
  }

  private static let subjectsMax = 1000
  private let state: Mutex<State>
  private let clock: any Clock
  private let log: Log

  init(clock: any Clock, log: Log) {
    self.clock = clock
    self.log = log
    state = Mutex(State(all: Bucket(linesMax: 500, millisecondsPerLine: 500, now: clock.now())))
  }

  /// - Parameter subject: whose lines are counted together: a principal, or what else a device makes happen.
  func say(
    _ line: String, about subject: String, level: LogLevel = .notice, _ fields: KeyValuePairs<String, String?> = [:]
  ) {
    let now = clock.now()
    let leftOut = state.withLock { state -> Int? in
      if state.each.count >= Self.subjectsMax, state.each[subject] == nil {
        // Those that have been quiet for long enough have nothing to say.
        state.each = state.each.filter { now - $0.value.time < 600_000 }
        if state.each.count >= Self.subjectsMax { return nil }
      }
      var bucket = state.each[subject] ?? Bucket(linesMax: 20, millisecondsPerLine: 6_000, now: now)
      bucket.fill(now)
      state.all.fill(now)
      defer { state.each[subject] = bucket }
      guard bucket.lines >= 1, state.all.lines >= 1 else {
        bucket.leftOut += 1
        return nil
      }
      bucket.lines -= 1
      state.all.lines -= 1
      defer { bucket.leftOut = 0 }
      return bucket.leftOut
    }
    guard let leftOut else { return }
    if leftOut > 0 { log("\(leftOut) more lines of this kind about '\(subject)' were left out.") }
    log.write(level, line, fields)
  }
}
