import SalvorModel
import SalvorModuleKit
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A module of another language: a program that is asked one line of JSON and answers one line (README.md). It is started by
/// the first question, and stays for the next ones.
public final class ModuleProgram: Sendable {
  private struct State {
    var program: StartedProgram?
    /// Both directions; -1: it does not run.
    var line: Int32 = -1
    var failures = 0
    /// It is not asked before.
    var restsUntil: ContinuousClock.Instant?
  }

  /// The program's file, as it was given to `init`.
  public let path: String
  private let arguments: [String]
  private let timeout: Duration
  private let state = Mutex(State())

  /// A longer answer is none.
  public static let answerBytesMax = 1 << 20
  /// One that fails so often in a row is left alone for a while: who waits for it may hold a database.
  private static let failuresMax = 3
  private static let rest = Duration.seconds(30)

  /// - Parameter timeoutSeconds: for one answer. The program is ended where it takes longer.
  public init(path: String, arguments: [String] = [], timeoutSeconds: Int64) {
    self.path = path
    self.arguments = arguments
    timeout = .seconds(timeoutSeconds)
  }

  deinit { state.withLock { Self.end(&$0) } }

  /// Asks, and waits for the answer. One question at a time.
  ///
  /// - Throws: `failed`, where the program cannot be run, ends, is silent for too long, answers what is no JSON object, or says
  ///   `{"error": "…"}`.
  public func ask(_ question: JSONValue) throws -> JSONValue {
    let answer = try state.withLock { state in
      if let rest = state.restsUntil, ContinuousClock.now < rest {
        throw failure("has failed \(state.failures) times in a row, and is not asked for 30 s")
      }
      do {
        if state.line < 0 { try start(&state) }
        let answer = try exchange(question, state.line)
        state.failures = 0
        state.restsUntil = nil
        return answer
      } catch {
        Self.end(&state)
        state.failures += 1
        if state.failures >= Self.failuresMax { state.restsUntil = .now + Self.rest }
        throw error
      }
    }
    if let why = answer["error"]?.string { throw failure("says: \(why)") }
    return answer
  }

  private func exchange(_ question: JSONValue, _ line: Int32) throws -> JSONValue {
    let deadline = ContinuousClock.now + timeout
    var left = (question.bytes + [0x0A])[...]
    while !left.isEmpty {
      try wait(line, Int16(POLLOUT), deadline)
      #if canImport(Darwin)
        let flags: Int32 = 0
      #else
        let flags = Int32(MSG_NOSIGNAL)
      #endif
      let count = left.withUnsafeBytes { send(line, $0.baseAddress, $0.count, flags) }
      if count > 0 { left = left.dropFirst(count) } else if !Self.isToBeRepeated { throw failure("has ended") }
    }
    var answer: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 14)
    while answer.last != 0x0A {
      try wait(line, Int16(POLLIN), deadline)
      let count = recv(line, &piece, piece.count, 0)
      if count > 0 {
        answer += piece[..<count]
      } else if count == 0 || !Self.isToBeRepeated {
        throw failure("has ended")
      }
      guard answer.count <= Self.answerBytesMax else { throw failure("answers more than 1 MiB") }
    }
    guard !answer.dropLast().contains(0x0A) else { throw failure("answers more than one line") }
    guard let value = try? JSONValue(parsing: Array(answer.dropLast())), value.members != nil else {
      throw failure("answers what is not one JSON object on one line")
    }
    return value
  }

  private func wait(_ line: Int32, _ what: Int16, _ deadline: ContinuousClock.Instant) throws {
    while true {
      let (seconds, attoseconds) = (deadline - .now).components
      let milliseconds = seconds * 1000 + attoseconds / 1_000_000_000_000_000
      guard milliseconds > 0 else {
        throw failure("gave no answer within \(timeout.components.seconds) s and was ended")
      }
      var waited = pollfd(fd: line, events: what, revents: 0)
      let found = poll(&waited, 1, Int32(clamping: milliseconds))
      if found > 0 { return }
      if found < 0, errno != EINTR { throw failure("cannot be waited for: \(String(cString: strerror(errno)))") }
    }
  }

  private static var isToBeRepeated: Bool { errno == EINTR || errno == EAGAIN }

  private func start(_ state: inout State) throws {
    var ends: [Int32] = [-1, -1]
    #if canImport(Darwin)
      let kind = SOCK_STREAM
    #else
      let kind = Int32(SOCK_STREAM.rawValue)
    #endif
    guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else {
      throw failure("cannot be run: \(String(cString: strerror(errno)))")
    }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
    #if canImport(Darwin)
      var on: Int32 = 1
      setsockopt(ends[0], SOL_SOCKET, SO_NOSIGPIPE, &on, socklen_t(MemoryLayout<Int32>.size))
    #endif
    defer { close(ends[1]) }
    do {
      let stream = StartedProgram.Stream.descriptor(ends[1])
      state.program = try StartedProgram(path: path, arguments: arguments, input: stream, output: stream)
      state.line = ends[0]
    } catch {
      close(ends[0])
      throw failure("cannot be run: \((error as? StartedProgram.Failure)?.words ?? "")")
    }
  }

  private static func end(_ state: inout State) {
    guard state.line >= 0 else { return }
    close(state.line)
    state.program?.end()
    (state.program, state.line) = (nil, -1)
  }

  private func failure(_ what: String) -> SalvorError {
    SalvorError(.failed, "The program \(path) \(what).", context: ["program": path])
  }
}

// MARK: - Options

extension ModuleProgram {
  /// The options that say which program it is.
  ///
  /// - Parameter timeout: seconds, by default.
  public static func options(timeout: Int64) -> [ModuleOption] {
    [
      ModuleOption("path", type: "string", default: nil, "the program; relative to the configuration file"),
      ModuleOption("arguments", type: "list of strings", default: "[]", "what it is started with"),
      ModuleOption("timeoutSeconds", type: "integer", default: "\(timeout)", "for one answer, 1 to 300"),
    ]
  }

  /// Nil where the options name none; the reader then holds why.
  public static func read(
    _ reader: inout OptionReader, _ context: ModuleContext, timeout: Int64
  ) -> (@Sendable () -> ModuleProgram)? {
    let path = reader.path("path").map(context.resolve)
    let arguments = reader.strings("arguments", default: [])
    let seconds = reader.integer("timeoutSeconds", in: 1...300, default: timeout)
    guard let path else { return nil }
    if access(path, X_OK) != 0 { reader.warn("path", "names no file that can be run") }
    return { ModuleProgram(path: path, arguments: arguments, timeoutSeconds: seconds) }
  }
}
