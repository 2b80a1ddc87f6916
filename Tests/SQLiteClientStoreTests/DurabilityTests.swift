import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What has to outlive a power cut is synced before anything is sent (semantics 5 and 9).
@Suite struct DurabilityTests {
  /// The files synced by `body`, by what follows the database's path.
  private func synced(_ path: String, _ body: () async throws -> Void) async throws -> [String] {
    _ = SyncWatch.take(path)
    try await FileSystem.$disk.withValue(Watch { SyncWatch.note($0) }) { try await body() }
    return SyncWatch.take(path).map { String($0.dropFirst(path.count)) }
  }

  @Test(
    "a new current sequence ID is committed with full durability, then the identity file is synced, before a byte is sent"
  )
  func currentSequence() async throws {
    SyncWatch.install()
    let bench = try await StoreBench(ApplyTests.seats)
    try bench.write("INSERT INTO seat VALUES ('a', 1, NULL)")
    let found = try await synced(bench.path) { _ = try await bench.store.beginSession(groups: nil) }
    let wal = try #require(found.firstIndex(of: "-wal"), "the commit was not synced: \(found)")
    let identity = try #require(
      found.firstIndex(of: ".salvor-identity.new"), "the identity file was not synced: \(found)")
    #expect(wal < identity)
    await bench.store.endSession()
  }

  @Test("a session with nothing to send syncs nothing")
  func nothingToSend() async throws {
    SyncWatch.install()
    let bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    let found = try await synced(bench.path) { _ = try await bench.store.beginSession(groups: nil) }
    #expect(found == [])
    await bench.store.endSession()
  }

  @Test("the journal is synced each time it is written, and its folder when it is put in place or removed")
  func journal() async throws {
    SyncWatch.install()
    let bench = try await StoreBench(ApplyTests.seats)
    let folder = String(bench.path[..<(bench.path.lastIndex(of: "/") ?? bench.path.startIndex)])
    let seen = Seen()
    try await FileSystem.$disk.withValue(Watch { seen.add($0) }) {
      try await bench.store.setJournal([0x7B, 0x7D])
      #expect(seen.take() == [bench.path + ".salvor-recovery.new", folder])
      try await bench.store.setJournal(nil)
      #expect(seen.take() == [folder])
    }
  }

  @Test("a file that cannot be synced is an error, not a success")
  func cannotBeWritten() throws {
    #expect(throws: SalvorError.self) { try DurableFile.write([1], to: "/nowhere/at/all", "identity file") }
  }
}

/// Is told of each file and folder when it is synced.
private struct Watch: FileSystem.Disk {
  let note: @Sendable (String) -> Void

  func ask(_ call: FileSystem.Call) -> Int32 {
    switch call {
    case .sync(let path): note(path)
    case .syncFolder(let path): note(FileSystem.folder(of: path))
    default: break
    }
    return 0
  }
}

private final class Seen: Sendable {
  private let paths = Mutex<[String]>([])
  func add(_ path: String) { paths.withLock { $0.append(path) } }
  func take() -> [String] {
    paths.withLock { paths in
      defer { paths = [] }
      return paths
    }
  }
}
