import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A program that was started, in a process group of its own, so that it can be ended with all processes that it has started: a
/// hook, or a module in another language.
public struct StartedProgram: Sendable, Hashable {
  /// Its process ID, which is the ID of its process group, too.
  public let process: Int32

  /// Why it could not be started, in the system's words.
  public struct Failure: Error, Hashable {
    /// For a person, e.g. `No such file or directory`.
    public var words: String

    /// - Parameter code: what `posix_spawn` returned, or `errno`.
    public init(errno code: Int32) { words = String(cString: strerror(code)) }
  }

  /// What a standard stream of it is.
  public enum Stream: Sendable, Hashable {
    /// The one of this process.
    case inherited
    /// `/dev/null`, to read from.
    case nothing
    /// This descriptor, which stays open here.
    case descriptor(Int32)
  }

  /// - Parameters:
  ///   - environment: nil: that of this process.
  ///   - busySeconds: how long a program that somebody has open for writing is waited for; the thread waits.
  /// - Throws: `Failure`.
  public init(
    path: String, arguments: [String] = [], environment: [String: String]? = nil, input: Stream, output: Stream,
    errors: Stream = .inherited, busySeconds: Int64 = 2
  ) throws {
    #if canImport(Darwin)
      var actions: posix_spawn_file_actions_t?
      var attributes: posix_spawnattr_t?
    #else
      var actions = posix_spawn_file_actions_t()
      var attributes = posix_spawnattr_t()
    #endif
    posix_spawn_file_actions_init(&actions)
    posix_spawnattr_init(&attributes)
    defer {
      posix_spawn_file_actions_destroy(&actions)
      posix_spawnattr_destroy(&attributes)
    }
    for (place, stream) in [input, output, errors].enumerated() {
      switch stream {
      case .inherited: break
      case .nothing: posix_spawn_file_actions_addopen(&actions, Int32(place), "/dev/null", O_RDONLY, 0)
      case .descriptor(let descriptor): posix_spawn_file_actions_adddup2(&actions, descriptor, Int32(place))
      }
    }
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP))
    posix_spawnattr_setpgroup(&attributes, 0)
    var words: [UnsafeMutablePointer<CChar>?] = ([path] + arguments).map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] = (environment ?? [:]).map { strdup("\($0)=\($1)") } + [nil]
    defer { for text in words + variables { free(text) } }
    var child: pid_t = 0
    func spawn() -> Int32 {
      environment == nil
        ? posix_spawn(&child, path, &actions, &attributes, &words, environ)
        : posix_spawn(&child, path, &actions, &attributes, &words, &variables)
    }
    var code = spawn()
    // A program that somebody has just written is open for writing for a moment in a process that was being started then.
    for _ in 0..<busySeconds * 100 where code == ETXTBSY {
      usleep(10_000)
      code = spawn()
    }
    guard code == 0 else { throw Failure(errno: code) }
    process = child
  }

  /// Ends it with what it has started. It must be waited for then.
  public func kill() { _ = killProcess(-process, SIGKILL) }

  /// Ends it, and waits for its end.
  public func end() {
    kill()
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0, errno == EINTR {}
  }
}

private func killProcess(_ process: pid_t, _ signal: Int32) -> Int32 { kill(process, signal) }
