import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// One role in a process of its own, so that its memory and CPU are its own. Commands and answers are JSON lines on its
/// standard input and output. Closing its input ends it.
final class ChildProcess {
  private let pid: pid_t
  private let input: Int32
  private let output: UnsafeMutablePointer<FILE>
  private let name: String
  private var isEnded = false

  /// Starts this executable as `role NAME OPTIONS…`.
  ///
  /// - Parameter niceness: 0 (as this process) to 19: gets what others leave of the processors.
  init(role name: String, _ arguments: [String], niceness: Int32 = 0) throws {
    self.name = name
    var toChild: [Int32] = [0, 0]
    var fromChild: [Int32] = [0, 0]
    guard pipe(&toChild) == 0, pipe(&fromChild) == 0 else {
      throw SalvorError(.failed, "No pipe for a child process: \(String(cString: strerror(errno))).")
    }
    // A child must not keep its siblings' pipes open: they end by the end of their input.
    for end in toChild + fromChild { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    #if canImport(Darwin)
      var actions: posix_spawn_file_actions_t?
    #else
      var actions = posix_spawn_file_actions_t()
    #endif
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, toChild[0], 0)
    posix_spawn_file_actions_adddup2(&actions, fromChild[1], 1)
    let path = ChildProcess.executable
    var argv = ([path, "role", name] + arguments).map { strdup($0) }
    argv.append(nil)
    defer { argv.forEach { free($0) } }
    var pid: pid_t = 0
    let code = posix_spawn(&pid, path, &actions, nil, argv, environ)
    close(toChild[0])
    close(fromChild[1])
    guard code == 0, let output = fdopen(fromChild[0], "r") else {
      throw SalvorError(.failed, "\(path) could not be started as \(name): \(String(cString: strerror(code))).")
    }
    if niceness > 0 { setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(pid), niceness) }
    self.pid = pid
    self.input = toChild[1]
    self.output = output
  }

  deinit { end() }

  private static var executable: String {
    var buffer = [CChar](repeating: 0, count: 4096)
    let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
    if count > 0 { return String(decoding: buffer[0..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self) }
    return CommandLine.arguments[0]
  }

  /// Sends a command and waits for its answer. An answer with an `error` is thrown.
  @discardableResult
  func call(_ command: String, _ arguments: [(String, JSONValue)] = []) throws -> JSONValue {
    try send(command, arguments)
    return try answer(to: command)
  }

  /// Sends a command; `answer` waits for what comes of it.
  func send(_ command: String, _ arguments: [(String, JSONValue)] = []) throws {
    let message: JSONValue = .object(
      [.init("do", .string(command))] + arguments.map { .init($0.0, $0.1) })
    let line = message.bytes + [0x0A]
    var sent = 0
    while sent < line.count {
      let count = line[sent...].withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
      guard count > 0 else { throw SalvorError(.failed, "The \(name) process has ended.") }
      sent += count
    }
  }

  /// The next line of the child.
  func answer(to command: String) throws -> JSONValue {
    var line: UnsafeMutablePointer<CChar>?
    var capacity = 0
    let count = getline(&line, &capacity, output)
    defer { free(line) }
    guard count > 0, let line else {
      throw SalvorError(.failed, "The \(name) process ended at \"\(command)\".")
    }
    let bytes = UnsafeBufferPointer(start: line, count: count).map { UInt8(bitPattern: $0) }
    let answer = try JSONValue(parsing: bytes)
    if let error = answer["error"]?.string {
      throw SalvorError(.failed, "The \(name) process failed at \"\(command)\": \(error)")
    }
    return answer
  }

  /// Lets the child finish and waits for its end.
  func end() {
    guard !isEnded else { return }
    isEnded = true
    close(input)
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    fclose(output)
  }
}
