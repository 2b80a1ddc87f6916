import SalvorClientEngine
import SalvorModel
import SalvorRecovery
import SalvorServerEngine
import SalvorStorage
import SalvorTransport

/// A device and its server, both engines over the stores of a subject, within the process: what a case on a strategy
/// needs of the world. The device recovers from everything by the subject's strategy.
actor RecoveryWorld {
  let subject: RecoverySubject
  let strikes = Strikes()
  let clock = JumpingClock()
  private var database: RestorableDatabase<any ServerStore>
  private let openDevice: StoreSubject<any ClientStore>.Database
  private var engine: ServerEngine?
  private(set) var server: any RecoveringServerStore
  private(set) var device: any RecoveringClientStore
  private(set) var client: SalvorClient
  private var serverSchema = ContractSchemas.recovery
  private let hasConsent: Bool
  private let deletesItself: Bool

  /// - Parameters:
  ///   - hasConsent: the server's `clientRecoveryEnabled`.
  ///   - deletesItself: the server's `selfServiceRemoteDeletion`.
  init(_ subject: RecoverySubject, hasConsent: Bool = true, deletesItself: Bool = false) async throws {
    self.subject = subject
    self.hasConsent = hasConsent
    self.deletesItself = deletesItself
    let make = try expectSome(subject.stores.server.makeRestorable, "a server's store that goes back in time")
    database = try await make()
    openDevice = try await subject.stores.client.makeDatabase()
    server = try Self.recovering(try await database.open())
    device = try Self.recovering(try await openDevice())
    client = SalvorClient(
      SalvorClient.Configuration(
        schema: serverSchema, principal: OnePrincipal.name, store: device, transport: NoTransport()))
    try await startServer(server)
    try await startDevice(device)
  }

  private static func recovering(_ store: any ClientStore) throws -> any RecoveringClientStore {
    try expectSome(store as? any RecoveringClientStore, "a client's store that recovers")
  }

  private static func recovering(_ store: any ServerStore) throws -> any RecoveringServerStore {
    try expectSome(store as? any RecoveringServerStore, "a server's store that recovers")
  }

  // MARK: - The server

  private func startServer(_ store: any RecoveringServerStore) async throws {
    var configuration = ServerConfiguration(
      schema: serverSchema, store: store, authentication: OnePrincipal(), compressions: [],
      clientRecoveryEnabled: hasConsent, selfServiceRemoteDeletion: deletesItself)
    configuration.clock = clock
    server = store
    engine = try await ServerEngine.start(configuration).0
  }

  private func stopServer() async {
    await engine?.stop()
    engine = nil
  }

  func handle(_ request: TransportRequest) async -> TransportResponse {
    guard let engine else { return TransportResponse(status: 503) }
    return await engine.handle(request)
  }

  func copyServer() async throws {
    await stopServer()
    try await database.copy(0)
    try await startServer(Self.recovering(try await database.open()))
  }

  /// Puts the copy back. What another program writes then makes the history another one.
  func restoreServer() async throws {
    await stopServer()
    try await database.putBack(0)
    try await startServer(Self.recovering(try await database.open()))
    try await server.write([.update("site", ["s5"], ["name": "written after the restore"])])
  }

  /// Another database under the same address.
  func replaceServer() async throws {
    await stopServer()
    let make = try expectSome(subject.stores.server.makeRestorable, "a server's store that goes back in time")
    database = try await make()
    try await startServer(Self.recovering(try await database.open()))
  }

  func changeSchema() async throws {
    await stopServer()
    serverSchema = ContractSchemas.recoveryChanged
    try await startServer(Self.recovering(try await database.open()))
  }

  func demandReset() async throws {
    let remote = try await device.status().state.remoteID
    try expect(try await server.demandReset(remote), "the server does not know the device")
  }

  /// What `salvor remotes delete` does.
  func deleteRemote() async throws {
    let remote = try await device.status().state.remoteID
    try expect(try await engine?.delete(remote: remote) == true, "the server does not know the device")
  }

  // MARK: - The device

  private func startDevice(_ base: any RecoveringClientStore, opens: Bool = true) async throws {
    device = base
    var strategies = [subject.strategy]
    if subject.strategy.name != StrategyChain.manual { strategies.append(WaitingStrategy()) }
    let reasons = Dictionary(uniqueKeysWithValues: RecoveryReason.allCases.map { ($0, subject.strategy.name) })
    var limits = Limits()
    limits.attemptsMax = 2
    client = SalvorClient(
      SalvorClient.Configuration(
        schema: ContractSchemas.recovery, principal: OnePrincipal.name, store: StruckStore(base, strikes),
        transport: StruckTransport(world: self, strikes: strikes), limits: limits,
        recovery: RecoveryConfiguration(strategies: strategies, strategy: subject.strategy.name, reasons: reasons),
        clock: clock))
    if opens { try await client.open() }
  }

  /// Nobody can read the device's database any more, and its process is started anew.
  func damageDevice() async throws {
    await client.close()
    try await subject.damage(device)
    try await startDevice(Self.recovering(try await openDevice()), opens: false)
  }

  /// As a killed process leaves it, and started anew: nothing in memory goes on.
  func reopen() async throws {
    strikes.arm(nil)
    await client.close()
    // Longer than a session of the killed process counts as under way.
    clock.pass(milliseconds: 60_000)
    try await startDevice(Self.recovering(try await openDevice()))
  }

  func sync() async -> SyncReport { await client.attemptSync() }

  func write(_ writes: [ApplicationWrite]) async throws { try await device.write(writes) }

  func close() async {
    await client.close()
    await stopServer()
  }

  /// Syncs until nothing is left to do, or a person has to decide. An administrator deletes the remote ID where that is
  /// waited for.
  @discardableResult
  func settle() async throws -> SyncReport {
    for _ in 0..<8 {
      clock.pass(milliseconds: 60_000)
      let report = await client.attemptSync()
      let status = try await client.status()
      if report.outcome == .recoveryRequired, status.recovery.state == .required { return report }
      if report.outcome == .recoveryRequired, status.recovery.state == .unfinished {
        try await deleteRemote()
        continue
      }
      if let error = report.error { throw ContractFailure("a sync without a fault ends with \(error)") }
      if report.outcome == .synchronized, report.uploaded == 0, report.recovery == nil, status.queued == 0 {
        return report
      }
    }
    throw ContractFailure("after eight syncs without a fault, one is still not quiet")
  }
}

private struct NoTransport: ClientTransport {
  func send(_ request: TransportRequest) async throws -> TransportResponse {
    throw SalvorError(.unreachable, "There is no network yet.")
  }
  func close() async {}
}

/// The way from the device to the server, within the process.
struct StruckTransport: ClientTransport {
  let world: RecoveryWorld
  let strikes: Strikes

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    let deed = try strikes.request()
    if deed == .restoreServer { try await world.restoreServer() }
    let response = await world.handle(request)
    await request.body.close()
    guard deed == .loseAnswer else { return response }
    _ = try await response.body.collect(upTo: Int.max)
    throw SalvorError(.unreachable, "The answer was lost.")
  }

  func close() async {}
}
