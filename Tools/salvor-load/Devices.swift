import GzipCompression
import HTTPClientTransport
import SQLiteClientStore
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorTransport

/// When devices are looked at.
enum LoadPhase: String, Sendable {
  /// Each device's first synchronization.
  case joining
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
  private let options: LoadOptions
  private let schema: Schema
  private let transports: [HTTPClientTransport]
  private let figures: Figures
  private let acknowledged: Acknowledged
  private let devices: [Device]

  /// One of them. It lives through all phases: its first synchronization is no part of what is measured.
  private actor Device {
    let number: Int
    let kind: DeviceKind
    var client: SalvorClient
    var draws: Draws
    var written: [String] = []
    var told = 0

    init(_ number: Int, _ kind: DeviceKind, _ client: SalvorClient, seed: UInt64) {
      (self.number, self.kind, self.client) = (number, kind, client)
      draws = Draws(seed &* 1_000_003 &+ UInt64(number))
    }

    func drawn(_ range: Range<Double>) -> Double { Double.random(in: range, using: &draws) }

    /// One synchronization. Throws where not all of it was taken.
    func sync() async throws {
      let report = await client.attemptSync()
      if let error = report.error { throw error }
      guard report.refused == 0 else { throw Failure("\(report.refused) refused") }
    }

    /// What it does once: writes, and synchronizes. Rows that the server has acknowledged for the first time.
    func turn(_ makeClient: (Int) -> SalvorClient) async throws -> [String] {
      switch kind {
      case .first: client = makeClient(number)
      case .idle: break
      case .small: try await write(Int.random(in: 1...5, using: &draws))
      case .away: try await write(50)
      }
      try await sync()
      defer { told = written.count }
      return Array(written[told...])
    }

    private func write(_ count: Int) async throws {
      let ids = (written.count..<written.count + count).map { "d\(number)-\($0)" }
      try await client.write(
        ids.enumerated().map { place, id in
          .insert(
            table: "memo",
            values: [
              NamedValue("id", .text(id)), NamedValue("owner", .text("device \(number)")),
              NamedValue("site_id", .text("s\(1 + place % ServerUnderTest.sites)")),
              NamedValue("note", .text("Memo \(id)")),
            ])
        })
      written += ids
    }
  }

  init(_ options: LoadOptions, schema: Schema, url: String, figures: Figures, acknowledged: Acknowledged) throws {
    self.options = options
    self.schema = schema
    self.figures = figures
    self.acknowledged = acknowledged
    let count = min(8, max(1, options.devices / 16))
    let transports = try (0..<count).map { _ in try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url))) }
    self.transports = transports
    devices = (0..<options.devices).map { number in
      Device(
        number, options.honest[number % options.honest.count], Self.client(number, schema, transports),
        seed: options.seed)
    }
  }

  /// Each synchronizes for the first time, a few at once.
  func join() async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for (place, device) in devices.enumerated() {
        if place >= 8 { try await group.next() }
        group.addTask {
          let start = ContinuousClock.now
          try await device.sync()
          figures.add(LoadPhase.joining.name(device.kind), milliseconds: milliseconds(since: start))
        }
      }
      try await group.waitForAll()
    }
  }

  /// All of them live for some seconds: nothing begins after these.
  func run(_ phase: LoadPhase, seconds: Double) async {
    let end = ContinuousClock.now + .seconds(seconds)
    if devices.isEmpty { try? await Task.sleep(until: end, clock: .continuous) }
    await withTaskGroup(of: Void.self) { group in
      for device in devices { group.addTask { await live(device, phase, until: end) } }
    }
  }

  func close() async {
    for transport in transports { await transport.close() }
  }

  private func live(_ device: Device, _ phase: LoadPhase, until end: ContinuousClock.Instant) async {
    // All devices together come to the rate.
    let pause = Double(options.devices) / options.rate
    try? await Task.sleep(for: .seconds(await device.drawn(0..<max(0.001, pause))))
    while ContinuousClock.now < end {
      let start = ContinuousClock.now
      do {
        acknowledged.add(try await device.turn { Self.client($0, schema, transports) })
        figures.add(phase.name(device.kind), milliseconds: milliseconds(since: start))
      } catch {
        figures.fail(phase.name(device.kind), (error as? SalvorError)?.code.rawValue ?? "\(error)")
      }
      let share = await device.drawn(0.5..<1.5)
      let wake = start + .seconds(pause * share * (device.kind == .away ? 4 : 1))
      try? await Task.sleep(until: min(wake, end), clock: .continuous)
    }
  }

  private static func client(_ number: Int, _ schema: Schema, _ transports: [HTTPClientTransport]) -> SalvorClient {
    SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: "device \(number)", store: SQLiteClientStore(path: ":memory:"),
        transport: transports[number % transports.count],
        credentials: credentialHeaders(["principal": "device \(number)"]), compressions: [GzipCompression()],
        uploadCompression: GzipCompression()))
  }
}
