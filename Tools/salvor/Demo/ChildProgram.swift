@preconcurrency import Dispatch
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A program run as a process of its own, as a person would run it in another terminal.
struct ChildProgram: Sendable {
  struct Result: Sendable {
    /// The exit code; 128 and the signal's number where a signal ended it.
    var code: Int32
    var out: String
  }

  let pid: pid_t
  private let output: Int32

  /// Starts `path`; its standard output is read through a pipe, its standard error goes to `log`.
  init(_ path: String, _ arguments: [String], log: String) throws {
    var ends: [Int32] = [0, 0]
    guard pipe(&ends) == 0 else { throw ChildProgram.failure(path, errno) }
    // The read end must not be inherited: a child that holds it would keep others' pipes alive.
    _ = fcntl(ends[0], F_SETFD, FD_CLOEXEC)
    #if canImport(Darwin)
      var actions: posix_spawn_file_actions_t?
    #else
      var actions = posix_spawn_file_actions_t()
    #endif
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1)
    posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_APPEND, 0o644)
    posix_spawn_file_actions_addclose(&actions, ends[1])
    var words: [UnsafeMutablePointer<CChar>?] = ([path] + arguments).map { strdup($0) }
    defer { for word in words { free(word) } }
    words.append(nil)
    var child: pid_t = 0
    let code = posix_spawn(&child, path, &actions, nil, words, environ)
    close(ends[1])
    guard code == 0 else {
      close(ends[0])
      throw ChildProgram.failure(path, code)
    }
    pid = child
    output = ends[0]
  }

  /// Runs it to its end.
  static func run(_ path: String, _ arguments: [String], log: String) async throws -> Result {
    try await ChildProgram(path, arguments, log: log).result()
  }

  /// Its first line of output, as soon as it is there; nil: it ended without one.
  func firstLine() async -> String? {
    let output = output
    return await onDispatchThread {
      var bytes: [UInt8] = []
      var byte: UInt8 = 0
      while read(output, &byte, 1) == 1 {
        if byte == 0x0A { return String(decoding: bytes, as: UTF8.self) }
        bytes.append(byte)
      }
      return nil
    }
  }

  /// Waits for its end.
  func result() async -> Result {
    let output = output
    let pid = pid
    return await onDispatchThread {
      var bytes: [UInt8] = []
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      while true {
        let count = read(output, &buffer, buffer.count)
        if count <= 0 { break }
        bytes += buffer[..<count]
      }
      close(output)
      var status: Int32 = 0
      while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
      let signal = status & 0x7F
      return Result(
        code: signal == 0 ? (status >> 8) & 0xFF : 128 + signal, out: String(decoding: bytes, as: UTF8.self))
    }
  }

  func terminate() { _ = kill(pid, SIGTERM) }

  private static func failure(_ path: String, _ code: Int32) -> SalvorError {
    SalvorError(.failed, "\(path) cannot be run: \(String(cString: strerror(code))).")
  }

  /// A program of this name on the PATH.
  static func find(_ name: String) -> String? {
    guard let path = getenv("PATH") else { return nil }
    for folder in String(cString: path).split(separator: ":") where access("\(folder)/\(name)", X_OK) == 0 {
      return "\(folder)/\(name)"
    }
    return nil
  }

  /// The file of the running program.
  static func own() -> String {
    var buffer = [CChar](repeating: 0, count: 4096)
    let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
    guard count > 0 else { return CommandLine.arguments[0] }
    return String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

/// Blocking calls go to a thread of their own, never to the cooperative pool.
private func onDispatchThread<Result: Sendable>(_ work: @escaping @Sendable () -> Result) async -> Result {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async { continuation.resume(returning: work()) }
  }
}
