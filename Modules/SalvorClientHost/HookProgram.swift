@preconcurrency import Dispatch
import SalvorClientEngine
import SalvorConfiguration
import SalvorModel
import SalvorModuleKit

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A hook of the configuration file: a program that is told of a reset in its environment (semantics 9, *Callbacks*).
///
/// | variable | holds |
/// | --- | --- |
/// | `SALVOR_HOOK` | `beforeReset` or `afterReset` |
/// | `SALVOR_DATABASE` | the live database; before a reset to be read only |
/// | `SALVOR_BEFORE` | after a reset: a copy of the database as it was |
/// | `SALVOR_REASON`, `SALVOR_STRATEGY` | why, and which strategy runs or ran |
/// | `SALVOR_RECOVERY` | the recovery's ID, the same for both |
///
/// Its output goes to standard error; the end of it is in the error where it fails. One that ends with another code than 0, or that runs longer than its time, has
/// failed; it is ended with all processes that it has started. A file that somebody is still writing is waited for, as long.
struct HookProgram: Sendable {
  var name: String
  var path: String
  var timeoutSeconds: Int64

  func run(_ notice: RecoveryConfiguration.Notice) async throws {
    var variables = processEnvironment()
    variables["SALVOR_HOOK"] = name
    variables["SALVOR_DATABASE"] = notice.database
    variables["SALVOR_BEFORE"] = notice.before
    variables["SALVOR_REASON"] = notice.reason.rawValue
    variables["SALVOR_STRATEGY"] = notice.strategy
    variables["SALVOR_RECOVERY"] = notice.id
    let (seconds, told) = (timeoutSeconds, variables)
    let (status, said) = try await withCheckedThrowingContinuation { continuation in
      DispatchQueue.global().async {
        continuation.resume(
          with: Result {
            let (child, output) = try spawn(told)
            return Self.wait(for: child, output, seconds: seconds)
          })
      }
    }
    guard let status else { throw failure("ran longer than \(seconds) s and was ended", said) }
    let signal = status & 0x7F
    guard signal == 0 else { throw failure("was ended by signal \(signal)", said) }
    let code = (status >> 8) & 0xFF
    guard code == 0 else { throw failure("ended with code \(code)", said) }
  }

  /// Its process, and what it says.
  private func spawn(_ variables: [String: String]) throws -> (child: StartedProgram, output: Int32) {
    var pipes: [Int32] = [-1, -1]
    guard pipe(&pipes) == 0 else { throw failure("cannot be run: \(String(cString: strerror(errno)))", "") }
    for end in pipes { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    _ = fcntl(pipes[0], F_SETFL, O_NONBLOCK)
    defer { close(pipes[1]) }
    do {
      // Standard output is the command's own.
      let said = StartedProgram.Stream.descriptor(pipes[1])
      return (
        try StartedProgram(
          path: path, environment: variables, input: .nothing, output: said, errors: said, busySeconds: timeoutSeconds),
        pipes[0]
      )
    } catch {
      close(pipes[0])
      throw failure("cannot be run: \((error as? StartedProgram.Failure)?.words ?? "")", "")
    }
  }

  /// Its status (nil: its time was over), and the end of what it said, which goes to standard error meanwhile.
  private static func wait(for child: StartedProgram, _ output: Int32, seconds: Int64) -> (status: Int32?, said: String)
  {
    let turn: UInt32 = 10_000
    var turns = seconds * 1_000_000 / Int64(turn)
    var status: Int32 = 0
    var tail: [UInt8] = []
    defer { close(output) }
    while true {
      let found = waitpid(child.process, &status, turns > 0 ? WNOHANG : 0)
      passOn(output, &tail)
      if found == child.process { return (turns > 0 ? status : nil, text(tail)) }
      if found < 0 && errno != EINTR { return (127 << 8, text(tail)) }
      turns -= 1
      if turns == 0 { child.kill() } else { usleep(turn) }
    }
  }

  /// What is there now; what a process that outlives the hook says later is not read.
  private static func passOn(_ output: Int32, _ tail: inout [UInt8]) {
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    // At most what a pipe holds: a hook that never stops saying something is ended by its time.
    for _ in 0..<16 {
      let count = read(output, &bytes, bytes.count)
      guard count > 0 else { return }
      _ = write(2, bytes, count)
      tail = Array((tail + bytes.prefix(count)).suffix(saidBytesMax))
    }
  }

  private static let saidBytesMax = 500

  /// On one line, without what would move a terminal's cursor.
  private static func text(_ tail: [UInt8]) -> String {
    String(decoding: tail, as: UTF8.self).split { $0.isNewline }.map { line in
      String(line.filter { !($0.unicodeScalars.contains { $0.properties.generalCategory == .control }) })
    }.filter { !$0.isEmpty }.joined(separator: " / ")
  }

  /// - Parameter said: the end of its output.
  private func failure(_ what: String, _ said: String) -> SalvorError {
    SalvorError(
      .failed, "The program of \(name) \(what) (\(path))\(said.isEmpty ? "." : ": \(said)")",
      context: ["hook": name])
  }
}
