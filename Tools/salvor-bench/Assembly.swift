import GzipCompression
import HTTPClientTransport
import HTTPServerTransport
import NoAuthentication
import RecoverUnsyncedChangesRecovery
import RecreateRecovery
import SQLiteClientStore
import SQLiteServerStore
import SalvorClientEngine
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import ZstdCompression

/// The server of a measurement: SQLite store, HTTP on a free port of 127.0.0.1, gzip.
struct BenchServer {
  let url: String
  private let store: SQLiteServerStore
  private let engine: ServerEngine
  private let transport: HTTPServerTransport

  /// - Parameter snapshots: first synchronizations go by files.
  static func start(database: String, schema: Schema, snapshots: Bool = false) async throws -> BenchServer {
    let store = SQLiteServerStore(path: database)
    var configuration = ServerConfiguration(
      schema: schema, store: store, authentication: NoAuthentication(), compressions: [GzipCompression()])
    if snapshots {
      var rules = SnapshotRules()
      rules.minRows = 1
      rules.maxBehindPercent = 100
      configuration.snapshots = SnapshotSettings(rules, compression: snapshotCompression)
    }
    configuration.makeThreads()
    let (engine, _) = try await ServerEngine.start(configuration)
    var options = HTTPServerOptions()
    options.port = 0
    let transport = HTTPServerTransport(options)
    let url = try await transport.start { await engine.handle($0) }
    return BenchServer(url: url, store: store, engine: engine, transport: transport)
  }

  /// Sees what other programs wrote, as a sync would.
  func sweep() async throws { _ = try await store.sweep() }

  /// Forgets every tombstone and every log entry: whoever was away has been away for too long.
  func trim() async { await engine.trim(retentionMilliseconds: -1000) }

  func stop() async {
    engine.endWaiting()
    await transport.stop(graceMilliseconds: 1000)
    await engine.stop()
  }
}

/// Of snapshots, as the product chooses it.
#if Zstd
  let snapshotCompression: any Compression = ZstdCompression()
#else
  let snapshotCompression: any Compression = GzipCompression()
#endif

/// The device of a measurement.
struct BenchClient {
  let client: SalvorClient
  let transport: any ClientTransport
  let credentials: [String: String]

  /// - Parameter strategy: how it recovers, whatever the reason.
  static func make(
    database: String, schema: Schema, url: String, strategy: String, heal: HealMode = .own
  ) throws -> BenchClient {
    let transport = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)))
    let credentials = credentialHeaders(["principal": "bench"])
    var configuration = SalvorClient.Configuration(
      schema: schema, principal: "bench", store: SQLiteClientStore(path: database), transport: transport,
      credentials: credentials, compressions: [GzipCompression()], uploadCompression: GzipCompression(),
      recovery: RecoveryConfiguration(
        strategies: [RecoverUnsyncedChangesRecovery(), RecreateRecovery()], strategy: strategy))
    configuration.recovery.heal = heal
    configuration.snapshotCompressions = [snapshotCompression]
    return BenchClient(client: SalvorClient(configuration), transport: transport, credentials: credentials)
  }
}

/// A device's database with its triggers and without a row.
func makeDeviceDatabase(_ path: String, schema: Schema) async throws {
  let store = SQLiteClientStore(path: path)
  _ = try await store.open(ClientSetup(schema: schema, principal: "bench"))
  await store.close()
}
