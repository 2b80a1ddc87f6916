import Foundation
import SalvorClientEngine
import Testing

/// The server's snapshots, as files and as figures.
extension Fleet {
  /// Asks once, so that the file is made, and waits until it is there.
  @discardableResult
  func warm(_ name: String = "first", credentials: String? = nil, count: Int = 1) async throws -> Device {
    let first = try device(name, credentials: credentials)
    #expect(try await first.sync().error == nil)
    try await until { snapshots.count >= count }
    return first
  }

  var snapshotFolder: String { serverPath + "-snapshots" }

  /// The IDs of those that are offered.
  var snapshots: [String] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: snapshotFolder)) ?? []
    return names.filter { $0.hasSuffix(".json") }.map { String($0.dropLast(5)) }.sorted()
  }

  func snapshotFile(_ id: String) throws -> String {
    let names = try FileManager.default.contentsOfDirectory(atPath: snapshotFolder)
    return snapshotFolder + "/" + (try #require(names.first { $0.hasPrefix(id + ".") && !$0.hasSuffix(".json") }))
  }

  /// What devices have beside their databases.
  func snapshotLeftovers() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory).filter { $0.contains(".db-snapshot-") }
  }

  /// Since the server's start.
  var snapshotsSent: Int64 { server?.engine.metrics.snapshotsSent.value ?? 0 }
}

func until(_ holds: () throws -> Bool) async throws {
  for _ in 0..<3000 {
    if try holds() { return }
    try await Task.sleep(for: .milliseconds(20))
  }
  Issue.record("what was waited for did not come")
}
