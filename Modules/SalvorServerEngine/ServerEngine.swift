import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

/// The server's engine: requests in, responses out. The way of a change goes on here from the transport: intake (checks,
/// staging), process (in the store), feed.
public final class ServerEngine: Sendable {
  let configuration: ServerConfiguration
  let config: SyncConfig
  let sessions: SessionTable
  let recoveries: RecoveryTable
  let validations: ValidationTable
  let events: EventHub
  /// Who writes in the store.
  let turns: Turns
  let bodies: BodyBudget
  /// Who has a large message parsed.
  let parsing: Turns
  /// How long the SyncConfig is, as text: a device's tables are about as much.
  let configBytes: Int
  let deviceLog: DeviceLog
  let identity: ServerIdentity
  /// Nil: groups come by rows alone.
  let shelf: SnapshotShelf?
  /// Milliseconds since 1970.
  let started: Int64
  let activity: RemoteActivity
  let operatorEvents: AdministrationEvents
  let floor: FloorMemory
  let idempotent: IdempotentActs
  /// Digests of device schemas that can follow this server's, so that they are compared once; true: the device must adopt
  /// before it uploads.
  let compatibleDigests = Mutex<[String: Bool]>([:])
  /// What `GET /metrics` shows, counted since `start`.
  public let metrics = ServerMetrics()
  /// When a device's write last met a full disk, in milliseconds since 1970; nil: the last one did not.
  private let diskFull = Mutex<Int64?>(nil)
  private let isStopping = Atomic(false)
  /// One copy of the database at a time.
  let isCopying = Atomic(false)

  /// Opens the store. Throws what the store throws: a schema that does not fit, a file that cannot be opened.
  public static func start(_ configuration: ServerConfiguration) async throws -> (ServerEngine, ServerOpening) {
    let opening = try await configuration.store.open(
      ServerSetup(
        schema: configuration.schema, conflictPolicies: configuration.conflictPolicies,
        withholdsMessages: configuration.withholdsMessages, reviewsOffers: configuration.reviewsOffers))
    if opening.isRestored {
      configuration.log.warning(
        "This database is older than its side file remembers: it was restored from a backup. Devices that synchronized since will say so. Where a file was copied by hand, block again whom you have blocked since."
      )
    }
    let identity = ServerIdentity(opening, configuration.store)
    return (try ServerEngine(configuration, identity: identity), opening)
  }

  private init(_ configuration: ServerConfiguration, identity: ServerIdentity) throws {
    started = configuration.clock.now()
    activity = RemoteActivity(clock: configuration.clock)
    operatorEvents = AdministrationEvents(clock: configuration.clock)
    floor = FloorMemory(clock: configuration.clock)
    idempotent = IdempotentActs(clock: configuration.clock)
    self.configuration = configuration
    self.identity = identity
    config = SyncConfig(configuration.schema)
    configBytes = config.json.bytes.count
    shelf = try SnapshotShelf(configuration, identity, metrics, schemaDigest: config.digest)
    bodies = BodyBudget(bytesMax: configuration.limits.bodiesBytesMax)
    let keeping = configuration.store as? any ConversationKeeping ?? ConversationMemory { identity.incarnation }
    sessions = SessionTable(
      keeping, idleMilliseconds: configuration.limits.sessionIdleMilliseconds,
      perPrincipalMax: configuration.limits.principalSessionsMax, clock: configuration.clock,
      random: configuration.random)
    deviceLog = DeviceLog(clock: configuration.clock, log: configuration.log)
    validations = ValidationTable(
      keeping, idleMilliseconds: configuration.limits.sessionIdleMilliseconds, clock: configuration.clock,
      random: configuration.random)
    recoveries = RecoveryTable(
      keeping, configuration.schema, recoveriesMax: configuration.limits.recoveriesMax,
      idleMilliseconds: configuration.limits.sessionIdleMilliseconds, clock: configuration.clock,
      random: configuration.random)
    events = EventHub(configuration)
    // Before the device's end of the connection gives up.
    let patience = configuration.limits.idleTimeoutMilliseconds / 2
    turns = Turns(patienceMilliseconds: patience, clock: configuration.clock)
    parsing = Turns(patienceMilliseconds: patience, clock: configuration.clock)
  }

  /// Ends every stream of events and every request that waits for its turn to write, and begins none any more: a transport
  /// that stops would wait for them. What is under way goes on.
  public func endWaiting() {
    isStopping.store(true, ordering: .relaxed)
    turns.stop()
    parsing.stop()
    events.stop()
    operatorEvents.stop()
  }

