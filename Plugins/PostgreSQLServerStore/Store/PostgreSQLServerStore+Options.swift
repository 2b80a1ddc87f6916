#if PostgreSQL
  import SalvorModel
  import SalvorStorage

  extension PostgreSQLServerStore {
    /// Where the database is, how it is reached, and how long is waited for it.
    public struct Options: Sendable {
      /// libpq's own: a URL or a keyword list, which may name several hosts.
      public var url: String
      /// The schema of Salvor's own tables, made where it is not there.
      public var schema: String
      /// The schema of the application's tables.
      public var tablesIn: String
      /// Connections at most, 4 to 100: one that numbers and writes uploads, one for staging, one that says that the process lives,
      /// the others for downloads.
      public var connections: Int
      /// How long another program's lock is waited for before `storage-busy`.
      public var lockTimeoutMilliseconds: Int64
      /// How long another upload is waited for (for tests).
      var headTimeoutMilliseconds = ConnectionSettings(url: "").headTimeout
      /// How long another program's lock is waited for at a time while others wait (for tests).
      var heldLockTimeoutMilliseconds = ConnectionSettings(url: "").heldLockTimeout
      /// How long one statement may take; nil: as the role has it.
      public var statementTimeoutMilliseconds: Int64?
      /// Of a standby of the database, which answers downloads and comparisons where it has replayed what they begin at; nil: the
      /// primary answers all.
      public var readReplica: String?
      /// What a logical subscriber writes (`session_replication_role = replica`) is captured, too.
      public var capturesReplicas: Bool
      /// A folder of this process's own, where it remembers the last commit that it has seen and the rows that were purged, as
      /// the files beside a SQLite database do: a start on a database that was restored says so. Nil: only a process that runs finds
      /// out, and nothing is purged.
      public var stateDirectory: String?
      /// Bounds uploads, blobs and remotes.
      public var limits: Limits
      /// Makes IDs: of the server, of its incarnations and of commits, among others.
      public var random: any RandomSource
      /// Gives the time of commits, uploads and staged parts.
      public var clock: any Clock
      /// Takes notices about the database, from its opening on.
      public var log: Log

      /// Eight connections and five seconds to wait for a lock, where nothing else is given.
      public init(
        url: String, schema: String = "salvor", tablesIn: String = "public", connections: Int = 8,
        lockTimeoutMilliseconds: Int64 = 5000, statementTimeoutMilliseconds: Int64? = nil,
        readReplica: String? = nil, capturesReplicas: Bool = false, stateDirectory: String? = nil,
        limits: Limits = Limits(),
        random: any RandomSource = SystemRandom(),
        clock: any Clock = SystemClock(), log: Log = .none
      ) {
        self.url = url
        self.schema = schema
        self.tablesIn = tablesIn
        self.connections = connections
        self.lockTimeoutMilliseconds = lockTimeoutMilliseconds
        self.statementTimeoutMilliseconds = statementTimeoutMilliseconds
        self.readReplica = readReplica
        self.capturesReplicas = capturesReplicas
        self.stateDirectory = stateDirectory
        self.limits = limits
        self.random = random
        self.clock = clock
        self.log = log
      }

      var settings: ConnectionSettings {
        var settings = ConnectionSettings(url: url, schema: schema, tablesIn: tablesIn)
        settings.lockTimeout = lockTimeoutMilliseconds
        settings.headTimeout = headTimeoutMilliseconds
        settings.heldLockTimeout = heldLockTimeoutMilliseconds
        settings.statementTimeout = statementTimeoutMilliseconds
        return settings
      }
    }
  }
#endif
