import GzipCompression
import HTTPClientTransport
import SQLiteClientStore
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorTransport

/// When devices are looked at.
enum LoadPhase: String, Sendable {
  /// Before anybody attacks.
  case before
  case measured = ""
  /// While the server is told to end.
  case ending

  /// A kind's name in the figures.
  func name(_ kind: DeviceKind) -> String { self == .measured ? kind.rawValue : "\(kind.rawValue) \(rawValue)" }
}

/// Rows that a server has acknowledged.
final class Acknowledged: Sendable {
  private let rows = Mutex<[String]>([])
  func add(_ rows: [String]) { self.rows.withLock { $0 += rows } }
  var all: [String] { rows.withLock { $0 } }
}

/// Devices in one process: each has the real engine and the real store, in memory, and speaks over the transports that all
/// share. What it writes nobody else sees: a thousand devices cost what they do, not what the others have done.
struct Devices: Sendable {
  let options: LoadOptions
  let schema: Schema
  let transports: [HTTPClientTransport]
  let figures: Figures
  let acknowledged: Acknowledged
  let phase: LoadPhase
  /// Nothing begins after it.
  let end: ContinuousClock.Instant

  init(
    _ options: LoadOptions, schema: Schema, url: String, figures: Figures, acknowledged: Acknowledged,
    phase: LoadPhase = .measured, seconds: Double
  ) throws {
    self.options = options
    self.schema = schema
    self.figures = figures
    self.acknowledged = acknowledged
    self.phase = phase
    end = ContinuousClock.now + .seconds(seconds)
    let count = min(8, max(1, options.devices / 16))
    transports = try (0..<count).map { _ in try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url))) }
  }

  func run() async {
    if options.devices == 0 { try? await Task.sleep(until: end, clock: .continuous) }
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<options.devices { group.addTask { await live(number) } }
    }
    for transport in transports { await transport.close() }
  }

  private func live(_ number: Int) async {
    var draws = Draws(options.seed &* 1_000_003 &+ UInt64(number))
    let kind = options.honest[number % options.honest.count]
    // All devices together come to the rate.
    let pause = Double(options.devices) / options.rate
    var device = make(number)
    var written: [String] = []
    var told = 0
    try? await Task.sleep(for: .seconds(Double.random(in: 0..<max(0.001, pause), using: &draws)))
    while ContinuousClock.now < end {
      let start = ContinuousClock.now
      do {
        switch kind {
        case .first: device = make(number)
        case .idle: break
        case .small: try await write(device, number, &written, Int.random(in: 1...5, using: &draws))
        case .away: try await write(device, number, &written, 50)
        }
        let report = await device.attemptSync()
        if let error = report.error { throw error }
        guard report.refused == 0 else { throw Failure("\(report.refused) refused") }
        acknowledged.add(Array(written[told...]))
        told = written.count
        figures.add(phase.name(kind), milliseconds: milliseconds(since: start))
      } catch {
        figures.fail(phase.name(kind), (error as? SalvorError)?.code.rawValue ?? "\(error)")
      }
      let share = Double.random(in: 0.5..<1.5, using: &draws)
      let wake = start + .seconds(pause * share * (kind == .away ? 4 : 1))
      try? await Task.sleep(until: min(wake, end), clock: .continuous)
    }
  }

  private func make(_ number: Int) -> SalvorClient {
    SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: "device \(number)", store: SQLiteClientStore(path: ":memory:"),
        transport: transports[number % transports.count],
        credentials: credentialHeaders(["principal": "device \(number)"]), compressions: [GzipCompression()],
        uploadCompression: GzipCompression()))
  }

  private func write(_ device: SalvorClient, _ number: Int, _ written: inout [String], _ count: Int) async throws {
    // Its memos are of sites that it has.
    if written.isEmpty, let error = await device.attemptSync().error { throw error }
    var writes: [ApplicationWrite] = []
    var rows: [String] = []
    for place in written.count..<written.count + count {
      let id = "\(phase.rawValue)d\(number)-\(place)"
      rows.append(id)
      writes.append(
        .insert(
          table: "memo",
          values: [
            NamedValue("id", .text(id)), NamedValue("owner", .text("device \(number)")),
            NamedValue("site_id", .text("s\(1 + place % ServerUnderTest.sites)")),
            NamedValue("note", .text("Memo \(place) of device \(number)")),
          ]))
    }
    try await device.write(writes)
    written += rows
  }
}
