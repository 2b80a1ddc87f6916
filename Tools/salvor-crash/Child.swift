import Foundation

#if canImport(Glibc)
  import Glibc
#endif

/// A process of the salvor tool, with its output in a file.
final class Child {
  struct Ended {
    /// The exit code; nil: a signal ended it.
    var code: Int32?
    var out: String
  }

  private let pid: pid_t
  private let file: String
  private var ended: Ended?

  init(_ command: String, _ arguments: [String], in directory: String, output: String) throws {
    file = directory + "/" + output
    #if canImport(Darwin)
      var actions: posix_spawn_file_actions_t?
    #else
      var actions = posix_spawn_file_actions_t()
    #endif
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, file, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_adddup2(&actions, 1, 2)
    var words = (["/usr/bin/env", "-C", directory, command] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var pid: pid_t = 0
    guard posix_spawn(&pid, "/usr/bin/env", &actions, nil, &words, environ) == 0 else {
      throw Failure("\(command) cannot be run")
    }
    self.pid = pid
  }

  deinit { kill() }

  var out: String { (try? String(contentsOfFile: file, encoding: .utf8)) ?? "" }

  /// Waits at most so long for its end. False: it still runs.
  func hasEnded(within seconds: Double) -> Bool {
    let limit = Date().addingTimeInterval(seconds)
    while ended == nil {
      var status: Int32 = 0
      if waitpid(pid, &status, WNOHANG) == pid {
        ended = Ended(code: status & 0x7F == 0 ? (status >> 8) & 0xFF : nil, out: out)
      } else if Date() >= limit {
        return false
      } else {
        usleep(500)
      }
    }
    return true
  }

  func wait() throws -> Ended {
    guard hasEnded(within: 120), let ended else { throw Failure("a process does not end: \(out)") }
    return ended
  }

  /// SIGKILL: it ends at whatever instruction it is. False: it had ended before.
  @discardableResult
  func kill() -> Bool {
    if hasEnded(within: 0) { return false }
    Foundation.kill(pid, SIGKILL)
    _ = hasEnded(within: 60)
    return ended?.code == nil
  }

  /// Asks it to end, as an operator does.
  func terminate() throws {
    Foundation.kill(pid, SIGTERM)
    _ = try wait()
  }
}

struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}
