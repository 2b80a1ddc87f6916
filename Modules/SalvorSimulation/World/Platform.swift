import SalvorModel
import SalvorModuleKit

/// A database as the applications and the other programs of a simulation use it: SQL and nothing of Salvor's.
public protocol SimulatedDatabase: AnyObject {
  /// Runs statements that give no rows. Throws where one fails, e.g. at a constraint.
  func execute(_ sql: String) throws
  /// The rows of a query, each with its values in the order of the columns.
  func rows(_ sql: String) throws -> [[Value]]
  /// The same for as long as a query gives the same: it moves with whatever this connection has changed, and what it sees that others have.
  func version() throws -> [Int64]
  /// Whether a transaction of this connection is open: an error may have rolled it back.
  var isInTransaction: Bool { get }
  /// Gives up the connection. Nothing is asked of it afterwards.
  func close()
}

/// What a simulation gets from whoever runs it, since a module imports no plug-in: the modules of the product, a way
/// into its databases, and its serial queues put onto the simulation's schedule.
public struct SimulationPlatform: Sendable {
  /// The product's modules: a storage module `sqlite`, and what the configurations of both sides name besides.
  public var modules: [ModuleFactory]
  /// Opens the database at a path as an application does. Must not wait for locks: time stands still meanwhile.
  public var connect: @Sendable (String) throws -> any SimulatedDatabase
  /// Writes the second database into the first one's file, as one transaction that others see.
  public var overwrite: @Sendable (String, String) throws -> Void
  /// Runs `body` with every serial queue that the stores make in it as a lane of the schedule.
  public var onSchedule: @Sendable (SimulationSchedule, @Sendable () async -> Void) async -> Void
  /// Closes what the process keeps open of a database beyond its users: before its files are replaced.
  public var letGo: @Sendable (String) -> Void
  /// Where a history has its files, e.g. `/dev/shm`.
  public var directory: String

  /// Each history makes a directory of its own in `directory`, and removes it when it has ended.
  public init(
    modules: [ModuleFactory], directory: String,
    connect: @escaping @Sendable (String) throws -> any SimulatedDatabase, letGo: @escaping @Sendable (String) -> Void,
    overwrite: @escaping @Sendable (String, String) throws -> Void,
    onSchedule: @escaping @Sendable (SimulationSchedule, @Sendable () async -> Void) async -> Void
  ) {
    self.modules = modules
    self.directory = directory
    self.connect = connect
    self.letGo = letGo
    self.overwrite = overwrite
    self.onSchedule = onSchedule
  }
}
