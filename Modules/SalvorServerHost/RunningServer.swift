import SalvorConfiguration
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport

/// A server engine with the transport that brings it requests.
public actor RunningServer {
  /// What opening the store found and did.
  public nonisolated let opening: ServerOpening
  /// What answers the requests; for administration in the same process.
  public nonisolated let engine: ServerEngine
  private let transport: any ServerTransport
  private let monitoring: (any ServerTransport)?
  private let graceMilliseconds: Int64
  private let retentionMilliseconds: Int64
  private let stagingMilliseconds: Int64
  private let traces: TraceExporter?
  private var trimming: Task<Void, Never>?
  private var exporting: Task<Void, Never>?
  private var isStopped = false

  /// Opens the store; nothing is listened to yet.
  ///
  /// - Parameters:
  ///   - retentionMilliseconds: how long tombstones and the change log are kept.
  ///   - stagingMilliseconds: how long an upload stays in staging that nobody continues.
  ///   - monitoring: answers `/metrics` and `/readyz`, and nothing else but `/healthz`; nil: `transport` does.
  ///   - graceMilliseconds: how long `stop` waits for what is under way before it interrupts it.
  ///   - traces: sends spans while the server runs, and is closed with it.
  public init(
    _ configuration: ServerConfiguration, traces: TraceExporter? = nil, transport: any ServerTransport,
    monitoring: (any ServerTransport)? = nil,
    retentionMilliseconds: Int64 = HostConfiguration.tombstoneRetentionDefault,
    stagingMilliseconds: Int64 = HostConfiguration.stagingRetentionDefault, graceMilliseconds: Int64 = 5_000
  ) async throws {
    (engine, opening) = try await ServerEngine.start(configuration)
    self.transport = transport
    self.monitoring = monitoring
    self.traces = traces
    self.retentionMilliseconds = retentionMilliseconds
    self.stagingMilliseconds = stagingMilliseconds
    self.graceMilliseconds = graceMilliseconds
  }

  /// Listens. Returns the URL under which devices reach it.
  public func start() async throws -> String {
    let engine = engine
    _ = try await monitoring?.start { request in await engine.monitor(request) }
    let url = try await transport.start { request in await engine.handle(request) }
    if let traces { exporting = Task { await traces.run() } }
    let (retention, staging) = (retentionMilliseconds, stagingMilliseconds)
    trimming = Task {
      let pause = min(60_000, max(500, staging / 2))
      var sinceTrimmed: Int64 = .max / 2
      while !Task.isCancelled {
        if sinceTrimmed >= 3_600_000 {
          await engine.trim(retentionMilliseconds: retention)
          sinceTrimmed = 0
        }
        await engine.tidy(stagingMilliseconds: staging)
        // What healing's rate holds back goes on each second.
        for part in stride(from: Int64(0), to: pause, by: 1000) where !Task.isCancelled {
          try? await Task.sleep(for: .milliseconds(min(1000, pause - part)))
          await engine.settleWaitingOffers()
        }
        sinceTrimmed += pause
      }
    }
    return url
  }

  /// Takes renewed files (certificates) into use; those of before stay in force where that fails, and the log says so.
  public func reload() async {
    for (name, place) in [("listen", transport), ("monitoring", monitoring)] as [(String, (any ServerTransport)?)] {
      do {
        try await (place as? any ReloadableTransport)?.reload()
      } catch {
        engine.log("The files of server.\(name) could not be read again; those of before stay in force. \(error)")
      }
    }
  }

  /// Takes no new request, drops what waits for its turn, finishes what is under way within the grace and interrupts it
  /// then, and closes the store. Safe twice.
  public func stop() async {
    guard !isStopped else { return }
    isStopped = true
    trimming?.cancel()
    engine.endWaiting()
    let (engine, grace) = (engine, graceMilliseconds)
    let interruption = Task {
      try await Task.sleep(for: .milliseconds(grace))
      while true {
        engine.interrupt()
        try await Task.sleep(for: .milliseconds(50))
      }
    }
    await transport.stop(graceMilliseconds: graceMilliseconds)
    // Watched to the end.
    await monitoring?.stop(graceMilliseconds: 0)
    await engine.stop()
    interruption.cancel()
    exporting?.cancel()
    await traces?.close()
  }
}
