import Dispatch

/// The executor of an actor that owns a connection: its own serial queue, so that SQLite never blocks a thread of the
/// cooperative pool (which has only as many as there are cores).
///
/// ```swift
/// actor Store {
///   let queue = SQLiteQueue("store")
///   nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
/// }
/// ```
public final class SQLiteQueue: SerialExecutor {
  /// Runs jobs one after the other, in place of a dispatch queue.
  public protocol Lane: Sendable {
    func add(_ job: UnownedJob, of executor: UnownedSerialExecutor)
  }

  /// What queues that are made in this task run their jobs on; nil: a dispatch queue each. A simulation decides by it
  /// which job goes next.
  @TaskLocal public static var makeLane: (@Sendable () -> any Lane)?

  private let queue: DispatchQueue
  private let lane: (any Lane)?

  public init(_ label: String) {
    queue = DispatchQueue(label: "salvor." + label)
    lane = Self.makeLane?()
  }

  #if canImport(Darwin)
    // `ExecutorJob` needs macOS 14 and iOS 17.
    public func enqueue(_ job: UnownedJob) { add(job) }
  #else
    public func enqueue(_ job: consuming ExecutorJob) { add(UnownedJob(job)) }
  #endif

  private func add(_ job: UnownedJob) {
    if let lane { return lane.add(job, of: asUnownedSerialExecutor()) }
    queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
  }

  public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
    UnownedSerialExecutor(ordinary: self)
  }

  public func checkIsolated() {
    // A lane's jobs run on one thread, whichever of them is asked.
    guard lane == nil else { return }
    dispatchPrecondition(condition: .onQueue(queue))
  }
}
