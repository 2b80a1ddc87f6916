import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// Where the database is, how many connections read it, and how durable a commit is.
public struct SQLiteServerOptions: Sendable {
  /// What a power cut may take.
  public enum Durability: String, Sendable, CaseIterable {
    /// Nothing that was acknowledged to a client.
    case full
    /// The last commits; the database stays whole. Clients are told by the sequence and history checks.
    case normal
  }

  /// The database's file; made where it is missing. `:memory:`, an empty text and a `file:` URI give one connection
  /// and no file beside the database.
  public var path: String
  /// Connections that serve pages, besides the one that writes.
  public var readers: Int
  /// What a power cut may take.
  public var durability: Durability
  /// How long another program's write lock is waited for before `storage-busy`.
  public var busyTimeoutMilliseconds: Int64
  /// Bounds uploads, blobs and remotes.
  public var limits: Limits
  /// Makes IDs: of the server, of its incarnations and of commits, among others.
  public var random: any RandomSource
  /// Gives the time of commits, uploads and staged parts.
  public var clock: any Clock
  /// Takes notices about the database, from its opening on.
  public var log: Log

  /// Two readers, full durability and five seconds to wait for a lock, where nothing else is given.
  public init(
    path: String, readers: Int = 2, durability: Durability = .full, busyTimeoutMilliseconds: Int64 = 5000,
    limits: Limits = Limits(), random: any RandomSource = SystemRandom(), clock: any Clock = SystemClock(),
    log: Log = .none
  ) {
    self.path = path
    self.readers = readers
    self.durability = durability
    self.busyTimeoutMilliseconds = busyTimeoutMilliseconds
    self.limits = limits
    self.random = random
    self.clock = clock
    self.log = log
  }

  /// A database in memory has one connection and no file beside it.
  var isFile: Bool { !path.isEmpty && !path.hasPrefix(":memory:") && !path.hasPrefix("file:") }
}