  /// Ends what is under way, too: nothing of it is done, and whoever waits for it is told to come back. May be called again
  /// until `stop` has ended: a request may begin something between two calls.
  public func interrupt() {
    endWaiting()
    validations.close()
    configuration.store.interrupt()
  }

  /// Who asks. What his request needs of what all share is counted as his from here on.
  ///
  /// Throws `forbidden` where values of a parameter are listed for him that the schema does not have: one that is misspelt would
  /// protect nothing (semantics 7).
  func authenticate(_ request: TransportRequest) async throws -> Principal {
    let principal = try await identify(request)
    guard principal.synchronizes else {
      throw SalvorError(
        .forbidden,
        "This credential is for administration alone (sync: false): nothing synchronizes with it. salvor token NAME makes one for a device."
      )
    }
    return principal
  }

  /// The same, of a credential that may be for administration alone.
  func identify(_ request: TransportRequest) async throws -> Principal {
    let principal = try await configuration.authentication.authenticate(request).listing(in: configuration.schema)
    if let unknown = principal.parameters.keys.sorted().first(where: { name in
      !configuration.schema.parameters.contains { $0.name == name }
    }) {
      throw SalvorError(
        .forbidden,
        "The server lists values of the parameter \"\(unknown.prefix(100))\" for this principal, and its schema has no such parameter: nothing is shown to him until that is corrected. Ask the server's operator.",
        context: ["parameter": String(unknown.prefix(100))])
    }
    BodyLease.current?.principal = principal.name
    return principal
  }

  /// Runs what writes in the store for a device, when it is the principal's turn.
  func write<Result>(
    for principal: Principal, _ body: (any ServerStore) async throws -> Result
  ) async throws -> Result {
    do {
      let result = try await turns.run(for: principal.name) { try await body(configuration.store) }
      diskFull.withLock { $0 = nil }
      return result
    } catch let error as SalvorError where error.code == .storageFull {
      diskFull.withLock { $0 = configuration.clock.now() }
      throw error
    }
  }

  /// Throws where the server can take nothing: the database does not answer, or its disk is full. Nothing is written for it. What the last
  /// write met counts for a while; then somebody has to try again.
  private func checkReady() async throws {
    try await configuration.store.answers()
    let isFull = diskFull.withLock { $0.map { configuration.clock.now() - $0 < 30_000 } ?? false }
    if isFull {
      throw SalvorError(
        .overloaded,
        "The disk of the server's database was full at the last write. Make room on it; nothing is lost.",
        retryAfterMilliseconds: 30_000)
    }
  }

  /// Runs what may meet a quota, and names the principal to the operator where it does.
  func withinQuota<Result>(_ principal: Principal, _ body: () async throws -> Result) async throws -> Result {
    do {
      return try await body()
    } catch let error as SalvorError where error.code == .quota {
      deviceLog.say(
        "Principal '\(principal.name)' has reached \(error.context["limit"] ?? "a limit") of this server.",
        about: principal.name)
      throw error
    }
  }

  /// A line for the operator.
  public func log(_ line: String) { configuration.log(line) }

  /// Ends what waits, closes the validators and the store. The transport has stopped before: a request that comes
  /// later fails.
  public func stop() async {
    endWaiting()
    validations.close()
    for entry in configuration.validators { await entry.validator.close() }
    await shelf?.stop()
    await configuration.store.close()
  }

  /// Answers one request. Never throws: an error is a problem response.
  public func handle(_ request: TransportRequest) async -> TransportResponse {
    metrics.requests.add(1)
    let lease = BodyLease(bodies)
    defer { if lease.release() > 0 { configuration.reclaimMemory() } }
    let observation = RequestObservation(request, configuration, metrics)
    return await LogContext.$current.withValue(observation.context) {
      let response: TransportResponse
      do {
        response = try await BodyLease.$current.withValue(lease) { try await route(observation.follow(request)) }
      } catch {
        var error = asSalvorError(error)
        if error.code == .cancelled, isStopping.load(ordering: .relaxed) { error = Turns.stopping }
        observation.note(error)
        noteProblem(error)
        response = problem(error)
      }
      return observation.follow(response)
    }
  }

  /// Answers one request at the address that is for monitoring alone: nobody shows a credential there.
  public func monitor(_ request: TransportRequest) async -> TransportResponse {
    await Self.$isMonitoring.withValue(true) { await handle(request) }
  }

  /// The request came to the address that is for monitoring.
  @TaskLocal static var isMonitoring = false

