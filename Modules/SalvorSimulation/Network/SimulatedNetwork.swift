import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// What may happen to the exchanges of one synchronization, in percent of them each.
public struct NetworkFaults: Sendable, Hashable {
  /// The request never reaches the server.
  public var loseRequest = 0
  /// The server does its work, and the device hears nothing of it.
  public var loseAnswer = 0
  /// The request's body breaks off on its way.
  public var cutRequest = 0
  /// The answer's body breaks off on its way. The server has done its work.
  public var cutAnswer = 0
  /// The server gets the request twice; the device gets the second answer.
  public var repeats = 0
  /// Something on the way answers 503.
  public var busy = 0
  /// It takes seconds.
  public var delay = 0

  /// No faults: every exchange arrives. What the percentages have beyond 100 together is never drawn.
  public init() {}

  /// No exchange has a fault.
  public var isSound: Bool { self == NetworkFaults() }
}

/// The way between the devices and the server of a simulation. The messages are those of the engines, headers and bodies;
/// what becomes of them is drawn.
public final class SimulatedNetwork: Sendable {
  private struct State {
    var handler: TransportHandler?
    var generator: SeededGenerator
    var faults: [String: NetworkFaults] = [:]
    var exchanges = 0
    var onExchange: (@Sendable (String) -> Void)?
    var isCut: (@Sendable (String) -> Bool)?
    var struck: [String: Int] = [:]
  }

  private let state: Mutex<State>
  private let clock: any Clock
  private let trace: Trace

  /// No server runs yet, and no device has faults. Delays pass on `clock`; `trace` gets each path and status.
  public init(_ generator: SeededGenerator, clock: any Clock, trace: Trace) {
    state = Mutex(State(generator: generator))
    self.clock = clock
    self.trace = trace
  }

  /// Nil: the server does not run.
  public func serve(_ handler: TransportHandler?) { state.withLock { $0.handler = handler } }

  /// What happens to the exchanges of this device from now on, drawn from `generator`.
  public func setFaults(_ faults: NetworkFaults?, of device: String, _ generator: SeededGenerator? = nil) {
    state.withLock { state in
      state.faults[device] = faults
      if let generator { state.generator = generator }
    }
  }

  /// Called with the device's name while an exchange of its is under way, e.g. for a reader to look at its database then.
  public func onExchange(_ look: (@Sendable (String) -> Void)?) { state.withLock { $0.onExchange = look } }

  /// Asked before and after each exchange of a device: whether one of its two machines has no power.
  public func isCut(_ ask: (@Sendable (String) -> Bool)?) { state.withLock { $0.isCut = ask } }

  /// How many exchanges there were, and how many of them were answered with 503.
  var counts: (exchanges: Int64, busy: Int64) {
    state.withLock { (Int64($0.exchanges), Int64($0.struck[Fate.busy.rawValue] ?? 0)) }
  }

  /// How often each kind of fault has struck.
  public var struck: [String: Int] { state.withLock { $0.struck } }

