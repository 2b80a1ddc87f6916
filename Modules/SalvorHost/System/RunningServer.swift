import SalvorModel
import SalvorServer
import SalvorStorage
import SalvorTransport

/// A server engine with the transport that brings it requests.
public actor RunningServer {
  public nonisolated let opening: ServerOpening
  public nonisolated let engine: ServerEngine
  private let transport: any ServerTransport
  private let graceMilliseconds: Int64
  private var isStopped = false

  /// Opens the store; nothing is listened to yet.
  public init(
    _ configuration: SalvorServer.ServerConfiguration, transport: any ServerTransport, graceMilliseconds: Int64 = 10_000
  ) async throws {
    (engine, opening) = try await ServerEngine.start(configuration)
    self.transport = transport
    self.graceMilliseconds = graceMilliseconds
  }

  /// Listens. Returns the URL under which devices reach it.
  public func start() async throws -> String {
    let engine = engine
    return try await transport.start { request in await engine.handle(request) }
  }

  /// Takes no new request, finishes what is in flight, and closes the store. Safe twice.
  public func stop() async {
    guard !isStopped else { return }
    isStopped = true
    await transport.stop(graceMilliseconds: graceMilliseconds)
    await engine.stop()
  }
}
