import SalvorModel
import SalvorStorage
import SalvorTransport

/// What a client is made of. Everything that touches the world comes in through a protocol.
public struct ClientConfiguration: Sendable {
  /// The tables, and how they are synchronized.
  public var schema: Schema
  /// The name by which the server knows the user; empty: the server says it.
  public var principal: String
  /// The device's database.
  public var store: any ClientStore
  /// The way to the server.
  public var transport: any ClientTransport
  /// The headers that say who sends (`Authentication.headers`).
  public var credentials: [String: String]
  /// Asked who sends, in the place of `credentials`: when a synchronization begins, and each time that the server refuses
  /// what it gave (401). What waits to be sent stays as it is meanwhile.
  public var credentialsProvider: CredentialsProvider?
  /// A closure that has given nothing for this time has failed.
  public var credentialsTimeoutMilliseconds: Int64 = 60_000
  /// The groups that are synchronized on a metered network (`isNetworkMetered`) where a call names none; nil: all.
  public var meteredGroups: Set<String>?
  /// Makes the store of another database, for `switch(to:)`; nil: this client has one database for good.
  public var makeStore: (@Sendable (_ database: String) throws -> any ClientStore)?
  /// Who sends, for all parts of one client.
  var login: Login?
  /// What the server takes, for all parts of one client.
  let sending = SendingCoding()
  /// Content codings that answers may come in, the best first. Where the server takes a better one than `uploadCompression`, what
  /// comes after its first answer is sent in it.
  public var compressions: [any Compression]
  /// Content codings that snapshots may come in, the best first; empty: groups come by rows alone.
  public var snapshotCompressions: [any Compression] = []
  /// A snapshot's database that the application brings along (`salvor server snapshots export`); nil: none.
  public var seed: String?
  /// The coding of uploads to a server of which nothing is known; nil: identity.
  public var uploadCompression: (any Compression)?
  /// How much of anything is taken at once.
  public var limits: Limits
  /// What the device does when its history and the server's part.
  public var recovery: RecoveryConfiguration
  /// Deleting an entry of the error archive takes that one and what depends on it, instead of all (semantics 8).
  public var individualDeletion: Bool
  /// Several requests on one row become one before they are sent (`ClientStore.optimiseQueue`).
  public var optimisesQueue: Bool
  /// Where the library's own lines go: nowhere, unless the application says so.
  public var log: Log
  /// The time; tests set it by hand.
  public var clock: any Clock
  /// Where identifiers are drawn from.
  public var random: any RandomSource
  /// No server's word makes a device wait for longer before it tries again. Tests alone set it.
  package var waitMillisecondsMax: Int64 = 60_000

  /// What is not named has a default of its own.
  public init(
    schema: Schema, principal: String, store: any ClientStore, transport: any ClientTransport,
    credentials: [String: String] = [:], compressions: [any Compression] = [],
    uploadCompression: (any Compression)? = nil, limits: Limits = Limits(),
    recovery: RecoveryConfiguration = RecoveryConfiguration(), individualDeletion: Bool = false,
    optimisesQueue: Bool = false, log: Log = .none,
    clock: any Clock = SystemClock(),
    random: any RandomSource = SystemRandom()
  ) {
    self.schema = schema
    self.principal = principal
    self.store = store
    self.transport = transport
    self.credentials = credentials
    self.compressions = compressions
    self.uploadCompression = uploadCompression
    self.limits = limits
    self.recovery = recovery
    self.individualDeletion = individualDeletion
    self.optimisesQueue = optimisesQueue
    self.log = log
    self.clock = clock
    self.random = random
  }
}

extension ClientConfiguration {
  /// The strategy for a client reset, with its callbacks.
  public var clientResetMode: ClientResetMode {
    get {
      ClientResetMode(
        strategy: recovery.strategy, beforeReset: recovery.beforeReset, afterReset: recovery.afterReset,
        manualHandler: recovery.manualClientResetHandler)
    }
    set {
      recovery.strategy = newValue.strategy
      recovery.beforeReset = newValue.beforeReset
      recovery.afterReset = newValue.afterReset
      if let handler = newValue.manualHandler { recovery.manualClientResetHandler = handler }
    }
  }
}

extension Login {
  convenience init(_ configuration: ClientConfiguration) {
    self.init(
      given: configuration.credentials, provider: configuration.credentialsProvider,
      timeoutMilliseconds: configuration.credentialsTimeoutMilliseconds, clock: configuration.clock)
  }
}
