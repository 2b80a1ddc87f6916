import Foundation
import SalvorModel
import SalvorWire
import Testing

/// The built `salvor-simulate`, as `Tools/simulate` runs it: its process has the fixed order of sets that the same trace
/// needs, whatever this one has.
struct SimulateProcess {
  var code: Int32
  var out: String

  var json: JSONValue { get throws { try JSONValue(parsing: Array(out.utf8)) } }

  /// Beside the tests, where the build puts executables.
  private static var executable: URL {
    let test =
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
    return URL(fileURLWithPath: test).deletingLastPathComponent().appendingPathComponent("salvor-simulate")
  }

  /// Runs it to its end, on one core.
  static func run(_ arguments: String...) throws -> SimulateProcess { try run(arguments) }

  static func run(_ arguments: [String]) throws -> SimulateProcess {
    let file = FileManager.default.temporaryDirectory.appendingPathComponent("simulate-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: file) }
    _ = FileManager.default.createFile(atPath: file.path, contents: nil)
    let process = Process()
    process.executableURL = executable
    process.arguments = arguments
    process.standardOutput = try FileHandle(forWritingTo: file)
    try process.run()
    process.waitUntilExit()
    return SimulateProcess(
      code: process.terminationStatus, out: try String(contentsOf: file, encoding: .utf8))
  }
}
