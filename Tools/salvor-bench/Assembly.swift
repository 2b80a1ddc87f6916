import CopyAndResubscribeRecovery
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

#if PostgreSQL
  import PostgreSQLServerStore
#endif

/// The server of a measurement: SQLite store (PostgreSQL's where the database is a URL), HTTP on a free
/// port of 127.0.0.1, the content codings that a host can have.
struct BenchServer {
  let url: String
  private let store: any ServerStore
  private let engine: ServerEngine
  private let transport: HTTPServerTransport

  /// - Parameters:
  ///   - snapshots: first synchronizations go by files.
  ///   - files: where these are, too.
  static func start(
    database: String, schema: Schema, snapshots: Bool = false, files: String? = nil
  ) async throws -> BenchServer {
    let store = serverStore(database)
    var configuration = ServerConfiguration(
      schema: schema, store: store, authentication: NoAuthentication(), compressions: productCompressions)
    if snapshots {
      var rules = SnapshotRules()
      rules.minRows = 1
      rules.maxBehindPercent = 100
      rules.url = files
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

private func serverStore(_ database: String) -> any ServerStore {
  #if PostgreSQL
    if database.hasPrefix("postgresql:") { return PostgreSQLServerStore(url: database) }
  #endif
  return SQLiteServerStore(path: database)
}

/// The best first: as `compression: ["zstd", "gzip"]` offers them.
#if Zstd
  let productCompressions: [any Compression] = [ZstdCompression(), GzipCompression()]
#else
  let productCompressions: [any Compression] = [GzipCompression()]
#endif
/// Of snapshots, as the product chooses it.
let snapshotCompression: any Compression = productCompressions[0]

/// By which way a device gets the rows of a first sync.
enum DownloadWay: String {
  /// By a file where there is one, else by rows in the best coding that both sides have.
  case product
  /// By rows in that coding.
  case rows
  /// By rows in gzip.
  case gzip
}

/// The device of a measurement.
struct BenchClient {
  let client: SalvorClient
  let transport: any ClientTransport
  let credentials: [String: String]

  /// - Parameters:
  ///   - strategy: how it recovers, whatever the reason.
  ///   - way: by which way rows come.
  static func make(
    database: String, schema: Schema, url: String, strategy: String, heal: HealMode = .own, way: DownloadWay = .product
  ) throws -> BenchClient {
    let transport = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)))
    let credentials = credentialHeaders(["principal": "bench"])
    var configuration = SalvorClient.Configuration(
      schema: schema, principal: "bench", store: SQLiteClientStore(path: database), transport: transport,
      credentials: credentials, compressions: way == .gzip ? [GzipCompression()] : productCompressions,
      uploadCompression: GzipCompression(),
      recovery: RecoveryConfiguration(
        strategies: [RecoverUnsyncedChangesRecovery(), RecreateRecovery(), CopyAndResubscribeRecovery()],
        strategy: strategy))
    configuration.recovery.heal = heal
    configuration.snapshotCompressions = way == .product ? [snapshotCompression] : []
    return BenchClient(client: SalvorClient(configuration), transport: transport, credentials: credentials)
  }
}

/// A device's database with its triggers and without a row.
func makeDeviceDatabase(_ path: String, schema: Schema) async throws {
  let store = SQLiteClientStore(path: path)
  _ = try await store.open(ClientSetup(schema: schema, principal: "bench"))
  await store.close()
}
