import Foundation
import SalvorModel

#if canImport(Glibc)
  import Glibc
#endif

/// What a finished process left.
struct Output: Sendable {
  /// The exit code; 128 and the signal's number where a signal ended it.
  var code: Int32
  var out: String
  var err: String

  /// Standard output as the one JSON object it must be.
  var json: JSON {
    get throws { try JSON(parsing: out) }
  }
}

/// A process of its own, with its output in files, so that nothing waits for a full pipe.
///
/// Spawned and waited for by the system's own calls: Foundation's `Process` was seen to miss the end of a child where
/// many sockets come and go at the same time.
final class ChildProcess: Sendable {
  private enum Phase {
    case running([CheckedContinuation<Int32, Never>])
    case ended(Int32)
  }

  private let phase = Mutex(Phase.running([]))
  private let pid: pid_t
  private let outFile: URL
  private let errFile: URL

  /// Starts `command`, a path or a name to look up.
  init(_ command: String, _ arguments: [String], directory: URL, environment: [String: String] = [:]) throws {
    let name = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-out-\(UUID().uuidString)")
    outFile = name.appendingPathExtension("out")
    errFile = name.appendingPathExtension("err")
    var all = ProcessInfo.processInfo.environment
    all["SALVOR_TOKEN"] = nil
    all.merge(environment) { $1 }
    pid = try ChildProcess.spawn(
      [command] + arguments, in: directory.path, environment: all.map { "\($0)=\($1)" }, out: outFile.path,
      err: errFile.path)
    let pid = pid
    Thread.detachNewThread { [weak self] in
      var status: Int32 = 0
      while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
      let signal = status & 0x7F
      self?.end(signal == 0 ? (status >> 8) & 0xFF : 128 + signal)
    }
  }

  deinit {
    signal(SIGKILL)
    for file in [outFile, errFile] { try? FileManager.default.removeItem(at: file) }
  }

  var isRunning: Bool {
    phase.withLock { if case .running = $0 { true } else { false } }
  }

  /// The most memory it has held so far, in kilobytes; nil where the system does not say.
  var peakKilobytes: Int? {
    let status = try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
    let line = status?.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
    return line.flatMap { Int($0.split(separator: " ").dropLast().last ?? "") }
  }

  var out: String { (try? String(contentsOf: outFile, encoding: .utf8)) ?? "" }
  var err: String { (try? String(contentsOf: errFile, encoding: .utf8)) ?? "" }

  /// Sends a signal; SIGKILL ends it at whatever instruction it is.
  func signal(_ number: Int32) {
    phase.withLock { if case .running = $0 { _ = Foundation.kill(pid, number) } }
  }

  /// Waits for its end.
  func output() async -> Output {
    let code = await withCheckedContinuation { continuation in
      let ended = phase.withLock { phase -> Int32? in
        switch phase {
        case .ended(let code): return code
        case .running(let waiting):
          phase = .running(waiting + [continuation])
          return nil
        }
      }
      if let ended { continuation.resume(returning: ended) }
    }
    return Output(code: code, out: out, err: err)
  }

  private func end(_ code: Int32) {
    let waiting = phase.withLock { phase -> [CheckedContinuation<Int32, Never>] in
      guard case .running(let waiting) = phase else { return [] }
      phase = .ended(code)
      return waiting
    }
    for continuation in waiting { continuation.resume(returning: code) }
  }

  /// Waits until its standard output holds a line that begins with `prefix`, and gives the rest of that line.
  func line(after prefix: String) async throws -> String {
    for _ in 0..<6000 {
      let wasRunning = isRunning
      let text = out
      if let line = text.split(separator: "\n").first(where: { $0.hasPrefix(prefix) }), text.hasSuffix("\n") {
        return String(line.dropFirst(prefix.count))
      }
      if !wasRunning { break }
      try await Task.sleep(for: .milliseconds(20))
    }
    throw Unexpected("no line \"\(prefix)…\" came.\nstandard output: \(out)\nstandard error: \(err)")
  }

  private static func spawn(
    _ words: [String], in directory: String, environment: [String], out: String, err: String
  ) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    let command = ["/usr/bin/env", "-C", directory] + words
    var arguments = command.map { strdup($0) } + [nil]
    var variables = environment.map { strdup($0) } + [nil]
    defer { for text in arguments + variables { free(text) } }
    var pid: pid_t = 0
    let code = posix_spawn(&pid, command[0], &actions, nil, &arguments, &variables)
    guard code == 0 else { throw Unexpected("\(words[0]) cannot be run: \(String(cString: strerror(code)))") }
    return pid
  }
}

struct Unexpected: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}

/// The executable under test, built beside the test bundle.
enum Built {
  static let salvor: String = {
    let test =
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
    return URL(fileURLWithPath: test).deletingLastPathComponent().appendingPathComponent("salvor").path
  }()

  /// The last release's executable, named by SALVOR_PREVIOUS; nil: it is not here.
  static let previous = ProcessInfo.processInfo.environment["SALVOR_PREVIOUS"].flatMap {
    FileManager.default.isExecutableFile(atPath: $0) ? $0 : nil
  }

  static func has(_ program: String) -> Bool {
    (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").contains {
      FileManager.default.isExecutableFile(atPath: "\($0)/\(program)")
    }
  }

  /// The root of the repository.
  static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent()
}