  private func noteProblem(_ error: SalvorError) {
    if let remote = LogContext.current?["remote"].flatMap({ RemoteID($0) }) { activity.note(error, of: remote) }
    if error.code == .unauthenticated || error.code == .forbidden {
      operatorEvents.send("login-refused", ["code": error.code.rawValue])
    }
  }

  private func problem(_ error: SalvorError) -> TransportResponse {
    var told = error
    // Whoever holds the device cannot make room here; the log has the words.
    if error.code == .storageFull {
      told.message =
        "The server's disk is full. Nothing was lost: when whoever runs the server has made room, synchronize again."
    }
    let body = Problem.json(told).bytes
    var headers = ["content-type": Problem.contentType]
    if let delay = error.retryAfterMilliseconds { headers["retry-after"] = String((delay + 999) / 1000) }
    if error.code == .unauthenticated { headers["www-authenticate"] = "Bearer" }
    return TransportResponse(
      status: error.code.httpStatus, headers: headers, body: .bytes(body), contentLength: body.count)
  }

  private func route(_ request: TransportRequest) async throws -> TransportResponse {
    let path = request.path.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)[0]
    let parts = path.split(separator: "/").map(String.init)
    if Self.isMonitoring, !["healthz", "readyz", "metrics"].contains(parts.first) || parts.count != 1 {
      throw SalvorError(.notFound, "This address is for monitoring: /healthz, /readyz and /metrics.")
    }
    // Monitors ask so, too; the transport leaves the body out.
    let isHead = request.method == "HEAD" && ["healthz", "readyz", "metrics"].contains(parts.first)
    switch (isHead ? "GET" : request.method, parts.first, parts.count) {
    case ("POST", "v1", 2) where parts[1] == "sync":
      return try await sync(request)
    case ("PUT", "v1", 5) where parts[1] == "sync" && parts[3] == "chunks":
      return try await receiveChunk(request, token: parts[2], index: parts[4])
    case ("POST", "v1", 4) where parts[1] == "sync" && parts[3] == "process":
      return try await processStaged(request, token: parts[2])
    case ("DELETE", "v1", 3) where parts[1] == "sync":
      return try await giveUp(request, token: parts[2])
    case ("POST", "v1", 4) where parts[1] == "sync" && ["ranges", "rows", "download"].contains(parts[3]):
      return try await compare(request, token: parts[2], parts[3])
    case (_, "v1", 3) where parts[1] == "blobs":
      return try await blobs(request, parts[2])
    case (_, "v1", 3) where parts[1] == "snapshots":
      return try await snapshots(request, parts[2])
    case ("GET", "v1", 2) where parts[1] == "events":
      return try await events(request)
    case (_, "v1", 2...) where parts[1] == "recovery":
      return try await recovery(request, Array(parts.dropFirst(2)))
    case ("GET", "healthz", 1): return text("ok\n")
    case ("GET", "readyz", 1):
      try await checkMonitor(request)
      try await checkReady()
      return text("ready\n")
    case ("GET", "metrics", 1):
      try await checkMonitor(request)
      return text(try await metricsText(), type: "text/plain; version=0.0.4")
    case (_, "admin", _): return try await administrate(request, Array(parts.dropFirst()))
    case (_, let version?, _) where version.first == "v" && version != "v1" && Int(version.dropFirst()) != nil:
      throw SalvorError(
        .protocolVersion,
        "This server speaks version \(protocolVersion) of the protocol, not \(version). Update the older side.")
    default:
      throw SalvorError(
        .notFound,
        "There is nothing at \(request.method) \(path). Look at the method and the path: the protocol's start with /v1, those of administration with /admin/v1."
      )
    }
  }

  func text(_ text: String, type: String = "text/plain") -> TransportResponse {
    let bytes = Array(text.utf8)
    return TransportResponse(
      status: 200, headers: ["content-type": type], body: .bytes(bytes), contentLength: bytes.count)
  }

  func json(_ value: JSONValue, status: Int = 200) -> TransportResponse {
    let bytes = value.bytes + [0x0A]
    return TransportResponse(
      status: status, headers: ["content-type": "application/json"], body: .bytes(bytes), contentLength: bytes.count)
  }
}

/// Any error as one of the catalogue.
func asSalvorError(_ error: any Error) -> SalvorError {
  switch error {
  case let error as SalvorError: error
  case is CancellationError: SalvorError(.cancelled, "The exchange was cancelled.")
  default: SalvorError(.failed, "Something failed inside the server.", context: ["error": "\(type(of: error))"])
  }
}