  /// A client transport module `simulated` for one device.
  public func transportFactory(device: String) -> ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(kind: .clientTransport, name: "simulated", summary: "the network of a simulation"),
      product: (any ClientTransport).self
    ) { reader, _ in
      let compression = reader.string("compression", default: "identity")
      return { SimulatedTransport(network: self, device: device, preferredCompression: compression) }
    }
  }

  /// A server transport module `simulated`: the server is called by the network itself, not by what listens.
  public static var listenFactory: ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(kind: .serverTransport, name: "simulated", summary: "the network of a simulation"),
      product: (any ServerTransport).self
    ) { _, _ in { SimulatedListener() } }
  }

  private enum Fate: String { case sound, loseRequest, loseAnswer, cutRequest, cutAnswer, repeated, busy, delayed }

  private func draw(_ device: String) -> (fate: Fate, place: Int, handler: TransportHandler?) {
    state.withLock { state in
      state.exchanges += 1
      var fate = Fate.sound
      if let faults = state.faults[device], !faults.isSound {
        var place = state.generator.below(100)
        for (percent, kind) in [
          (faults.loseRequest, Fate.loseRequest), (faults.loseAnswer, .loseAnswer), (faults.cutRequest, .cutRequest),
          (faults.cutAnswer, .cutAnswer), (faults.repeats, .repeated), (faults.busy, .busy), (faults.delay, .delayed),
        ] {
          if place < percent {
            fate = kind
            break
          }
          place -= percent
        }
        if fate != .sound { state.struck[fate.rawValue, default: 0] += 1 }
      }
      return (fate, state.generator.below(1 << 16), state.handler)
    }
  }

  func send(_ request: TransportRequest, of device: String) async throws -> TransportResponse {
    var (fate, place, handler) = draw(device)
    // A stream of events has no end that could be waited for.
    if request.path.hasPrefix("/v1/events"), fate != .loseRequest, fate != .busy { fate = .sound }
    state.withLock { $0.onExchange }?(device)
    trace.add("  \(device): \(request.method) \(shown(request.path)) \(fate == .sound ? "" : fate.rawValue)")
    let lost = SalvorError(.unreachable, "The simulated network lost a message.")
    let isCut = state.withLock { $0.isCut }
    guard let handler, fate != .loseRequest, isCut?(device) != true else {
      await request.body.close()
      throw lost
    }
    switch fate {
    case .busy:
      await request.body.close()
      let problem = Array("{\"type\":\"about:blank\",\"status\":503,\"code\":\"overloaded\",\"detail\":\"busy\"}".utf8)
      return TransportResponse(
        status: 503,
        headers: ["retry-after": ["1", "1", "20", "7200"][place % 4], "content-type": "application/problem+json"],
        body: .bytes(problem),
        contentLength: problem.count)
    case .delayed: try await clock.sleep(milliseconds: Int64(100 + place % 20_000))
    default: break
    }
    var sent = request
    if fate == .repeated || fate == .cutRequest {
      let whole = try await request.body.collect(upTo: Int.max)
      if fate == .cutRequest {
        sent.body = broken(whole, after: whole.isEmpty ? 0 : place % whole.count)
        let answer = await handler(sent)
        await answer.body.close()
        throw lost
      }
      sent.body = .bytes(whole)
      let first = await handler(sent)
      _ = try? await first.body.collect(upTo: Int.max)
      sent.body = .bytes(whole)
    }
    sent.peerIsLocal = true
    var answer = await handler(sent)
    if isCut?(device) == true {
      await answer.body.close()
      throw lost
    }
    trace.add("  \(device): \(answer.status)")
    switch fate {
    case .loseAnswer:
      _ = try? await answer.body.collect(upTo: Int.max)
      throw lost
    case .cutAnswer:
      let whole = (try? await answer.body.collect(upTo: Int.max)) ?? []
      answer.body = broken(whole, after: whole.isEmpty ? 0 : place % whole.count)
    default: break
    }
    return answer
  }

  /// Tokens of sessions are not shown: their place in the path is enough.
  private func shown(_ path: String) -> String {
    let parts = path.split(separator: "?", maxSplits: 1)[0].split(separator: "/", omittingEmptySubsequences: false)
    return parts.map { $0.count > 20 ? "…" : String($0) }.joined(separator: "/")
  }

  private func broken(_ bytes: [UInt8], after count: Int) -> ByteStream {
    let left = ByteStream.bytes(Array(bytes.prefix(count)))
    return ByteStream(next: {
      guard let piece = try await left.next() else {
        throw SalvorError(.unreachable, "The simulated network broke off a message.")
      }
      return piece
    })
  }
}

private struct SimulatedTransport: ClientTransport, CompressionPreference {
  let network: SimulatedNetwork
  let device: String
  let preferredCompression: String

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    try await network.send(request, of: device)
  }

  func close() async {}
}

private struct SimulatedListener: ServerTransport, ListeningAddress {
  var isLoopback: Bool { true }
  func start(handler: @escaping TransportHandler) async throws -> String { "simulated" }
  func stop(graceMilliseconds: Int64) async {}
}
