import Foundation
import Testing

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
final class ChildProcess: Sendable {
  private let process: Process
  private let outFile: URL
  private let errFile: URL
  private let finished: AsyncStream<Void>

  /// Starts `command`, a path or a name to look up.
  init(
    _ command: String, _ arguments: [String], directory: URL, environment: [String: String] = [:],
    input: String? = nil
  ) throws {
    process = Process()
    if command.hasPrefix("/") {
      process.executableURL = URL(fileURLWithPath: command)
      process.arguments = arguments
    } else {
      process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      process.arguments = [command] + arguments
    }
    process.currentDirectoryURL = directory
    var all = ProcessInfo.processInfo.environment
    all["SALVOR_TOKEN"] = nil
    all.merge(environment) { $1 }
    process.environment = all
    let name = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-out-\(UUID().uuidString)")
    outFile = name.appendingPathExtension("out")
    errFile = name.appendingPathExtension("err")
    for file in [outFile, errFile] { _ = FileManager.default.createFile(atPath: file.path, contents: nil) }
    process.standardOutput = try FileHandle(forWritingTo: outFile)
    process.standardError = try FileHandle(forWritingTo: errFile)
    if let input {
      let inFile = name.appendingPathExtension("in")
      try input.write(to: inFile, atomically: false, encoding: .utf8)
      process.standardInput = try FileHandle(forReadingFrom: inFile)
      try FileManager.default.removeItem(at: inFile)
    } else {
      process.standardInput = FileHandle.nullDevice
    }
    let (finished, continuation) = AsyncStream<Void>.makeStream()
    self.finished = finished
    process.terminationHandler = { _ in continuation.finish() }
    try process.run()
  }

  deinit {
    if process.isRunning { Foundation.kill(process.processIdentifier, SIGKILL) }
    for file in [outFile, errFile] { try? FileManager.default.removeItem(at: file) }
  }

  var isRunning: Bool { process.isRunning }

  /// The most memory it has held so far, in kilobytes; nil where the system does not say.
  var peakKilobytes: Int? {
    let status = try? String(contentsOfFile: "/proc/\(process.processIdentifier)/status", encoding: .utf8)
    let line = status?.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
    return line.flatMap { Int($0.split(separator: " ").dropLast().last ?? "") }
  }

  var out: String { (try? String(contentsOf: outFile, encoding: .utf8)) ?? "" }
  var err: String { (try? String(contentsOf: errFile, encoding: .utf8)) ?? "" }

  /// Sends a signal; SIGKILL ends it at whatever instruction it is.
  func signal(_ number: Int32) {
    if process.isRunning { Foundation.kill(process.processIdentifier, number) }
  }

  /// Waits for its end.
  func output() async -> Output {
    for await _ in finished {}
    process.waitUntilExit()
    let code =
      process.terminationReason == .uncaughtSignal ? 128 + process.terminationStatus : process.terminationStatus
    return Output(code: code, out: out, err: err)
  }

  /// Waits until its standard output holds a line that begins with `prefix`, and gives the rest of that line.
  func line(after prefix: String) async throws -> String {
    for _ in 0..<1500 {
      let text = out
      if let line = text.split(separator: "\n").first(where: { $0.hasPrefix(prefix) }), text.hasSuffix("\n") {
        return String(line.dropFirst(prefix.count))
      }
      if !process.isRunning { break }
      try await Task.sleep(for: .milliseconds(20))
    }
    throw Unexpected("no line \"\(prefix)…\" came.\nstandard output: \(out)\nstandard error: \(err)")
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

  static func has(_ program: String) -> Bool {
    (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").contains {
      FileManager.default.isExecutableFile(atPath: "\($0)/\(program)")
    }
  }

  /// The root of the repository.
  static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent()
}
