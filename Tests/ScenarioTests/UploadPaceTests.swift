import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorTransport
import Testing

/// How many requests a large upload takes (decision 146).
@Suite("A large upload takes few requests where chunks arrive quickly, and small chunks where they do not")
struct UploadPaceTests {
  /// Goes on by so much with each look.
  private final class StepClock: Clock {
    private let time = Mutex<Int64>(1_700_000_000_000)
    private let step: Int64
    init(step: Int64) { self.step = step }
    func now() -> Int64 {
      time.withLock {
        $0 += step
        return $0
      }
    }
    func sleep(milliseconds: Int64) async throws { try await SystemClock().sleep(milliseconds: milliseconds) }
  }

  /// The sizes of what was sent as chunks.
  private final class Chunks: Sendable {
    private let state = Mutex<[Int]>([])
    var sizes: [Int] { state.withLock { $0 } }
    func note(_ size: Int) { state.withLock { $0.append(size) } }
  }

  private struct WatchingTransport: ClientTransport {
    let base: any ClientTransport
    let chunks: Chunks
    func send(_ request: TransportRequest) async throws -> TransportResponse {
      if request.method == "PUT" { chunks.note(request.contentLength ?? 0) }
      return try await base.send(request)
    }
    func close() async { await base.close() }
  }

  private func device(_ fleet: Fleet, step: Int64, _ chunks: Chunks) async throws -> Device {
    let device = try fleet.device("step\(step)") { configuration in
      configuration.clock = StepClock(step: step)
      configuration.compressions = []
      configuration.transport = WatchingTransport(base: configuration.transport, chunks: chunks)
    }
    #expect(try await device.sync().error == nil)
    try await device.write(
      """
      WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
      INSERT INTO site (id, name) SELECT 's' || i, hex(randomblob(2000)) FROM n
      """)
    return device
  }

  @Test("10 MB are six requests: the begin, a first chunk, those of 4 MiB, and the one that has it processed")
  func quick() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let chunks = Chunks()
    let device = try await device(fleet, step: 0, chunks)
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 2500)
    #expect(report.roundTrips <= 6, "\(report.roundTrips)")
    #expect(chunks.sizes.max() ?? 0 > 4_000_000, "\(chunks.sizes)")
    try fleet.expectEqual(["site"], [device])
  }

  @Test("Where a chunk takes half a minute none is larger than the first, and a cut in the middle goes on where it was")
  func slow() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let chunks = Chunks()
    let device = try await device(fleet, step: 30_000, chunks)
    // The begin and twenty chunks.
    fleet.faults.pass(21)
    fleet.faults.inject(.loseAnswer)
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 2500)
    #expect(fleet.faults.left == 0)
    #expect(chunks.sizes.max() ?? 0 < 300_000, "\(chunks.sizes)")
    // The one whose answer was lost had arrived.
    let all = try #require(chunks.sizes.isEmpty ? nil : chunks.sizes.reduce(0, +))
    #expect(all < 10_700_000, "\(all)")
    try fleet.expectEqual(["site"], [device])
  }
}
