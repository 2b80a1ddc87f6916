import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Where the tool writes: a story or a table for people, one JSON object for scripts, errors on standard error, a
/// progress line on a terminal only.
public struct Terminal: Sendable {
  /// One JSON object on standard output, and nothing else there.
  public let isJSON: Bool
  /// No progress and no story.
  public let isQuiet: Bool
  private let hasColour: Bool
  /// Of the terminal, in characters; nil where standard output is none.
  private let width: Int?
  private let showsProgress: Bool
  private let state = TerminalState()
  /// How fast what is under way goes on.
  let pace = Pace()

  /// Looks at the process's standard output and standard error. Colours and progress lines are for terminals.
  ///
  /// - Parameter environment: `NO_COLOR`, and `TERM` where it is `dumb`, turn colours off.
  public init(isJSON: Bool, isQuiet: Bool, environment: [String: String]) {
    self.isJSON = isJSON
    self.isQuiet = isQuiet
    let isPlain = environment["NO_COLOR"] != nil || environment["TERM"] == "dumb"
    width = terminalWidth()
    hasColour = !isPlain && !isJSON && isatty(1) == 1
    showsProgress = !isQuiet && !isJSON && isatty(2) == 1 && environment["TERM"] != "dumb"
  }

  /// Nobody reads standard output any more (`salvor sync --watch | head`).
  public var isAbandoned: Bool { state.isAbandoned }

  /// What is wrong with standard output, in the system's words; nil: all that was written went there, or nobody reads it any more.
  var outputFailure: String? { state.failure.map { String(cString: strerror($0)) } }

  /// A line of the story; nothing with `--json` or `--quiet`.
  public func say(_ text: String) {
    guard !isJSON, !isQuiet else { return }
    endProgress()
    write(text + "\n", to: 1)
  }

  /// A line that was asked for, with `--quiet` too; nothing with `--json`.
  public func print(_ text: String) {
    guard !isJSON else { return }
    endProgress()
    write(text + "\n", to: 1)
  }

  /// The one JSON object.
  public func json(_ value: JSONValue) {
    guard isJSON else { return }
    write(value.text + "\n", to: 1)
  }

  /// A line on standard error, with `--json` and `--quiet`, too.
  public func error(_ text: String) {
    endProgress()
    write(text + "\n", to: 2)
  }

  /// The text in bold, where colours are shown.
  public func bold(_ text: String) -> String { hasColour ? "\u{1B}[1m\(text)\u{1B}[0m" : text }
  /// The text in green, where colours are shown.
  public func green(_ text: String) -> String { hasColour ? "\u{1B}[32m\(text)\u{1B}[0m" : text }
  /// The text in red, where colours are shown.
  public func red(_ text: String) -> String { hasColour ? "\u{1B}[31m\(text)\u{1B}[0m" : text }

  /// A table with a heading, columns as wide as their widest cell, on a terminal as `TableLayout` fits it in.
  public func table(_ heading: [String], _ rows: [[String]]) {
    guard !isJSON else { return }
    endProgress()
    let layout = TableLayout(heading, rows, width: width)
    if let heading = layout.heading { write(bold(heading) + "\n", to: 1) }
    for line in layout.lines { write(line + "\n", to: 1) }
  }

  /// One changing line, on a terminal only, at most ten times a second.
  public func progress(_ text: String) {
    guard showsProgress, state.mayShow() else { return }
    write("\r\u{1B}[K\(text)", to: 2)
  }

  /// A bar for a share of 0 to 1.
  public func progress(_ title: String, share: Double, rest: String = "") {
    let full = Int((max(0, min(1, share)) * 30).rounded())
    let bar = String(repeating: "█", count: full) + String(repeating: "░", count: 30 - full)
    progress("\(title) \(bar) \(Int(share * 100)) %\(rest.isEmpty ? "" : ", \(rest)")")
  }

  /// Takes the progress line away. What else is written does so itself, but for `json`.
  public func endProgress() {
    if showsProgress, state.end() { write("\r\u{1B}[K", to: 2) }
  }

  private func write(_ text: String, to descriptor: Int32) {
    var bytes = Array(text.utf8)[...]
    while !bytes.isEmpty {
      let count = bytes.withUnsafeBytes { systemWrite(descriptor, $0.baseAddress, $0.count) }
      if count > 0 {
        bytes = bytes.dropFirst(count)
      } else if count < 0, errno == EINTR {
        continue
      } else if count < 0, errno == EAGAIN {
        // Somebody made the pipe non-blocking: wait until it takes more.
        var ready = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        _ = poll(&ready, 1, -1)
      } else {
        if descriptor == 1 { errno == EPIPE ? state.abandon() : state.fail(errno) }
        return
      }
    }
  }
}

private func terminalWidth() -> Int? {
  var size = winsize()
  guard isatty(1) == 1, ioctl(1, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return nil }
  return Int(size.ws_col)
}

private func systemWrite(_ descriptor: Int32, _ base: UnsafeRawPointer?, _ count: Int) -> Int {
  #if canImport(Glibc)
    Glibc.write(descriptor, base, count)
  #else
    Darwin.write(descriptor, base, count)
  #endif
}

private final class TerminalState: Sendable {
  private struct State {
    var isShown = false
    var lastShown: Int64 = 0
    var isAbandoned = false
    var failure: Int32?
  }
  private let state = Mutex(State())

  func mayShow() -> Bool {
    let now = SystemClock().now()
    return state.withLock { state in
      guard now - state.lastShown >= 100 else { return false }
      state.lastShown = now
      state.isShown = true
      return true
    }
  }

  var isAbandoned: Bool { state.withLock { $0.isAbandoned } }

  func abandon() { state.withLock { $0.isAbandoned = true } }

  /// The number of the first error.
  var failure: Int32? { state.withLock { $0.failure } }

  func fail(_ error: Int32) { state.withLock { $0.failure = $0.failure ?? error } }

  func end() -> Bool {
    state.withLock { state in
      defer { state.isShown = false }
      return state.isShown
    }
  }
}

/// 1234567 as 1,234,567.
func grouped(_ number: Int64) -> String {
  var out = ""
  for (index, digit) in String(number.magnitude).reversed().enumerated() {
    if index > 0, index % 3 == 0 { out.append(",") }
    out.append(digit)
  }
  return (number < 0 ? "-" : "") + String(out.reversed())
}

/// 1536 as 1.5 KB.
func bytes(_ number: Int64) -> String {
  if number < 1000 { return "\(number) B" }
  var value = Double(number) / 1000
  for unit in ["KB", "MB", "GB"] {
    if value < 1000 || unit == "GB" { return "\((value * 10).rounded() / 10) \(unit)" }
    value /= 1000
  }
  return "\(number) B"
}
