import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Writes the log's lines to a file descriptor, one `write` each, in one order.
///
/// A message that comes more often than `linesPerSecondMax` is not written further in that second; the next line of it
/// says how many were left out (`suppressed`). What a caller can cause thousands of times does not fill the disk.
public final class LogWriter: Sendable {
  /// Of one message. Access lines have a limit of their own.
  public static let linesPerSecondMax = 20
  /// Of lines about requests that were answered (`log.access`).
  public static let accessLinesPerSecondMax = 500
  static let accessMessage = "request"

  fileprivate struct Count {
    var second: Int64
    var lines = 0
    var suppressed = 0

    init(second: Int64, suppressed: Int = 0) {
      self.second = second
      self.suppressed = suppressed
    }
  }

  fileprivate struct State {
    var level: LogLevel
    var format: LogFormat
    var counts: [String: Count] = [:]
  }

  private let state: Mutex<State>
  private let clock: any Clock
  private let output: @Sendable (String) -> Void

  /// - Parameter output: takes a whole line, without its end.
  public init(
    level: LogLevel = .info, format: LogFormat, clock: any Clock = SystemClock(),
    output: @escaping @Sendable (String) -> Void = { LogWriter.writeToStandardError($0) }
  ) {
    state = Mutex(State(level: level, format: format))
    self.clock = clock
    self.output = output
  }

  /// A log that writes here; it may be used from every thread.
  public var log: Log { Log { self.write($0) } }

  /// What is below it is not written. It may change while the log is in use.
  public var level: LogLevel {
    get { state.withLock { $0.level } }
    set { state.withLock { $0.level = newValue } }
  }

  package func take(_ settings: LogSettings, environment: [String: String]) {
    state.withLock { state in
      state.level = settings.level
      if let format = settings.format { state.format = format }
    }
  }

  private func write(_ entry: LogRecord) {
    let now = clock.now()
    state.withLock { state in
      guard entry.level >= state.level else { return }
      var entry = entry
      guard state.admit(&entry, second: now / 1000) else { return }
      // Within the lock: lines keep their order.
      output(state.format.line(entry, time: now))
    }
  }

  /// Writes a line and its end, whole where standard error takes it; what it does not take is dropped.
  public static func writeToStandardError(_ line: String) {
    var bytes = Array((line + "\n").utf8)[...]
    while !bytes.isEmpty {
      let count = bytes.withUnsafeBytes { systemWrite($0.baseAddress, $0.count) }
      if count < 0 && errno == EINTR { continue }
      guard count > 0 else { return }
      bytes = bytes.dropFirst(count)
    }
  }

  private static func systemWrite(_ base: UnsafeRawPointer?, _ count: Int) -> Int {
    #if canImport(Glibc)
      Glibc.write(2, base, count)
    #else
      Darwin.write(2, base, count)
    #endif
  }

  /// The format where none is named: journald's where standard error leads there, else `logfmt`.
  package static func format(environment: [String: String]) -> LogFormat {
    guard let stream = environment["JOURNAL_STREAM"] else { return .logfmt }
    let parts = stream.split(separator: ":").map(String.init)
    var found = stat()
    guard parts.count == 2, fstat(2, &found) == 0, "\(found.st_dev)" == parts[0], "\(found.st_ino)" == parts[1] else {
      return .logfmt
    }
    return .journald
  }
}

extension LogWriter.State {
  /// False: the line is left out. Errors are never.
  fileprivate mutating func admit(_ entry: inout LogRecord, second: Int64) -> Bool {
    guard entry.level < .error else { return true }
    // Messages are few and fixed; texts of a plug-in's need not be.
    if counts.count >= 1000 { counts = counts.filter { $0.value.second == second } }
    var count = counts[entry.message] ?? LogWriter.Count(second: second)
    let linesMax =
      entry.message == LogWriter.accessMessage ? LogWriter.accessLinesPerSecondMax : LogWriter.linesPerSecondMax
    if count.second != second { count = LogWriter.Count(second: second, suppressed: count.suppressed) }
    defer { counts[entry.message] = count }
    guard count.lines < linesMax else {
      count.suppressed += 1
      return false
    }
    count.lines += 1
    if count.suppressed > 0 {
      entry.fields.append(.init("suppressed", "\(count.suppressed)"))
      count.suppressed = 0
    }
    return true
  }
}

/// A line of the log where no writer is at hand: the process is about to end.
package func logLine(_ text: String) {
  LogWriter.writeToStandardError(
    LogFormat.logfmt.line(LogRecord(level: .warning, message: text), time: SystemClock().now()))
}

extension LogSettings {
  package func writer(environment: [String: String], clock: any Clock = SystemClock()) -> LogWriter {
    LogWriter(level: level, format: format ?? LogWriter.format(environment: environment), clock: clock)
  }
}
