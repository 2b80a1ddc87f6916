import SalvorModel
import SalvorModuleKit

/// A database as the applications and the other programs of a simulation use it: SQL and nothing of Salvor's.
public protocol SimulatedDatabase: AnyObject {
  func execute(_ sql: String) throws
  func rows(_ sql: String) throws -> [[Value]]
  var isInTransaction: Bool { get }
  func close()
}

/// What a simulation gets from whoever runs it, since a module imports no plug-in: the modules of the product, a way
/// into its databases, and its serial queues put onto the simulation's schedule.
public struct SimulationPlatform: Sendable {
  public var modules: [ModuleFactory]
  public var connect: @Sendable (String) throws -> any SimulatedDatabase
  /// Runs `body` with every serial queue that the stores make in it as a lane of the schedule.
  public var onSchedule: @Sendable (SimulationSchedule, @Sendable () async -> Void) async -> Void
  /// Where a history has its files, e.g. `/dev/shm`.
  public var directory: String

  public init(
    modules: [ModuleFactory], directory: String,
    connect: @escaping @Sendable (String) throws -> any SimulatedDatabase,
    onSchedule: @escaping @Sendable (SimulationSchedule, @Sendable () async -> Void) async -> Void
  ) {
    self.modules = modules
    self.directory = directory
    self.connect = connect
    self.onSchedule = onSchedule
  }
}
